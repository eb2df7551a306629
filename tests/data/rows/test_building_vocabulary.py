"""The vocabulary that rows are built with: trained, or loaded from a file."""

import dataclasses

import numpy as np
import pytest
from made_rows import OBJECTIVES, folders
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from xlj.config import Config, Data
from xlj.data.rows.preparing import prepare_rows
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.vocabulary import Vocabulary


@pytest.mark.slow
def test_a_vocabulary_gives_the_same_rows_when_it_is_loaded_instead_of_trained(config, tmp_path):
    trained = config(tmp_path, vocabulary="", vocabulary_size=500, vocabulary_lines=2000)
    store = prepare_rows(trained)
    copied_file = tmp_path / "of_a_checkpoint.model"
    copied_file.write_bytes(store.vocabulary_file.read_bytes())
    loaded = config(tmp_path, vocabulary=str(copied_file))
    before = {file: file.stat().st_mtime_ns for f in folders(store) for file in f.rglob("*.rows")}
    again = prepare_rows(loaded)
    assert again.manifest.tasks == store.manifest.tasks and folders(again)[1:] == folders(store)[1:]
    assert again.manifest.content_hash == store.manifest.content_hash
    assert prepare_rows(trained).path == store.path != again.path
    assert {file: file.stat().st_mtime_ns for file in before} == before
    shorter = dataclasses.replace(trained.data, length=32)
    other = prepare_rows(Config(data=shorter, objectives=OBJECTIVES))
    assert other.path != store.path
    assert other.manifest.vocabulary_digest == store.manifest.vocabulary_digest
    assert len(list((tmp_path / "vocabularies").glob("*.model"))) == 1


@pytest.mark.slow
def test_the_config_sets_the_type_and_case_of_the_vocabulary(config, tmp_path):
    options = {"vocabulary_type": "bpe", "vocabulary_size": 500, "vocabulary_lines": 2000}
    store = prepare_rows(config(tmp_path, vocabulary="", **options))
    trainer = ModelProto.FromString(store.vocabulary_file.read_bytes()).trainer_spec
    assert trainer.model_type == trainer.BPE  # unigram is the default
    lowercased = prepare_rows(config(tmp_path, vocabulary="", vocabulary_lowercase=True, **options))
    for rows, folds_case in ((store, False), (lowercased, True)):
        pieces = Vocabulary.load(rows.vocabulary_file).encode_batch(["HELLO Hello", "hello hello"])
        assert np.array_equal(*pieces) == folds_case
    assert lowercased.manifest.vocabulary_digest != store.manifest.vocabulary_digest


@pytest.mark.slow
def test_a_vocabulary_without_a_size_gets_a_size_from_its_languages(config, tmp_path):
    pairs = ("en-fr", "en-zh-CN")
    four = Data(languages=("en", "de"), pairs=pairs, vocabulary_size=0)
    assert vocabulary_training.requested_size(four) == 10_000
    named = Data(languages=("zh-CN", "en"), pairs=("zh-CN-en",), vocabulary_size=0)
    # data.languages determines where the name of a pair is split
    assert vocabulary_training.requested_size(named) == 8_000
    assert vocabulary_training.requested_size(dataclasses.replace(four, vocabulary_size=500)) == 500
    options = {"vocabulary_size": 0, "vocabulary_lines": 2000}
    # This text has fewer than 8,000 pieces.
    store = prepare_rows(config(tmp_path, vocabulary="", **options))
    assert 400 < Vocabulary.load(store.vocabulary_file).size < 8000
    again = prepare_rows(config(tmp_path, vocabulary="", **options))
    assert again.path == store.path
