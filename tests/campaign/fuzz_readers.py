"""All readers of the fuzz campaign: valid files, the function that reads them, and its checks."""

from __future__ import annotations

import contextlib
import csv
import gzip
import io
import json
import lzma
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import numpy as np
import zstandard

from xlj import align_documents
from xlj import config as schema
from xlj.checkpoints import metrics, reading
from xlj.checkpoints.workdir import finished_run
from xlj.cli import configs, sentence_vectors
from xlj.config import ConfigError, Data, record
from xlj.data.labelled import conll, records, squad, tables
from xlj.data.rows import row_kind
from xlj.data.rows.store import RowStore, RowStoreError
from xlj.data.text import splitting
from xlj.data.text.sources import open_sources
from xlj.data.text.text_tasks import TextTask
from xlj.data.text.text_units import ReadOptions, UnitReader
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.document_alignment import documents
from xlj.evaluation import prediction_files
from xlj.evaluation.prediction_files import Form
from xlj.interop import folder as hugging_face
from xlj.interop import tokenizer_files, vocabulary_matching
from xlj.interop.vocabulary_matching import folded
from xlj.io import files, json_file, tmx
from xlj.io.columns import RANGE
from xlj.io.malformed import Skipping
from xlj.retrieval import sentence_files
from xlj.tools.reporting import runs
from xlj.tools.sweeping import runner
from xlj.word_alignment import gold_alignments, sentence_pairs

TEXT = "The cat sleeps.\nDie Katze schläft, sagt er.\n\nPaka analala.\n一只猫在睡觉。\n" * 3
PAIRS = "The cat sleeps.\tDie Katze schläft.\nGood morning!\tGuten Morgen!\n" * 4
MALFORMED = (
    b"\xef\xbb\xbfThe cat sleeps.\tDie Katze schl\xc3\xa4ft.\r\n\n \t \nno tab\na\tb\tc\na\t\n"
    b"\xe9t\xe9\tb\nx\0y\tz\n\xef\xbb\xbfGood \xef\xbb\xbfmorning!\tGuten\rMorgen!\n"
)
"""Malformed lines of each kind, lines with a byte order mark, and valid but unusual lines."""

UNER = (
    "# sent_id = 1\n1\tAda\tB-PER\t-\tann1\n2\tLee\tI-PER\t-\tann1\n3-4\tzum\tO\t-\tann1\n"
    "3\tzu\tO\t-\tann1\n\n1\tOslo\tB-LOC\t-\tann2\n"
)
PLUS = (
    "# global.columns = ID FORM UPOS MISC\n# text = a\n1\ta\tDET\t_\n1.1\tb\tX\t_\n2\tc\tX\t_\n\n"
)
TWEETS = "# id 1\tdomain=en\n#love O\nOslo B-LOC\n\n# id 2\tdomain=en\n@a O\n# O\n"
CSV = 'premise,hypothesis,label\n"A man, ""old""","He\nrests",1.0\nb,c,0.0\n'
TMX = (
    '<?xml version="1.0" encoding="UTF-8"?><tmx version="1.4"><header srclang="en"/><body>'
    '<tu><tuv xml:lang="en"><seg>the <ph x="1">{}</ph>cat</seg></tuv>'
    '<tuv xml:lang="de"><seg>die Katze &amp; er</seg></tuv></tu></body></tmx>'
)


class Lost(Exception):
    """A reader accepted an input, but lost or invented parts of it without an error."""


@dataclass(frozen=True)
class Reader:
    """A reader, with valid input.

    Attributes:
      files: valid content of each file, by name; the campaign changes one file at a time.
      read: reads the files in a folder; raises `Lost` if the reader did not read everything.
      errors: documented errors other than `ConfigError`.
      weight: relative frequency at which the campaign draws the reader.
      named: whether errors must contain the path of the folder.
    """

    name: str
    files: Mapping[str, bytes]
    read: Callable[[Path], None]
    errors: tuple[type[Exception], ...] = ()
    weight: int = 4
    named: bool = True


def same(what: str, actual: int, expected: int) -> None:
    """Raises `Lost` unless the numbers are equal."""
    if actual != expected:
        raise Lost(f"{what}: {actual} read, but there are {expected}")


def lines_in(content: bytes) -> list[bytes]:
    """Splits a file into lines at line feeds only; the last line may lack one."""
    return content.removesuffix(b"\n").split(b"\n") if content else []


def _decompressed(path: Path) -> bytes:
    """Returns the content of a file, decompressed by the libraries' functions for whole files."""
    content = path.read_bytes()
    if path.suffix == ".gz":
        return gzip.decompress(content)
    if path.suffix == ".xz":
        try:
            return lzma.decompress(content)
        except lzma.LZMAError:  # zeros behind the last stream are padding
            return lzma.decompress(content.rstrip(b"\0"))
    return _unzst(content) if path.suffix == ".zst" else content


def _unzst(content: bytes) -> bytes:
    """Returns the content of all frames; zeros before, between and after frames are padding."""
    parts = []
    while content := content.lstrip(b"\0"):
        frame = zstandard.ZstdDecompressor().decompressobj()
        parts.append(frame.decompress(content))
        content = frame.unused_data
    return b"".join(parts)


def _units(path: str, columns: int, malformed: str) -> tuple[int, int, int]:
    """Returns (lines, kept lines, dropped lines) of a source that is read in small units."""
    sources = tuple(open_sources(path, ("text", "other")[:columns], Data(), "data.mono"))
    task = TextTask("text.en", "data.mono", ("en",) * columns, sources)
    lines = kept = dropped = 0
    size = sum(part.size for unit in task.units(1 << 40) for part in unit)
    for index, unit in enumerate(task.units(max(48, size // 200))):
        reader = UnitReader(unit, index, ReadOptions(malformed, ""))
        kept += sum(len(chunk.columns[0]) for chunk in reader.chunks())
        if columns == 1:
            kept -= len(unit)  # the line that ends the document of each part
        lines += reader.lines
        dropped += sum(reader.dropped.values())
        noted = sum(reader.malformed[why][0] for why in reader.dropped)
        same("malformed lines noted", noted, reader.dropped.total())
    return lines, kept, dropped


def _read_text(name: str, columns: int, is_valid: bool = True) -> Callable[[Path], None]:
    """Returns a function that reads a file of lines.

    Args:
      is_valid: whether the unchanged content has no malformed line.
    """

    def read(folder: Path) -> None:
        lines, kept, dropped = _units(f"{folder}/{name}", columns, "skip")
        contents = lines_in(_decompressed(folder / name))
        same("lines", lines, len(contents))
        same("lines kept and dropped", kept + dropped, lines)
        bad = sum(not _is_text(line) or columns == 2 and not _is_pair(line) for line in contents)
        same("malformed lines", dropped, bad)
        if is_valid:
            strict = _units(f"{folder}/{name}", columns, "error")
            same("lines if malformed lines are errors", strict[0], lines)

    return read


def _is_text(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError:
        return False
    return b"\0" not in line and len(line) <= 1 << 20


def _is_pair(line: bytes) -> bool:
    sides = line.decode().split("\t")
    return len(sides) == 2 and bool(sides[0].strip("\ufeff").strip() and sides[1].strip())


def _read_aligned(folder: Path) -> None:
    lines, kept, dropped = _units(f"{folder}/a.en|{folder}/a.de", 2, "skip")
    sides = [lines_in((folder / name).read_bytes()) for name in ("a.en", "a.de")]
    for side in sides:
        same("lines", lines, len(side))
    bad = 0
    for pair in zip(*sides, strict=True):
        is_text = all(map(_is_text, pair))
        blank = {not line.decode().lstrip("\ufeff").strip() for line in pair} if is_text else {0}
        bad += not is_text or len(blank) == 2
    same("dropped pairs", dropped, bad)
    same("pairs kept and dropped", kept + dropped, lines)


def _read_skipping(folder: Path) -> None:
    """Checks that each line keeps its row number if malformed lines are skipped."""
    contents = lines_in((folder / "a.tsv").read_bytes())
    skipping = Skipping("skip")
    lines = list(files.lines(folder / "a.tsv", skipping))
    same("lines", len(lines), len(contents))
    bad = [row for row, line in enumerate(contents) if not _is_text(line)]
    if skipping.rows != bad or any(lines[row] for row in bad):
        raise Lost(f"rows {skipping.rows} were skipped, but the malformed rows are {bad}")
    pairs = list(sentence_pairs.read(folder / "a.tsv", skipping=Skipping("skip")))
    same("pairs", len(pairs), len(contents))


def _read_json_text(fields: str, columns: int) -> Callable[[Path], None]:
    def read(folder: Path) -> None:
        lines, kept, dropped = _units(f"{folder}/a.jsonl#{fields}", columns, "skip")
        same("kept and dropped", kept + dropped, lines)
        expected = 0
        for line in lines_in((folder / "a.jsonl").read_bytes()):
            if _is_text(line) and not line.decode().lstrip("\ufeff").strip():
                continue
            text = _json_text(line, fields.partition("|")[0])
            expected += 1 if columns > 1 else 2 if text is None else 1 + len(text.split("\n"))
        same("lines of records", lines, expected)

    return read


def _json_text(line: bytes, field: str) -> str | None:
    """Returns the text of a record, or None if it is malformed."""
    try:
        text = json_file.parse(line.decode().lstrip("\ufeff"), "")
        for name in field.split("."):
            text = text[name]
        text = "" if text is None else text
        return None if re.search("[\ud800-\udfff\0]", text) or b"\0" in line else text
    except (ConfigError, UnicodeDecodeError, LookupError, TypeError):
        return None


def _read_parquet(folder: Path) -> None:
    import pyarrow.parquet

    lines, kept, dropped = _units(f"{folder}/a.parquet#text", 1, "skip")
    same("kept and dropped", kept + dropped, lines)
    table = pyarrow.parquet.read_table(folder / "a.parquet", columns=["text"])
    texts = [text or b"" for text in table["text"].cast("binary").to_pylist()]
    bad = sum(not _is_text(text) for text in texts)
    same("malformed texts", dropped, bad)
    expected = sum(1 + text.count(b"\n") + 1 for text in texts if _is_text(text)) + 2 * bad
    same("lines of records", lines, expected)


def _read_conll(folder: Path, **choices: bool) -> None:
    examples = conll.read(folder / "a.conll", "en", (), **choices)
    words = sum(len(example.words) for example in examples)
    lines = [line.removesuffix("\r").strip(" ") for line in _texts(folder / "a.conll")]
    full = [line for line in lines if line.strip(" \t")]
    skipped = re.compile(r"#|-DOCSTART-|\d+[-.]\d+[\t ]")
    if not len(full) - sum(bool(skipped.match(line)) for line in full) <= words <= len(full):
        raise Lost(f"{words} words of {len(full)} lines")
    for example in examples:
        if example.tags is not None:
            same("tags", len(example.tags), len(example.words))


def _texts(path: Path) -> list[str]:
    return [line.decode().lstrip("\ufeff") for line in lines_in(path.read_bytes())]


def _read_squad(folder: Path) -> None:
    questions = squad.read(folder / "a.json")
    try:
        values = [json.loads("\n".join(_texts(folder / "a.json")))]
    except json.JSONDecodeError:
        values = _records_in(folder / "a.json")
    expected = {
        (str(entry["id"]), entry["question"], paragraph["context"])
        for value in values
        for content in (value if isinstance(value, list) else [value])
        for article in content["data"]
        for paragraph in article["paragraphs"]
        for entry in paragraph["qas"]
    }
    same("questions", len(questions), len(expected))


def _records_in(path: Path) -> list:
    return [json.loads(line) for line in _texts(path) if line.strip()]


def _read_question_lines(folder: Path) -> None:
    questions = squad.read(folder / "a.jsonl", "skip")
    keys = ("id", "question", "context")
    expected = {tuple(str(row[key]) for key in keys) for row in _records_in(folder / "a.jsonl")}
    if len(questions) > len(expected):
        raise Lost(f"{len(questions)} questions read, but there are {len(expected)}")


def _read_tagged_lines(folder: Path) -> None:
    examples = records.read_words(folder / "a.jsonl", "en", (), ("O", "B-PER"), chunk_tags=True)
    expected = sum(len(row["tokens"]) for row in _records_in(folder / "a.jsonl"))
    same("words", sum(len(example.words) for example in examples), expected)


def _read_csv(folder: Path) -> None:
    examples = tables.read(folder / "a.csv", ("premise", "hypothesis", "label"))
    lines = (f"{line.removesuffix(chr(13))}\n" for line in _texts(folder / "a.csv"))
    head = next(iter(_texts(folder / "a.csv")), "")
    divider = "," if "premise" in next(csv.reader([head]), []) else ";"
    divider = "\t" if "\t" in head and divider == ";" else divider
    same("examples", len(examples), max(0, len(list(csv.reader(lines, delimiter=divider))) - 1))


def _read_pair_forms(folder: Path) -> None:
    pairs = list(sentence_pairs.read(folder / "a.txt"))
    same("pairs", len(pairs), len(_texts(folder / "a.txt")))
    sides = [f"{folder / name}" for name in ("a.en", "a.de")]
    pairs = list(sentence_pairs.read(Path("|".join(sides))))
    same("pairs of two files", len(pairs), len(_texts(folder / "a.en")))
    units = list(tmx.read(folder / "a.tmx", ("en", "de")))
    if not units or not all(isinstance(text, str) for unit in units for text in unit):
        raise Lost("no translation units, or units that are not text")


def _read_table(name: str, columns: tuple[str, ...], head: int) -> Callable[[Path], None]:
    def read(folder: Path) -> None:
        examples = tables.read(folder / name, columns)
        lines = _texts(folder / name)
        if name.endswith(".jsonl"):  # a blank line is no record
            lines = list(filter(str.strip, lines))
        same("examples", len(examples), max(0, len(lines) - head))

    return read


def _read_gold(folder: Path) -> None:
    gold = gold_alignments.read(folder / "a.txt")
    lines = _texts(folder / "a.txt")
    links = sum(len(pair.sure | pair.possible) for pair in gold)
    first = next((line for line in lines if line.strip()), "")
    if not first or re.match(r"\s*-?\d+[-p]", first):
        same("lines", len(gold), len(lines))
        items = [
            {re.sub("(?<=\\d)[-p]", " ", item, count=1) for item in line.split()} for line in lines
        ]
        pairs = [{tuple(map(int, item.split(" "))) for item in line} for line in items]
    else:
        named: dict[str, set] = {}
        for line in filter(str.strip, lines):
            name, source, target = line.split()[:3]
            named.setdefault(name, set()).add((int(source), int(target)))
        pairs = [{link for link in some if all(link)} for some in named.values()]
        same("sentence pairs", len(gold), len(pairs))
    same("links", links, sum(map(len, pairs)))


def _read_sentence_pairs(folder: Path) -> None:
    for gold in (False, True):
        pairs = list(sentence_pairs.read(folder / "a.tsv", gold))
        lines = [line.removesuffix("\r") for line in _texts(folder / "a.tsv")]
        head = bool(lines) and lines[0] in ("src\ttgt", "src\ttgt\tgold")
        same("pairs", len(pairs), len(lines) - head)


def _read_dictionary(folder: Path) -> None:
    translations = vocabulary_matching.read_dictionaries(folder / "a.en-de.txt")
    expected = set()
    for line in filter(str.strip, _texts(folder / "a.en-de.txt")):
        known, other = (side.strip() for side in line.split("\t" if "\t" in line else None))
        expected.add((folded(other), known))
    same("translations", sum(map(len, translations.values())), len(expected))


def _read_sentences(folder: Path) -> None:
    sentences = sentence_files.read(folder / "a.txt")
    same("sentences", len(sentences), sum(bool(x.strip()) for x in _texts(folder / "a.txt")))


def _read_ids(folder: Path) -> None:
    sentences = sentence_files.read_with_ids(folder / "a.tsv")
    same("sentences", len(sentences.texts), sum(bool(x.strip()) for x in _texts(folder / "a.tsv")))
    places = sentence_files.read_indices(folder / "places", 5, 3)
    same("places", len(places), len(_texts(folder / "places")))
    pairs = sentence_files.read_pairs(folder / "pairs", sentences.ids or [], ["t1", "t2", "t3"])
    same("pairs", len(pairs), len({line.strip() for line in _texts(folder / "pairs")}))


def _read_document(folder: Path) -> None:
    for splitter in (None, splitting.split):
        document = documents.read(folder / "a.txt", splitter=splitter)
        letters = sum(len("".join(text.split())) for text in document.texts)
        lines = [line.strip() for line in _texts(folder / "a.txt")]
        expected = sum(len("".join(line.split())) for line in lines if line != RANGE)
        if not document.ids:  # the column of ids is not part of the text
            same("letters", letters, expected)


class _Letters:
    """An embedder without a model: a vector counts the letters of a text."""

    truncated = 0

    def embed(self, texts: list[str], show_progress_bar: bool | None = None) -> np.ndarray:
        rows = [np.bincount([ord(letter) % 32 for letter in text], minlength=32) for text in texts]
        return np.array([rows], np.float32)


def split_at_stops(paragraph: str) -> list[str]:
    """A splitter of a user that fails on some paragraphs."""
    if "9" in paragraph:
        return [9]  # type: ignore[list-item]
    return [paragraph[: paragraph.index(".")], paragraph[paragraph.index(".") :]]


def _align_documents(folder: Path) -> None:
    """Aligns two pairs of documents by the command, and compares the numbers of its outputs."""
    out = folder / "out"
    files = [f"--output={out}/o", f"--ladder={out}/ladder", f"--html={out}/h.html"]
    flags = ["--checkpoint=none", *files, "--scores", f"--source={folder}/a.en,{folder}/b.en"]
    flags.append(f"--target={folder}/a.de,{folder}/b.de")
    own = ["--paragraphs", f"--splitter={__name__}:split_at_stops"]
    for more in (["--output_format=jsonl"], ["--output_format=tmx", "--languages=en,de", *own]):
        printed, errors = io.StringIO(), io.StringIO()
        out.mkdir()
        try:
            with (
                mock.patch.object(sentence_vectors, "load_embedder", lambda flags: _Letters()),
                contextlib.redirect_stdout(printed),
                contextlib.redirect_stderr(errors),
            ):
                code = align_documents.main([*flags, *more])
            if code:
                raise ConfigError(errors.getvalue().partition("error: ")[2].rstrip("\n"))
            report = json.loads(printed.getvalue())
            content = (out / "o").read_bytes()
            units = content.count(b"\n") if "tmx" not in more[0] else len([*tmx.read(out / "o")])
            same("pairs", units, report["pairs"])
            same("rungs", (out / "ladder").read_bytes().count(b"\n"), report["pairs"])
            same("documents", len(report["documents"]), 2)
        finally:
            shutil.rmtree(out)


def _read_predictions(folder: Path) -> None:
    form = Form("[A-Z]+", "a tag")
    labels, other = prediction_files.labels(folder / "gold", folder / "predicted", form)
    same("labels", len(labels), len(_texts(folder / "gold")))
    same("predictions", len(other), len(_texts(folder / "predicted")))
    prediction_files.tags(folder / "tags", folder / "tags", form)
    prediction_files.pairs(folder / "pairs")
    prediction_files.questions(folder / "questions.json")
    content = (folder / "answers.json").read_bytes().removeprefix(b"\xef\xbb\xbf")
    same(
        "answers", len(prediction_files.answers(folder / "answers.json")), len(json.loads(content))
    )


def _encode_text(vocabulary: Vocabulary) -> None:
    """Encodes text; raises `Lost` if ids are out of range or spans are missing."""
    lines = ["The cat sleeps.", "", "一只猫", "a\u0301 \ue000"]
    ids, spans = vocabulary.encode_with_spans(lines)
    if len(spans) != len(ids.ids) or (len(ids.ids) and ids.ids.max() >= vocabulary.size):
        raise Lost("ids that the vocabulary does not have, or not one span per id")


def _read_vocabulary(folder: Path) -> None:
    (file,) = folder.iterdir()
    _encode_text(Vocabulary.load(file))


def _read_tokenizer_folder(folder: Path) -> None:
    _encode_text(tokenizer_files.read(folder))


def _read_weights(folder: Path) -> None:
    opened = hugging_face.open_folder(folder)
    for name, shape in opened.shapes.items():
        if opened.read(name).shape != shape:
            raise Lost(f"{name} does not have the shape that the header lists")
    opened.digest()


def _read_rows(folder: Path) -> None:
    store = RowStore(folder)
    for task in store.manifest.tasks:
        for split in ("train", "held_out"):
            rows = task.split(split).rows
            read = store.read(task.name, split, np.arange(rows))
            same("rows", row_kind.count_rows(read), rows)


WORKDIR = {
    "metrics.jsonl": b'{"step": 1, "train/loss": 2.5}\n{"step": 2, "eval/mmlm/en/loss": 2.0}\n',
    "run.json": b'{"languages": ["en"], "seed": 0, "step": 4, "dev": {}, "test": {}}\n',
    "sweep.json": b'{"command": "x", "config": {"train": {"steps": 2}}}\n',
    "config.json": b'{"train": {"steps": 2}, "data": {"alpha": 0.7}}\n',
    "results.json": b'{"metric": "accuracy", "config": {}, '
    b'"runs": [{"dev": {"accuracy": {"en": 1.0}}, "test": {}}]}\n',
    "layers.jsonl": b'{"layer": 1, "accuracy": 0.5}\n{"layer": 2, "accuracy": 0.75}\n',
}


def _read_workdir(folder: Path) -> None:
    runs.read(folder, "run")  # it reports damaged files, and raises no error
    finished_run(folder)
    metric_lines = metrics.read(folder)
    lines = (folder / metrics.FILE).read_bytes().splitlines()
    if not len(lines) - 1 <= len(metric_lines) <= len(lines):
        raise Lost(f"{len(metric_lines)} of {len(lines)} lines")
    runner.describe_results(folder)


OVERRIDES = b"""--config.optimizer.learning_rate=0.001
--config.data.languages=en,de,sw
--config.train.steps=20
--config.objectives.mmlm.batch_size=8
--config.model.norm=pre
--config.model.absolute_positions=True"""


def _read_config(folder: Path) -> None:
    lines = (folder / "overrides").read_text("utf-8", errors="replace").split("\n")
    overrides = [line for line in lines if line.startswith("--config.")]
    recipe = Path(__file__).parents[2] / "configs/quickstart.py"
    record(configs.load(f"{recipe}:tiny", overrides, schema))


def _read_checkpoint(folder: Path) -> None:
    checkpoint = reading.find(folder)
    checkpoint.model()
    reading.verify(checkpoint)


def every(kinds: Mapping[str, Mapping[str, bytes]]) -> list[Reader]:
    """Returns all readers; `kinds` are the files of `fuzz_inputs.make`."""
    text, pairs = TEXT.encode(), PAIRS.encode()
    json_lines = "".join(
        json.dumps({"text": line, "m": {"t": line + "\nx"}, "u": None}) + "\n"
        for line in TEXT.split("\n")
    )
    question = {"id": "1", "question": "Who?", "answers": [{"text": "cat", "answer_start": 4}]}
    squad_questions = {
        "data": [
            {
                "paragraphs": [
                    {
                        "context": "The cat sleeps.",
                        "qas": [
                            question,
                            question | {"id": "2", "answers": [], "is_impossible": True},
                        ],
                    }
                ]
            }
        ]
    }
    question_lines = "".join(
        json.dumps(
            {
                "id": name,
                "context": "The cat sleeps.",
                "question": "Who?",
                "answers": {"text": texts, "answer_start": [4] * len(texts)},
            }
        )
        + "\n"
        for name, texts in ((7, ["cat"]), ("b", []))
    ).encode()
    tagged_lines = b'{"tokens": ["The", "cat"], "ner_tags": [0, 1]}\n' * 2
    conll_words = b"# text\nThe\tDET\ncat\tNOUN\n\n-DOCSTART-\tX\n\nA\tDET\n"
    conllu = b"".join(
        b"# s\n1\tThe"
        + b"\t_" * 8
        + b"\n1-2\tx"
        + b"\t_" * 8
        + b"\n2\tcat\tc\tNOUN"
        + b"\t_" * 6
        + b"\n\n"
        for _ in range(2)
    )
    table = b'premise\thypothesis\tlabel\nA cat.\t"A ""b""."\tentailment\nNo.\tYes.\tneutral\n'
    jsonl = b'{"text": "A", "label": "x"}\n{"label": 1, "text": "B"}\n'
    tags = b"NOUN\nVERB\n\nDET\nNOUN\n"
    readers = [
        *(
            Reader(f"text{ending}", {f"a.txt{ending}": packed}, _read_text(f"a.txt{ending}", 1))
            for ending, packed in _compressed(text)
        ),
        Reader("pairs", {"a.tsv": pairs}, _read_text("a.tsv", 2)),
        Reader(
            "pairs.gz",
            {"a.tsv.gz": gzip.compress(pairs, mtime=0)},
            _read_text("a.tsv.gz", 2),
            weight=1,
        ),
        Reader("pairs, some malformed", {"a.tsv": MALFORMED}, _read_text("a.tsv", 2, False)),
        Reader("text, some malformed", {"a.txt": MALFORMED}, _read_text("a.txt", 1, False)),
        Reader("lines with their places", {"a.tsv": MALFORMED}, _read_skipping),
        Reader("aligned files", {"a.en": text, "a.de": text}, _read_aligned),
        Reader("JSON lines", {"a.jsonl": json_lines.encode()}, _read_json_text("text", 1)),
        Reader("JSON lines, nested", {"a.jsonl": json_lines.encode()}, _read_json_text("m.t", 1)),
        Reader(
            "JSON lines, pairs", {"a.jsonl": json_lines.encode()}, _read_json_text("text|m.t", 2)
        ),
        Reader("CoNLL", {"a.conll": conll_words}, _read_conll),
        Reader("CoNLL-U", {"a.conll": conllu}, _read_conll),
        Reader(
            "CoNLL with ids",
            {"a.conll": UNER.encode()},
            lambda folder: _read_conll(folder, chunk_tags=True),
        ),
        Reader("CoNLL-U Plus", {"a.conll": PLUS.encode()}, _read_conll),
        Reader("CoNLL, comments or words", {"a.conll": TWEETS.encode()}, _read_conll),
        Reader("JSON lines of questions", {"a.jsonl": question_lines}, _read_question_lines),
        Reader("JSON lines of tags", {"a.jsonl": tagged_lines}, _read_tagged_lines),
        Reader("CSV", {"a.csv": CSV.encode()}, _read_csv),
        Reader(
            "sentence pairs in other forms",
            {
                "a.txt": b"the cat ||| die Katze\nyes ||| ja\n",
                "a.en": b"the cat\nyes\n",
                "a.de": b"die Katze\nja\n",
                "a.tmx": TMX.encode(),
            },
            _read_pair_forms,
        ),
        Reader("SQuAD", {"a.json": json.dumps(squad_questions).encode()}, _read_squad),
        Reader(
            "table",
            {"a.tsv": table},
            _read_table("a.tsv", ("premise|sentence1", "hypothesis", "label"), 1),
        ),
        Reader(
            "table without head", {"a.tsv": table.split(b"\n", 1)[1]}, _read_table("a.tsv", (), 0)
        ),
        Reader(
            "labelled JSON lines", {"a.jsonl": jsonl}, _read_table("a.jsonl", ("text", "label"), 0)
        ),
        Reader("gold links", {"a.txt": b"0-0 1p2 -1-3\n\n2-1 3-3\n"}, _read_gold),
        Reader("gold links, alignv2", {"a.txt": b"1 1 1 S\n1 2 3 P\n18 4 2\n"}, _read_gold),
        Reader(
            "sentence pairs",
            {"a.tsv": b"src\ttgt\tgold\nthe cat\tdie Katze\t0-0 1p1\n\na\tb\t0-0\n"},
            _read_sentence_pairs,
        ),
        Reader(
            "dictionary",
            {"a.en-de.txt": b"cat\tKatze\nCat\tKater\n\nold dog\talter Hund\ngo gehen\n"},
            _read_dictionary,
        ),
        Reader("sentences", {"a.txt": b"A cat.\n  B\n"}, _read_sentences),
        Reader(
            "document",
            {"a.txt": "One. Two is here!\n\n他来了。她走了。\n<range>\nLast\n".encode()},
            _read_document,
        ),
        Reader(
            "documents to align",
            {
                "a.en": b"v1\tThe cat sleeps. It is tired.\nv2\tA dog.\n\nv3\tBooks are here.\n",
                "a.de": "v1\tDie Katze schläft.\nv2\tEin Hund.\n\nv3\tBücher.\n".encode(),
                "b.en": b"1\tOne is here.\n2\tTwo. And three.\n3\tFour are there.\n",
                "b.de": b"1\tEins ist hier.\n2\tZwei. Und drei.\n3\tVier sind da.\n",
            },
            _align_documents,
        ),
        Reader(
            "sentences with ids",
            {"a.tsv": b"s1\tA\ns2\tB\n", "places": b"0\n4\n2\n", "pairs": b"s1\tt2\ns2\tt1\n"},
            _read_ids,
        ),
        Reader(
            "predictions",
            {
                "gold": b"A\nB\n",
                "predicted": b"B\nB\n",
                "tags": tags,
                "pairs": b"a\tb\nc\td\n",
                "questions.json": json.dumps(
                    {"data": [{"paragraphs": [{"context": "x", "qas": [question]}]}]}
                ).encode(),
                "answers.json": b'{"1": "cat", "2": ""}',
            },
            _read_predictions,
        ),
        Reader("Parquet", kinds["parquet"], _read_parquet),
        Reader("SentencePiece", kinds["sentencepiece"], _read_vocabulary),
        *(
            Reader(f"tokenizer.json, {name[5:]}", files, _read_vocabulary)
            for name, files in kinds.items()
            if name.startswith("json ")
        ),
        Reader("vocab.txt", kinds["bert"], _read_tokenizer_folder, weight=2),
        Reader("vocab.json", kinds["roberta"], _read_tokenizer_folder, weight=2),
        Reader("vocab.txt of ERNIE-M", kinds["ernie_m"], _read_tokenizer_folder, weight=2),
        Reader("safetensors", kinds["weights"], _read_weights),
        Reader("safetensors in shards", kinds["shards"], _read_weights),
        Reader("row store", kinds["rows"], _read_rows, (RowStoreError,)),
        Reader("workdir", WORKDIR, _read_workdir),
        Reader("config", {"overrides": OVERRIDES}, _read_config, named=False, weight=1),
        Reader("checkpoint", kinds["checkpoint"], _read_checkpoint, weight=1),
    ]
    return readers


def _compressed(text: bytes) -> list[tuple[str, bytes]]:
    frames = b"".join(zstandard.compress(part) for part in (text[:100], text[100:]))
    return [
        ("", text),
        (".gz", gzip.compress(text, mtime=0)),
        (".xz", lzma.compress(text)),
        (".zst", frames),
    ]


def fill(folder: Path, files: Mapping[str, bytes]) -> None:
    """Writes the files into an empty folder."""
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def files_of(folder: Path) -> dict[str, bytes]:
    """Reads the files of a folder, by path."""
    return {
        os.path.relpath(path, folder): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
