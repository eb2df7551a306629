"""Writes a tiny row store and a checkpoint as today's code makes them.

    python tests/formats/make_formats.py

They are kept for ever, so that what later code reads is what was written. Run it when the format of
one is raised, which adds a file; one that is there already stays as it is.
"""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
os.environ.setdefault("JAX_PLATFORMS", "cpu")

LINES = [f"the {a} {b} {c}." for a in ("cat", "dog") for b in ("sees", "has") for c in ("us", "it")]
STEPS = 2


def config(text: Path, cache: Path):
    """The ConfigDict of a run that is as small as one can be."""
    from xlj import config as schema

    made = schema.default()
    made.data.languages, made.data.mono = "en,de", f"{text}/{{language}}.txt"
    made.data.cache, made.data.vocabulary = str(cache), f"{text}/vocabulary.model"
    made.data.length, made.data.held_out_share, made.data.workers = 16, 0.1, 1
    made.model.layers, made.model.hidden, made.model.heads = 1, 4, 1
    made.model.intermediate, made.model.positions = 4, 18
    made.objectives.mmlm.batch_rows, made.objectives.tlm.batch_rows = 8, 0
    made.train.steps, made.train.eval_rows, made.train.log_every = STEPS, 0, 100
    made.optimizer.schedule = "constant"
    return made


def main() -> None:
    """Makes what is not there yet."""
    import sentencepiece

    from xlj.checkpoints import reading
    from xlj.config import parse
    from xlj.data.rows import store as stores
    from xlj.data.rows.preparing import prepare_rows
    from xlj.training import loop, start

    rows = HERE / f"rows_{stores.FORMAT}.tar.xz"
    checkpoint = HERE / f"checkpoint_{reading.FORMAT}.tar.xz"
    with tempfile.TemporaryDirectory(prefix="xlj-formats-") as scratch:
        text = Path(scratch) / "text"
        text.mkdir()
        for language in ("en", "de"):
            (text / f"{language}.txt").write_text("\n".join(LINES * 4) + "\n")
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(LINES * 9),
            model_prefix=str(text / "vocabulary"),
            vocab_size=40,
            hard_vocab_limit=False,
            normalization_rule_name="identity",
            minloglevel=2,
        )
        parsed = parse(config(text, Path(scratch) / "cache"))
        store = prepare_rows(parsed)
        loop.train(start.prepare(parsed, Path(scratch) / "run", store))
        found = reading.find(Path(scratch) / "run")
        record = {
            "rows": {"name": store.path.name, "content_hash": store.manifest.content_hash},
            "checkpoint": {"digest": found.digest(), "digests": found.meta["digests"]},
        }
        if not rows.exists():
            _pack(rows, Path(scratch) / "cache", record["rows"])
        if not checkpoint.exists():
            _pack(checkpoint, found.folder, record["checkpoint"])


def _pack(target: Path, folder: Path, expected: dict) -> None:
    record = json.dumps(expected, indent=1).encode()
    content = {
        f"content/{file.relative_to(folder)}": file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }
    with tarfile.open(target, "w:xz") as packed:
        for name, body in (content | {"expected.json": record}).items():
            entry = tarfile.TarInfo(name)
            entry.size = len(body)
            packed.addfile(entry, io.BytesIO(body))
    print(f"{target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
