"""Writes a small row store and a small checkpoint in the current formats.

    python tests/formats/make_formats.py

Run it after an increase of a format number: it adds an archive of the new format. It never replaces
an existing archive, because later versions of xlj must read what earlier versions wrote.
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
    """The ConfigDict of the smallest possible run."""
    from xlj import config as schema

    settings = schema.default()
    settings.data.languages, settings.data.mono = "en,de", f"{text}/{{language}}.txt"
    settings.data.cache, settings.data.vocabulary = str(cache), f"{text}/vocabulary.model"
    settings.data.length, settings.data.held_out_share, settings.data.workers = 16, 0.1, 1
    settings.model.layers, settings.model.hidden, settings.model.heads = 1, 4, 1
    settings.model.intermediate, settings.model.positions = 4, 18
    settings.objectives.mmlm.batch_size, settings.objectives.tlm.batch_size = 8, 0
    settings.train.steps, settings.train.eval_rows, settings.train.log_every = STEPS, 0, 100
    settings.optimizer.schedule = "constant"
    return settings


def main() -> None:
    """Writes the archives that do not exist yet."""
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
        stored = reading.find(Path(scratch) / "run")
        record = {
            "rows": {"name": store.path.name, "content_hash": store.manifest.content_hash},
            "checkpoint": {"digest": stored.digest(), "digests": stored.meta["digests"]},
        }
        if not rows.exists():
            _pack(rows, Path(scratch) / "cache", record["rows"])
        if not checkpoint.exists():
            _pack(checkpoint, stored.folder, record["checkpoint"])


def _pack(target: Path, folder: Path, expected: dict) -> None:
    record = json.dumps(expected, indent=1).encode()
    content = {
        f"content/{file.relative_to(folder)}": file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }
    with tarfile.open(target, "w:xz") as archive:
        for name, body in (content | {"expected.json": record}).items():
            entry = tarfile.TarInfo(name)
            entry.size = len(body)
            archive.addfile(entry, io.BytesIO(body))
    print(f"{target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
