"""A model that the recipe `aligner` trains finds good links with default options."""

import importlib

import pytest

import xlj
from xlj import phrasebook
from xlj.config.choices import AlignmentOptions
from xlj.word_alignment import gold_alignments

PAIRS = [phrasebook.pair(phrasebook.draw(3, index), "en", "de") for index in range(60)]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("aligner")
    config = importlib.import_module("aligner").get_config("tiny")
    config.data.cache = str(folder / "rows")
    config.train.steps = 60
    return xlj.pretrain(config, folder / "run")


@pytest.mark.slow
def test_links_with_default_options_are_good(trained):
    model = xlj.load(trained.workdir)
    assert model.alignment_options() == AlignmentOptions("hmm", "apart", 0, 0.0)
    words = [
        tuple(
            [side.text[start:end] for start, end in side.spans]
            for side in (pair.source, pair.target)
        )
        for pair in PAIRS
    ]
    gold = [pair.alignment for pair in PAIRS]
    aer = gold_alignments.error_rates(model.align(words), gold, gold).aer

    assert aer < 0.15
