"""Codes are compared as languages, whatever their form."""

import pytest

from xlj.config.languages import is_english, language_of, matching


@pytest.mark.parametrize(
    "codes, language",
    [
        ("en eng EN en-GB en_US eng_Latn en_XX", "en"),
        ("zh zho chi cmn zh-CN zho_Hans cmn_Hant", "zh"),
        ("de deu ger deu_Latn de-AT", "de"),
        ("sw swa swh swh_Latn", "sw"),
        ("ar ara arb arb_Arab", "ar"),
        ("hau ha hau_Latn", "ha"),
        ("bam bm", "bm"),
        ("no nb nob nor nob_Latn nb-NO", "no"),
        ("nn nno_Latn", "nn"),
        ("he iw heb_Hebr", "he"),
        ("id in ind_Latn", "id"),
        ("ku kmr_Latn kur", "ku"),
        ("luo luo_Latn", "luo"),
        ("a01 a01_Latn", "a01"),
    ],
)
def test_codes_of_a_language_have_one_language(codes, language):
    assert {language_of(code) for code in codes.split()} == {language}
    assert {is_english(code) for code in codes.split()} == {language == "en"}


def test_codes_match_if_one_says_less_than_the_other():
    assert matching("en", ["de", "eng_Latn"]) == ["eng_Latn"]
    assert matching("eng_Latn", ["en", "eng_Latn"]) == ["eng_Latn"]
    assert matching("EN-gb", ["en", "en_GB"]) == ["en_GB"]
    assert matching("zh", ["zh-CN", "zh-TW", "en"]) == ["zh-CN", "zh-TW"]
    assert matching("zh-Hant", ["zh-Hans", "zh-Hant-TW"]) == ["zh-Hant-TW"]
    assert not matching("en-US", ["en-GB", "enm"]) and not matching("sr-Latn", ["sr-Cyrl"])
