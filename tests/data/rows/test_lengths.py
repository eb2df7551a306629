"""`data.pair_length=auto`, and the warning about dropped pairs."""

import dataclasses
import math

import pytest

from xlj.config import Config, ConfigError, Data, Model, Objectives
from xlj.data.rows import packing, preparing
from xlj.data.rows.preparing import prepare_rows, with_pair_length
from xlj.data.rows.report import report
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.objectives.contrast.options import Retrieval
from xlj.objectives.mlm.options import TranslationLM

PAIRS = 400


@pytest.fixture(scope="module")
def pairs(text, tmp_path_factory):
    """Pairs with a few very long ones, their folder, and the tokens of both sides."""
    folder = tmp_path_factory.mktemp("pairs")
    lines = [line.split("\t") for line in (text / "xx-yy.tsv").read_text().split("\n")[:PAIRS]]
    lines = [(" ".join([a] * (1 + 9 * (i % 50 == 0) + i % 3)), b) for i, (a, b) in enumerate(lines)]
    (folder / "xx-yy.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in lines))
    encode = Vocabulary.load(text / "v.model").encode
    sides = [encode(list(side)).lengths.tolist() for side in zip(*lines, strict=True)]
    return folder, list(zip(*sides, strict=True))


@pytest.fixture
def of_pairs(config, pairs):
    def make(cache, *objectives, **fields) -> Config:
        fields = {"parallel": (f"{pairs[0]}/{{pair}}.tsv",), "held_out_share": 0.0, **fields}
        base = config(cache, languages=(), mono=(), **fields)
        return dataclasses.replace(base, objectives=Objectives(options=dict(objectives)))

    return make


TLM = ("tlm", TranslationLM(batch_size=1))
RETRIEVAL = ("retrieval", Retrieval(batch_size=2))


@pytest.mark.parametrize(
    "objectives",
    [*(pytest.param([x], marks=pytest.mark.slow) for x in (TLM, RETRIEVAL)), [TLM, RETRIEVAL]],
)
def test_auto_keeps_99_percent_of_the_pairs(of_pairs, pairs, tmp_path, objectives):
    needed = []
    if TLM in objectives:
        needed.append(sorted(a + b + 3 for a, b in pairs[1]))
    if RETRIEVAL in objectives:
        needed.append(sorted(2 * (max(a, b) + 2) for a, b in pairs[1]))
    expected = max(8 * math.ceil(sizes[math.ceil(0.99 * PAIRS) - 1] / 8) for sizes in needed)
    config = with_pair_length(of_pairs(tmp_path, *objectives, pair_length="auto"))
    assert config.data.pair_length == expected < max(sizes[-1] for sizes in needed)
    store = prepare_rows(config)
    assert all(task.train.sentences >= 0.99 * PAIRS for task in store.manifest.tasks)
    assert "warning" not in report(store, Data(alpha=0.7))


def test_auto_stays_within_the_positions_and_measures_once(of_pairs, tmp_path, monkeypatch):
    config = of_pairs(tmp_path, TLM, pair_length=0)  # the value of `auto`
    with pytest.raises(ConfigError, match="several processes train"):
        with_pair_length(config, processes=2)
    length = with_pair_length(config).data.pair_length
    monkeypatch.setattr(preparing, "in_child", None)
    few = dataclasses.replace(config, model=Model(positions=50))
    assert with_pair_length(few, processes=2).data.pair_length == 48 < length
    text_only = of_pairs(tmp_path, ("mmlm", TranslationLM(batch_size=0)), pair_length="auto")
    assert with_pair_length(text_only) is text_only
    with pytest.raises(ConfigError, match="data.pair_length is 'all' .* int or auto"):
        of_pairs(tmp_path, TLM, pair_length="all")
    with pytest.raises(ConfigError, match="data.pair_length is 7; .* at least 8, or auto"):
        of_pairs(tmp_path, TLM, pair_length=7)


def test_the_warning_names_the_length_that_95_percent_of_pairs_fit(of_pairs, pairs, tmp_path):
    sizes = sorted(a + b + 3 for a, b in pairs[1])
    expected = 8 * math.ceil(sizes[math.ceil(0.95 * PAIRS) - 1] / 8)
    store = prepare_rows(of_pairs(tmp_path, TLM, pair_length=40))
    (task,) = store.manifest.tasks
    dropped = sum(size > 40 for size in sizes)
    assert (
        task.text.dropped == {"too long": dropped} and sum(task.text.too_long.values()) == dropped
    )
    (line,) = (
        x for x in report(store, Data(alpha=0.7)).split("\n") if x.startswith("pairs.xx-yy ")
    )
    columns = line.split()
    assert columns[1:4] == [str(PAIRS), "0", str(dropped)]
    assert columns[4] == f"{100 * dropped / PAIRS:.1f}%"
    note, warning = report(store, Data(alpha=0.7)).split("\n")[-2:]
    assert note == f"dropped from pairs: {dropped} too long"
    assert warning.startswith(
        f"warning: pairs.xx-yy: {dropped} of {PAIRS} dropped (too long); 95 %"
    )
    assert f"fit in data.pair_length={expected}," in warning


def test_the_shortest_sufficient_length_is_returned():
    counts = {"16": 3, "8": 5, "104": 2}
    assert packing.shortest_length(counts, 0.5) == 8 and packing.shortest_length(counts, 0.51) == 16
    assert (
        packing.shortest_length(counts, 0.81) == 104 and packing.shortest_length(counts, 1.0) == 104
    )
    assert (
        packing.shortest_length(counts, 0.94, shorter=30) == 16
        and packing.shortest_length({}, 0.9) == 0
    )
