"""Real sentences of many languages, and strings that tokenizers disagree on."""

import gzip
import itertools
import unicodedata
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2].parent / "shared" / "data" / "mono"
LANGUAGES = (
    "ar az bg bn cs de el en es fa fi fr ha he hi ig ja ka ko ml pl ru sw ta te th tr vi yo zh"
).split()


def lines_of(language: str, start: int, stop: int) -> list[str]:
    """Returns lines `start` to `stop` of a language. Skips the test if there is no data."""
    if not FOLDER.is_dir():
        pytest.skip(f"there is no real data at {FOLDER}")
    path = FOLDER / f"{language}.txt.gz"
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        return [line.rstrip("\n") for line in itertools.islice(lines, start, stop)]


def sentences(each: int, skip: int = 0) -> list[str]:
    """Returns `each` lines of each of the 30 languages, after the first `skip`."""
    lines = [line for name in LANGUAGES for line in lines_of(name, skip, skip + each)]
    assert len(LANGUAGES) == 30 and len(lines) == each * 30
    return lines


SPECIALS = (
    "<s>", "</s>", "<pad>", "<unk>", "<mask>", "a <mask> b", "a<mask>b", "<s> x </s>", "<<s>>",
    "[CLS]", "[MASK]", "a [MASK] b", "a[SEP]b", "[PAD]", "[UNK] [unused1]", "<mas", "<mask",
)  # fmt: skip

HARD = (
    # Spaces, control characters and invisible characters.
    "", " ", "   ", "\t", "\n", "a", " a", "a ", "  a   b  ", "a\tb", "a\nb\r\nc",
    "a\u00a0b\u3000c", "\u200b", "a\u200bb\u200cc\u200dd\ufeffe\u2060f\u00adg",
    "a\u0085b\u2028c\u2029d\u180ee", "\0a\x01b\x1b\x7f", "a\ufffdb",
    # The characters that mark spaces or word parts in pieces.
    "\u2581", "a\u2581b \u2581\u2581c", "\u0120a", "##a a##b",
    # NFKC: compatibility characters, and decompositions. SentencePiece does not compose all.
    "…", "ﬁ ﬃ ㌔ ℌ ½ ² Ⅳ ①", "ＡＢＣ　１２３", "～ ~ 〜 ￣", "ｶﾞｷﾞﾊﾟ", "カ\u3099",
    "\u1112\u1161\u11ab", "İstanbul ıI ẞß ΑΣς ﷺ", "e\u0301o\u0302\u0303a\u0306\u0301",
    "क़ क\u093c ড়", "שָׁלוֹם", "ô\u0303 ê\u0323 é\u0323 e\u0323\u0302", "العَرَبِيَّة",
    *(
        unicodedata.normalize("NFD", text) for text in ("Tiếng Việt rất đẹp", "한국어 각")
    ),
    # Emoji, scripts that no training text has, and long words.
    "😀 👩\u200d👩\u200d👧\u200d👦 🇫🇷 👍🏽 ❤\ufe0f #\ufe0f\u20e3", "\U0001f9ff\U000e0001\ue000",
    "𐍈𐌰 ᚠᚢ 𓀀 ꦲꦏ ߒߞߏ", "漢字かな交じり文，。「」", "x" * 300, "aaaa " * 60,
    "3.14 1,000 10%", "http://x.yz/?a=b&c#d", "don't we'll I'M",
)  # fmt: skip
