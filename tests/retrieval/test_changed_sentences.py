"""Changed sentences keep the form of their original, and are the same in every call."""

import json
import re

import pytest

from xlj.config import ConfigError
from xlj.retrieval import changed_sentences
from xlj.retrieval.changed_sentences import Changed


def test_each_number_becomes_another_number_of_its_form():
    sentences = [
        "In 2017, 1,234.50 of 10 people had 7 dogs and 0 cats at 10:05.",
        "Two million of twelve; Ninety, someone, often, hundred.",
        "No number here, and no ones.",
        "In 2017, 1,234.50 of 10 people had 7 dogs and 0 cats at 10:05.",
    ]
    changed = list(changed_sentences.change_numbers(sentences))
    assert changed == list(changed_sentences.change_numbers(sentences[:3]))
    assert [each.original for each in changed] == [sentences[0]] * 6 + [sentences[1]] * 5
    assert all(each.kind == "number" for each in changed)
    for each, number in zip(changed, ["2017", "1,234.50", "10", "7", "0", "10:05"], strict=False):
        before, after = sentences[0].split(), each.text.split()
        (place,) = [k for k, word in enumerate(before) if word != after[k]]
        old, new = before[place].rstrip(",."), after[place].rstrip(",.")
        assert old == number and re.sub(r"\d", "d", new) == re.sub(r"\d", "d", old)
        assert all(a != b for a, b in zip(old, new, strict=True) if a.isdigit())
        assert new[0] != "0" or len(new) == 1
    words = [set(each.text.split()) - set(sentences[1].split()) for each in changed[6:]]
    groups = ["three four five six seven eight nine ten eleven twelve", "hundred thousand billion"]
    assert {w.lower() for w in words[0]} <= set(groups[0].split()) and words[0].pop().istitle()
    assert words[1] <= set(groups[1].split())
    assert words[3].pop().istitle()


def test_digits_and_first_digits_are_drawn_from_all_others():
    sentences = [f"{number} and {number % 10}" for number in range(10, 100)]
    firsts, lasts = {str(k): set() for k in range(10)}, {str(k): set() for k in range(10)}
    for each in changed_sentences.change_numbers(sentences):
        old, new = (re.findall(r"\d+", text) for text in (each.original, each.text))
        if old[0] != new[0]:
            firsts[old[0][0]].add(new[0][0])
        else:
            lasts[old[1]].add(new[1])
    for digit in "123456789":
        assert firsts[digit] <= set("123456789") - {digit} and len(firsts[digit]) > 3
    for digit, others in lasts.items():
        assert digit not in others and len(others) > 3
    assert "0" in set().union(*lasts.values())


@pytest.fixture
def laser(tmp_path):
    """Files as LASER publishes them: changed sentences, and their originals and kinds."""
    (tmp_path / "eng_Latn_augmented.devtest").write_text("A 1.\nB.\nA.\nC x.\nB.\n")
    entries = {
        "A 1.": {"src": "A. ", "errtype": "Number"},
        "B.": {"src": "A.", "errtype": "Entity"},
        "C x.": {"src": "C.", "errtype": "Causality"},
    }
    file = tmp_path / "eng_Latn_errtype.devtest.json"
    file.write_text(json.dumps(entries))
    return tmp_path / "eng_Latn_augmented.devtest", file


def test_originals_and_kinds_are_read_from_the_file_next_to_the_sentences(laser):
    path, kinds = laser
    assert changed_sentences.read(path) == [
        Changed("A 1.", "A.", "Number"), Changed("B.", "A.", "Entity"),
        Changed("A.", "", "changed"), Changed("C x.", "C.", "Causality"),
        Changed("B.", "A.", "Entity"),
    ]  # fmt: skip
    # Repeated and unchanged sentences, and changes of other sentences, are left out.
    of_sources = changed_sentences.of_sources([str(path)], ["A.", "Six of 8."])
    assert [each.text for each in of_sources] == ["A 1.", "B."]
    with_rule = changed_sentences.of_sources(["numbers", str(path)], ["A.", "Six of 8."])
    assert [each.kind for each in with_rule] == ["number", "number", "Number", "Entity"]
    kinds.unlink()
    assert changed_sentences.read(path)[0] == Changed("A 1.", "", "changed")


def test_errors_name_the_file(laser, tmp_path):
    path, kinds = laser
    with pytest.raises(ConfigError, match=r"^numbers: there is no changed sentence"):
        changed_sentences.of_sources(["numbers"], ["A."])
    kinds.write_text('{"A 1.": {"src": 3}}')
    with pytest.raises(ConfigError, match=r"json: the value of 'A 1\.' is .* `src` and `errtype`"):
        changed_sentences.read(path)
    kinds.write_text('{"Other.": {"src": "A."}}')
    with pytest.raises(ConfigError, match=r"json is not about the sentences of eng_Latn_augmented"):
        changed_sentences.read(path)
    with pytest.raises(ConfigError, match="none.txt"):
        changed_sentences.of_sources([str(tmp_path / "none.txt")], ["A."])
