"""Forty plain sentences in 15 scripts, some of them with characters that tokenizers normalise."""

import unicodedata


def _decomposed(text: str) -> str:
    return unicodedata.normalize("NFD", text)


SENTENCES = {
    "LATIN": (
        "The train to the lake leaves at nine.",
        "Heute fällt die Schule wegen Sturm aus.",
        "Où as-tu rangé les clés du grenier\u00a0?",
        "Cây cầu này được xây bằng đá.",
        _decomposed("Mẹ tôi trồng rau trong vườn."),
        "İstanbul'da ışıklar  erken yandı…",
        "Watoto wanacheza karibu na mto.",
        "Żółw powoli przeszedł przez ścieżkę.",
    ),
    "CYRILLIC": (
        "Вчера мы видели лису у реки.",
        "Їжак заснув під старим дубом.",
        "Младият пекар отваря рано.",
        _decomposed("Мой чай ещё горячий."),
    ),
    "GREEK": ("Το καράβι φεύγει το πρωί.", "Η γάτα κοιμάται δίπλα στο τζάκι."),
    "ARABIC": (
        "القطار يصل إلى المدينة مساءً.",
        "كَتَبَ الوَلَدُ رِسالةً.",
        "می\u200cخواهم فردا به کوه بروم.",
        "بچے باغ میں کھیل رہے ہیں۔",
    ),
    "HEBREW": ("הילדה קוראת ספר ליד החלון.", "שָׁלוֹם לְכָל הַיְלָדִים."),
    "DEVANAGARI": (
        "नदी के पास एक पुराना पेड़ है।",
        "आज बाज़ार जल्दी बंद हुआ।",
        "माझी बहीण रोज गाणे गाते.",
    ),
    "BENGALI": ("ছেলেটি নদীর ধারে ঘুড়ি ওড়ায়।", "আজ সকালে বৃষ্টি হয়েছে।"),
    "TAMIL": ("அம்மா சந்தையில் பழம் வாங்கினாள்.", "மழை நின்றதும் வெளியே போனோம்."),
    "TELUGU": ("పిల్లలు చెట్టు కింద ఆడుతున్నారు.", "ఈ రోజు ఎండ ఎక్కువగా ఉంది."),
    "THAI": ("วันนี้น้ำในแม่น้ำสูงมาก", "แมวนอนอยู่ใต้โต๊ะ"),
    "GEORGIAN": ("მატარებელი საღამოს მოდის.", "ბავშვები ეზოში თამაშობენ."),
    "ETHIOPIC": ("ልጆቹ ወንዝ አጠገብ ይጫወታሉ።",),
    "CJK": ("他们昨天在湖边钓鱼。", "会议在３楼举行，请准时。"),
    "HIRAGANA": ("猫は窓のそばで寝ています。", "新しいｶﾒﾗとﾋﾞﾃﾞｵを買いました。"),
    "HANGUL": ("아이들이 강가에서 놀고 있다.", _decomposed("할머니가 빵을 구웠다.")),
}
"""The sentences by script, the first word of its characters' names in Unicode."""

LINES = tuple(line for lines in SENTENCES.values() for line in lines)
assert len(SENTENCES) == 15 and len(LINES) == len({*LINES}) == 40
assert all(
    any(unicodedata.name(character).startswith(script) for character in line)
    for script, lines in SENTENCES.items()
    for line in lines
)
