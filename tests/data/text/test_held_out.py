"""No sentence that is held out, alone or in a pair, is trained on in the same language."""

import dataclasses
import itertools
import random
from collections import Counter

import numpy as np
import pytest

from xlj.data.text import held_out
from xlj.data.text.cleaning import HASHES, line_hashes
from xlj.data.text.held_out import LIMIT, Rule


def corpus(seed: int) -> dict[tuple[str, ...], list[tuple[str, ...]]]:
    """Text and pairs of four languages that share many sentences, written in several ways."""
    rng = random.Random(seed)
    ways = (str, str.upper, str.title, lambda line: line.replace(" ", "\u3000"), lambda line: "")

    def line(language: str, number: int) -> str:
        return rng.choice(ways)(f"{language if number % 9 else 'all'} sentence {number}")

    tasks: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for language in ("en", "de", "fr", "sw"):
        numbers = [rng.randrange(3000) for _ in range(2000)]
        tasks[language,] = [(line(language, n),) for n in numbers]
    for pair in (("en", "de"), ("en", "fr"), ("sw", "en"), ("de", "fr")):
        numbers = [(n := rng.randrange(3000), n + rng.randrange(2)) for _ in range(3000)]
        tasks[pair] = [(line(pair[0], a), line(pair[1], b)) for a, b in numbers]
    return tasks


def columns(rows: list[tuple[str, ...]]) -> list[list[str]]:
    return [list(column) for column in zip(*rows, strict=True)]


def rules(tasks, folder) -> dict[str, Rule]:
    found = {
        "en": Rule(9000, LIMIT // 3),
        "de": Rule(5000, LIMIT),
        "fr": Rule(5000, LIMIT // 2),
        "sw": Rule(3000, LIMIT),
    }
    for languages, rows in tasks.items():
        if len(languages) == 2:
            blocks = [columns(rows[:1000]), columns(rows[1000:])]
            companions = held_out.find_companions(blocks, [found[name] for name in languages])
            for name, content in zip(languages, companions, strict=True):
                file = folder / f"{'-'.join(languages)}.{name}"
                held_out.write_companions(file, content)
                found[name] = dataclasses.replace(found[name], files=(*found[name].files, file))
    return found


def outcomes(tasks, by_language):
    """What becomes of each line or pair, and its (language, sentence)s."""
    for languages, rows in tasks.items():
        hashes = [line_hashes(column) for column in columns(rows)]
        out, sharing = held_out.split(hashes, [by_language[name] for name in languages])
        assert not (out & sharing).any() and (len(languages) == 2 or not sharing.any())
        for row, is_out, is_sharing in zip(rows, out, sharing, strict=True):
            sides = zip(languages, row, strict=True)
            said = [(name, " ".join(side.casefold().split())) for name, side in sides if side]
            yield "held out" if is_out else "dropped" if is_sharing else "trained on", said


@pytest.mark.parametrize("seed", range(3))
def test_held_out_and_training_share_no_sentence_of_a_language(seed, tmp_path):
    tasks = corpus(seed)
    found: dict[str, list] = {"held out": [], "dropped": [], "trained on": []}
    for outcome, said in outcomes(tasks, rules(tasks, tmp_path)):
        found[outcome].append(said)
    aside, trained = (set(itertools.chain(*found[o])) for o in ("held out", "trained on"))
    assert not aside & trained
    assert {name for name, _ in aside} == {name for name, _ in trained} == {"en", "de", "fr", "sw"}
    assert found["dropped"]


def test_the_language_with_more_lines_decides_about_pairs():
    lines = [f"line {number}" for number in range(2000)]
    others = [f"zeile {line}" if number % 3 else "" for number, line in enumerate(lines)]
    low = line_hashes(lines)[:, 0] < LIMIT
    assert 60 < low.sum() < 140
    hashes = [line_hashes(others), line_hashes(lines)]
    rules = [Rule(2000, LIMIT), Rule(9000, LIMIT // 9)]
    out, sharing = held_out.split(hashes, rules)
    assert np.array_equal(out, low)
    assert np.array_equal(sharing, (hashes[0][:, 0] < LIMIT) & ~low)
    first, second = held_out.find_companions([[others, lines]], rules)
    wanted = hashes[0][low & (np.array(others) != ""), 0]
    assert first.tolist() == sorted(wanted[wanted >= LIMIT].tolist())
    wanted = hashes[1][low, 0]
    assert second.tolist() == sorted(wanted[wanted >= LIMIT // 9].tolist())


def test_text_in_many_languages_is_not_lost(tmp_path):
    tasks = {("en", f"x{i}"): [(f"say {n}", f"x{i} {n}") for n in range(2000)] for i in range(40)}
    rules = {"en": Rule(80_000, LIMIT // 4)} | {f"x{i}": Rule(2000, LIMIT) for i in range(40)}
    files = []
    for languages, rows in tasks.items():
        found = held_out.find_companions([columns(rows)], [rules[name] for name in languages])
        files.append(tmp_path / languages[1])
        held_out.write_companions(files[-1], found[0])
    rules["en"] = dataclasses.replace(rules["en"], files=tuple(files))
    counts = Counter(outcome for outcome, _ in outcomes(tasks, rules))
    assert counts["held out"] == pytest.approx(80_000 * 0.05, rel=0.2)
    assert counts["trained on"] > 80_000 * 0.88


def test_blank_lines_are_never_held_out():
    hashes = line_hashes(["", "word", ""])
    assert hashes.tolist()[0] == [HASHES - 1] * 2 == hashes.tolist()[2]
    out, sharing = held_out.split([hashes], [Rule(2, LIMIT)])
    assert not out[[0, 2]].any() and not sharing.any()


def test_copies_hash_alike_and_hashes_never_change():
    copies = line_hashes(["Straße  ﬁne", "STRASSE\u3000fine", "strasse fine", "strasse fin"])
    assert len(np.unique(copies, axis=0)) == 2
    assert line_hashes(["hello"]).tolist() == [[2487661361680939846, 1983032898264320655]]
    assert line_hashes([]).shape == (0, 2)
