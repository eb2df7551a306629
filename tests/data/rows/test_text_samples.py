"""Samples of text consist of whole units; train and held-out lines are separated as in rows."""

import dataclasses

import pytest

from xlj.config import parse
from xlj.data.rows import building
from xlj.data.rows.request import request_of
from xlj.data.tokenizer.vocabulary import Vocabulary


@pytest.fixture
def sampled(tiny, store):
    """Returns a function that samples the text of `tiny`."""

    def sample(characters=10**9, most_held_out=10**9, unit_bytes=1 << 25):
        config = parse(tiny)
        data = dataclasses.replace(config.data, unit_bytes=unit_bytes)
        config = dataclasses.replace(config, data=data)
        request = request_of(config, Vocabulary.load(store.vocabulary_file))
        return building.sample_text(request, characters, most_held_out)

    return sample


def test_a_sample_of_all_text_has_the_lines_of_the_rows(sampled, store, corpus):
    samples = sampled()
    for task in store.manifest.tasks:
        sample = samples[task.name]
        assert sample.is_whole
        counts = len(sample.train[0]), len(sample.held_out[0])
        rows = task.train.sentences, task.held_out.sentences
        assert counts == rows if task.kind == "text" else counts >= rows  # long pairs are in no row
        assert len(sample.train) == len(sample.held_out) == len(task.languages)
    lines = (corpus / "mono/de.txt").read_text("utf-8").split("\n")
    both = samples["text.de"].train[0] + samples["text.de"].held_out[0]
    assert sorted(both) == sorted(filter(None, lines))
    pairs = (corpus / "pairs/en-de.tsv").read_text("utf-8").split("\n")
    train = samples["pairs.en-de"].train
    assert set(zip(*train, strict=True)) <= {tuple(line.split("\t")) for line in pairs}


def test_a_sample_ends_with_the_unit_that_completes_it(sampled):
    whole, some = sampled(), sampled(characters=2000, unit_bytes=4096)
    train, every = some["text.en"].train[0], whole["text.en"].train[0]
    assert not some["text.en"].is_whole
    assert set(train) <= set(every)
    assert 2000 <= sum(map(len, train)) < 2000 + 2 * 4096
    assert sampled(characters=2000, unit_bytes=4096)["text.en"] == some["text.en"]


def test_held_out_lines_are_sampled_and_keep_their_order(sampled):
    every, some = sampled()["text.en"].held_out[0], sampled(most_held_out=9)["text.en"].held_out[0]
    assert len(some) == 9 < len(every)
    assert some == [line for line in every if line in some]
    assert some != every[:9]
