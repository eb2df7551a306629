"""data/text/splitting.py splits paragraphs and joins sentences."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from xlj.data.text.splitting import join, split


@pytest.mark.parametrize(
    "text, count",
    [
        ("One. Two! Three? Four", 4),
        ("Dr. Smith met Mr. J. R. Jones at 3.5 p.m. today. He left.", 2),
        ('He paid 3.50 dollars. "Really?" she said. (Yes.) Then he left.', 4),
        ("Das kostet z. B. 5 Euro. Abb. 3. 4 ist gut.", 2),
        ("Wait ... what? No… Yes.", 3),
        ("他来了。你好吗？“很好。”她说。", 4),
        ("まあ！！本当ですか。", 2),
        ("वह आया। वह गया।", 2),
        ("وصل. هل غادر؟ نعم.", 3),
        ("ሰላም። ደህና ነህ።", 2),
        ("See e.g. this. ¿Qué? ¡No! «Oui.» Non.", 5),
        ("", 0),
    ],
)
def test_sentences_end_at_stops(text, count):
    sentences = split(text)
    assert len(sentences) == count, sentences
    assert join(sentences).split() == text.split()


@given(st.text(alphabet='aA1 .!?。"”\n,', max_size=40))
def test_no_character_is_lost(text):
    assert "".join("".join(split(text)).split()) == "".join(text.split())


def test_only_chinese_and_japanese_are_joined_without_spaces():
    assert join(["他来了。", "她走了。"]) == "他来了。她走了。"
    assert join(["One.", "他来了。", "Two"]) == "One. 他来了。 Two"
    assert join(["네.", "아니요."]) == "네. 아니요."
    assert join(["", "a", ""]) == "a"
