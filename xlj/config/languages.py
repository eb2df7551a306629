"""The language of a language code, whatever the form of the code."""

import operator
import re
from collections.abc import Iterable

ENGLISH = "en"

_TWO_LETTERS = {
    code[:3]: code[3:]
    for code in """
aaraa abkab afraf akaak albsq alssq amham araar arbar argan armhy asmas avaav aveae aymay
ayray azbaz azeaz azjaz bakba bambm baqeu belbe benbn bisbi bodbo bosbs brebr bulbg burmy
catca cescs chach chece chizh chucu chvcv cmnzh corkw cosco crecr cymcy czecs danda deude
divdv dutnl dzodz ekket ellel engen epoeo estet euseu eweee faofo fasfa fijfj finfi frafr
frefr fryfy fulff fuvff gazom geoka gerde glagd glega glggl glvgv greel grngn guggn gujgu hatht
hauha hbssh hebhe herhz hinhi hmoho hrvhr hunhu hyehy iboig iceis idoio iiiii ikuiu ileie
inaia indid ipkik islis itait javjv jpnja kalkl kankn kasks katka kaukr kazkk khkmn khmkm
kikki kinrw kirky knckr komkv konkg korko kuakj kurku kmrku laolo latla lavlv limli linln litlt
ltzlb lublu luglg lvslv macmk mahmh malml maomi marmr mayms mkdmk mlgmg mltmt monmn mrimi
msams myamy nauna navnv nblnr ndend ndong nepne nldnl nnonn nobno norno npine nyany ocioc
ojioj orior ormom oryor ossos panpa pbtps perfa pesfa plipi pltmg polpl porpt prsfa pusps
quequ quyqu rohrm ronro rumro runrn rusru sagsg sansa sinsi slksk slosk slvsl smese smosm
snasn sndsd somso sotst spaes sqisq srdsc srpsr sswss sunsu swasw swesv swhsw tahty tamta
tattt telte tgktg tgltl thath tibbo tirti tonto tsntn tsots tuktk turtr twitw uigug ukruk
urdur uzbuz uznuz venve vievi volvo welcy wlnwa wolwo xhoxh yddyi yidyi yoryo zhaza zhozh
zsmms zulzu
""".split()
} | {"in": "id", "iw": "he", "ji": "yi", "nb": "no"}
"""The codes of ISO 639-1 by the codes of ISO 639-2 and 639-3. A code of ISO 639-1 may cover several
languages; it is listed for those that FLORES and Tatoeba have, such as zh for cmn. Older codes of
ISO 639-1 follow, and Bokmål, which is `no` in Wikipedia, OPUS and XTREME."""


CODE = re.compile(r"[a-z]{2,3}([-_]([A-Za-z]{4}|[A-Za-z]{2}|\d{3})){0,2}")
"""Matches a code of a language, with or without script and region."""


def language_of(code: str) -> str:
    """Returns the language of a code, without script and region: `en` for `eng_Latn` and `en-GB`.

    Returns:
      The code of ISO 639-1. If the language has none, the first part of `code` in lower case.
    """
    return _parts_of(code)[0]


def is_known(code: str) -> bool:
    """Whether a code is of a language that has a code in ISO 639-1."""
    return language_of(code) in _TWO_LETTERS.values()


def is_english(code: str) -> bool:
    """Whether a code is a code of English."""
    return language_of(code) == ENGLISH


def matching(code: str, codes: Iterable[str]) -> list[str]:
    """Returns the codes that mean the same as a code.

    These are equal codes. If there is none, they are codes of the same language that differ only in
    parts that one of the two codes leaves out: `eng` matches `en-GB`, but `en-US` does not.
    """
    codes, parts = list(codes), _parts_of(code)
    equal = [each for each in codes if each == code]
    equal = equal or [each for each in codes if _parts_of(each) == parts]
    return equal or [each for each in codes if all(map(operator.eq, parts, _parts_of(each)))]


def matches_any(names: Iterable[str], code: str) -> bool:
    """Whether a code means the same as one of the codes `names` (`matching`)."""
    return any(matching(name, [code]) for name in names)


def _parts_of(code: str) -> list[str]:
    language, *others = re.split("[-_]", code.lower())
    return [_TWO_LETTERS.get(language, language), *others]
