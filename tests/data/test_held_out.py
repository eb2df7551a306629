"""No sentence that is held out, alone or in a pair, is trained on in the same language."""

import itertools
import random

import numpy as np
import pytest

from xlj.data import held_out
from xlj.data.cleaning import HASHES, line_hashes
from xlj.data.held_out import LIMIT, Rule


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
    thresholds = {"en": LIMIT // 3, "de": LIMIT, "fr": LIMIT // 2, "sw": LIMIT}
    files: dict[str, tuple] = dict.fromkeys(thresholds, ())
    for languages, rows in tasks.items():
        if len(languages) == 2:
            blocks = [columns(rows[:1000]), columns(rows[1000:])]
            below = [thresholds[name] for name in languages]
            found = held_out.find_companions(blocks, below)
            for name, companions in zip(languages, found, strict=True):
                file = folder / f"{'-'.join(languages)}.{name}"
                held_out.write_companions(file, companions)
                files[name] += (file,)
    return {name: Rule(thresholds[name], files[name]) for name in thresholds}


def outcomes(tasks, by_language):
    """What becomes of each line or pair, and its (language, sentence)s."""
    for languages, rows in tasks.items():
        hashes = [line_hashes(column) for column in columns(rows)]
        out, sharing = held_out.split(hashes, [by_language[name] for name in languages])
        assert not (out & sharing).any()
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
    # Nothing is dropped without need, and text never is.
    assert found["dropped"] and all(aside & set(said) for said in found["dropped"])
    assert all(len(said) == 2 or said[0] in aside for said in found["dropped"])


def test_companions_are_the_other_sides_of_held_out_pairs(tmp_path):
    lines = [f"line {number}" for number in range(2000)]
    low = line_hashes(lines)[:, 0] < LIMIT
    assert 60 < low.sum() < 140
    pairs = [lines, [f"zeile {line}" if number % 3 else "" for number, line in enumerate(lines)]]
    first, second = held_out.find_companions([pairs], (LIMIT, 0))
    assert not len(first)
    wanted = {
        int(line_hashes([b])[0, 0]) for b, out in zip(pairs[1], low, strict=True) if out and b
    }
    assert set(second.tolist()) == wanted and (np.diff(second.astype(object)) > 0).all()


def test_blank_lines_are_never_held_out():
    hashes = line_hashes(["", "word", ""])
    assert hashes.tolist()[0] == [HASHES - 1] * 2 == hashes.tolist()[2]
    out, sharing = held_out.split([hashes], [Rule(LIMIT)])
    assert not out[[0, 2]].any() and not sharing.any()


def test_copies_hash_alike_and_hashes_never_change():
    copies = line_hashes(["Straße  ﬁne", "STRASSE\u3000fine", "strasse fine", "strasse fin"])
    assert len(np.unique(copies, axis=0)) == 2
    assert line_hashes(["hello"]).tolist() == [[2487661361680939846, 1983032898264320655]]
    assert line_hashes([]).shape == (0, 2)
