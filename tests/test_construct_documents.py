"""docs/construct_documents.py constructs documents whose gold is known."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def script():
    file = ROOT / "docs/construct_documents.py"
    spec = importlib.util.spec_from_file_location("construct_documents", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("plan", ["trial", "split", "swapped", "gaps", "front", "refrain", "hard"])
def test_pairs_of_the_gold_have_the_same_sentences(script, plan):
    """Each sentence names itself, so the two sides of a pair must name the same sentences, unless
    one of them was dropped from a side."""
    pairs = [(f"a{k}x, and more of a{k}y", f"b{k}x, und mehr b{k}y") for k in range(400)]
    front = ["front matter"] * 60
    built = script.construct(pairs, script.PLANS[plan], 1, front)
    assert built == script.construct(pairs, script.PLANS[plan], 1, front)
    for ends in built.gold:
        for numbers in ends:
            assert numbers == list(range(numbers[0], numbers[-1] + 1))
        a, b = (
            {
                int(word.strip("abxy,"))
                for k in numbers
                for word in side[k].split()
                if word[1:2].isdigit()
            }
            for side, numbers in zip((built.source, built.target), ends, strict=True)
        )
        assert a & b and (a <= b or b <= a or len(a & b) > 1 or plan == "trial")
    sizes = {(len(a), len(b)) for a, b in built.gold}
    assert {(1, 1), (1, 2), (2, 1)} <= sizes
    used = [k for a, _ in built.gold for k in a]
    assert len(used) == len(set(used)) < len(built.source)
