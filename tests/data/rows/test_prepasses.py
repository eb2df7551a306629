"""Prepasses are exact, and independent of the order of jobs."""

import random
import sys

import numpy as np
import pytest

from xlj.config import Config, ConfigError, Data, Objectives
from xlj.data.rows import prepasses
from xlj.data.rows.request import SAMPLED_UNITS, request_of
from xlj.data.text.cleaning import line_hashes
from xlj.data.text.held_out import Rule
from xlj.data.text.text_units import UnitReader
from xlj.data.tokenizer import vocabulary_training
from xlj.objectives.mlm.options import MultilingualMLM, TranslationLM

OBJECTIVES = Objectives(
    options={"mmlm": MultilingualMLM(batch_size=1), "tlm": TranslationLM(batch_size=1)}
)


def forwards(doing, jobs):
    for job in jobs:
        job()


def backwards(doing, jobs):
    for job in list(jobs)[::-1]:
        job()


def random_lines(language, count, letters="abcdefgh"):
    rng = random.Random(language)
    return [f"{''.join(rng.choices(letters, k=20))} {i}" for i in range(count)]


@pytest.fixture
def request_(tmp_path):
    """A request with English in 50 units, German in 2 units, and pairs of both."""
    en, de = random_lines("en", 40_000), random_lines("de", 1600, "üößäabc")
    (tmp_path / "en.txt").write_text("\n".join(en))
    (tmp_path / "de.txt").write_text("\n".join(de))
    (tmp_path / "en-de.tsv").write_text(
        "\n".join(f"{a}\t{b}" for a, b in zip(en[:400], de, strict=False))
    )

    def make(name="cache", **fields):
        fields = {"vocabulary_size": 200, "vocabulary_lines": 3000, **fields}
        data = Data(
            languages=("en", "de"),
            mono=(f"{tmp_path}/{{language}}.txt",),
            pairs=("en-de",),
            parallel=(f"{tmp_path}/{{pair}}.tsv",),
            cache=str(tmp_path / name),
            unit_bytes=20_000,
            **fields,
        )
        return request_of(Config(data=data, objectives=OBJECTIVES))

    make.lines = {"en": en, "de": de}
    return make


@pytest.mark.slow
def test_a_vocabulary_is_trained_on_a_uniform_sample_without_held_out_lines(request_, monkeypatch):
    calls = []
    train = vocabulary_training.train
    monkeypatch.setattr(
        vocabulary_training,
        "train",
        lambda *args, **more: calls.append(args[:2]) or train(*args, **more),
    )
    for run, name in ((forwards, "a"), (backwards, "b")):
        request = request_(name)
        texts = prepasses.texts_of(request)
        rules = prepasses.hold_out(request, texts, run)
        prepasses.train_vocabulary(request, texts, rules, run)
    assert calls[0] == calls[1]
    sampled, weights = calls[0]
    for language, lines in sampled.items():
        assert not (line_hashes(lines) < Rule(0.02).threshold).any()
        assert len(set(lines) - set(request_.lines[language])) == 0
    # Hashes select some of the 52 and 3 units; counts are scaled to all units.
    en, de = (len(texts[i].units) for i in (0, 1))
    assert en > 40 > SAMPLED_UNITS > de
    positions = [request_.lines["en"].index(line) for line in sampled["en"]]
    units = {position * en // 40_000 for position in positions}
    assert SAMPLED_UNITS - 2 <= len(units) <= 2 * SAMPLED_UNITS
    characters = {"en": 40_400 * 25, "de": 2_000 * 25}
    share = characters["en"] ** 0.3 / sum(count**0.3 for count in characters.values())
    shares = {n: sum(map(len, lines)) * weights[n] for n, lines in sampled.items()}
    assert shares["en"] / sum(shares.values()) == pytest.approx(share, rel=0.1)
    assert sum(map(len, sampled.values())) <= 3000


@pytest.mark.parametrize("source", ["seqio:task#text", "tfds:wiki#text"])
def test_a_missing_library_is_an_error_before_text_is_read(source, tmp_path, monkeypatch):
    (tmp_path / "excluded.txt").write_text("a line\n")
    data = Data(
        languages=("en",),
        mono=(source,),
        exclude=(f"{tmp_path}/excluded.txt",),
        cache=str(tmp_path / "cache"),
    )
    request = request_of(Config(data=data, objectives=OBJECTIVES))
    monkeypatch.setitem(sys.modules, "seqio", None)
    with pytest.raises(ConfigError, match=f"^reading {source} needs seqio, which "):
        prepasses.texts_of(request)
    assert not list((tmp_path / "cache").iterdir())


def test_companions_are_collected_from_all_units(request_):
    request = request_()
    texts = prepasses.texts_of(request)
    rules = prepasses.hold_out(request, texts, backwards)
    assert rules["en"].companions is None
    pairs = list(zip(request_.lines["en"][:400], request_.lines["de"], strict=False))
    first, second = (line_hashes(column) for column in zip(*pairs, strict=True))
    expected = second[(first < rules["en"].threshold) & (second >= rules["de"].threshold)]
    actual = np.fromfile(rules["de"].companions, "<u8")
    assert actual.tolist() == sorted(expected.tolist()) and len(actual) > 1


@pytest.mark.parametrize("bucket_bytes", [1 << 30, 30_000])
def test_only_the_first_occurrence_of_a_line_is_read(request_, tmp_path, monkeypatch, bucket_bytes):
    monkeypatch.setattr(prepasses, "_BUCKET_BYTES", bucket_bytes)
    rng = random.Random(1)
    en = [f"line {rng.randrange(6000)}" if rng.random() < 0.9 else "" for _ in range(20_000)]
    (tmp_path / "en.txt").write_text("\n".join(en))
    pairs = [(f"a{rng.randrange(30)}", f"b{rng.randrange(30)}") for _ in range(3000)]
    (tmp_path / "en-de.tsv").write_text("\n".join(map("\t".join, pairs)))
    for run, name in ((forwards, "a"), (backwards, "b")):
        request = request_(name, duplicates="drop")
        english, german, both = prepasses.find_duplicates(request, prepasses.texts_of(request), run)
        for text, lines in ((english, [(line,) for line in en]), (both, pairs)):
            rows, dropped = [], 0
            for index, unit in enumerate(text.units):
                reader = UnitReader(unit, index, text.reading)
                for chunk in reader.chunks():
                    rows += zip(*chunk.columns, strict=True)
                dropped += reader.dropped["stands before"]
            rows = [row for row in rows if row != ("",)]
            nonempty = [row for row in lines if row != ("",)]
            assert rows == list(dict.fromkeys(nonempty))
            assert dropped == len(nonempty) - len(rows) > 1000
        assert len(english.reading.repeated) == (1 if bucket_bytes > 1e9 else 6)
        assert all(file.stat().st_size == 0 for file in german.reading.repeated)
        assert not list((tmp_path / name).rglob("*.hashes"))
    assert request_("c").folder.name != request_("c", duplicates="drop").folder.name


def test_codes_of_a_language_share_their_companions(tmp_path):
    """Pairs have FLORES codes, and text has ISO codes: German text is held out beside pairs."""
    en, de = random_lines("en", 800), random_lines("de", 800, "üößäabc")
    rows = "\n".join(f"{b}\t{a}" for a, b in zip(en, de, strict=True))
    (tmp_path / "deu_Latn-eng_Latn.tsv").write_text(rows)
    (tmp_path / "de.txt").write_text("\n".join(de)), (tmp_path / "en.txt").write_text("x y\n")
    data = Data(
        languages=("en", "de"),
        mono=(f"{tmp_path}/{{language}}.txt",),
        pairs=("deu_Latn-eng_Latn",),
        parallel=(f"{tmp_path}/{{pair}}.tsv",),
        cache=str(tmp_path / "cache"),
        vocabulary_size=200,
    )
    request = request_of(Config(data=data, objectives=OBJECTIVES))
    rules = prepasses.hold_out(request, prepasses.texts_of(request), forwards)
    assert rules["en"].companions is rules["eng_Latn"].companions is None
    assert rules["de"] == rules["deu_Latn"]
    is_low = line_hashes(en) < rules["en"].threshold
    companions = set(np.fromfile(rules["de"].companions, "<u8"))
    expected = line_hashes(de)[is_low]
    assert companions == {h for h in expected if h >= rules["de"].threshold} and len(companions) > 5
