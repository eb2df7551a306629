"""README.md and the tutorials: all that they tell the reader to run runs, in order, in one folder.

Commands are taken from the pages as they stand; what trains takes fewer steps here. Code that loads
an export with transformers runs where that is installed (`.[parity]`).
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.md"))

SHORTER = {  # appended to commands that begin so, or dropped
    "pip install": None,  # was run before this test could be
    "python -m xlj.train": "--config.train.steps=6 --config.optimizer.warmup_steps=2"
    " --config.train.checkpoint_every=6 --config.train.eval_every=6 --config.train.eval_rows=32",
    "python -m xlj.adapt": "--steps=6 --config.train.eval_rows=32",
    "python -m xlj.finetune": "--config.train.epochs=0.05 --config.train.evaluations=1",
    "tensorboard": "--inspect",  # reads the events, and ends
}
LARGE_VOCABULARY = "--config.data.vocabulary_size=1000"  # 16,384 pieces want more text


def blocks(page):
    """The (kind, text) of each block to run: "shell", a command on one line, or "python"."""
    text = page.read_text("utf-8")
    block = r"^```(\w*)\n((?:.*\n)*?)```$|^    (\S(?:.*\\\n)*.*)$"
    for match in re.finditer(block, text, re.MULTILINE):
        language, code, command = match.groups()
        if language == "python":
            yield language, code
        elif command:
            yield from (("shell", part) for part in command.replace("\\\n", " ").split(" && "))


def run(kind, text, folder, changes=SHORTER):
    """Runs a block in `folder`; a Python block that begins with a file's name becomes that file."""
    if file := re.match(r"# (\S+\.py)\n", text):
        (folder / file[1]).write_text(text, encoding="utf-8")
        return
    if "transformers" in text and not importlib.util.find_spec("transformers"):
        return
    command = [sys.executable, "-c", text]
    if kind == "shell":
        added = next((more for start, more in changes.items() if text.startswith(start)), "")
        if added is None:
            return
        command = ["bash", "-c", f"{text} {added}"]
    binaries = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": binaries, "PYTHONPATH": str(ROOT), "XLA_FLAGS": ""},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


@pytest.fixture
def folder(tmp_path):
    """Where a page is followed: as a clone, with its recipes."""
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    return tmp_path


def test_commands_and_code_are_found(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "text\n\n    pip install x && a --b=1 \\\n        --c=2\n    second\n\n```\noutput\n```\n\n"
        "1. a list\n   goes on\n\n```python\n# f.py\nif x:\n    y\n```\n",
        "utf-8",
    )
    expected = [("shell", "pip install x"), ("shell", "a --b=1          --c=2"),
                ("shell", "second"), ("python", "# f.py\nif x:\n    y\n")]  # fmt: skip
    assert list(blocks(page)) == expected


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_runs(page, folder):
    for kind, text in blocks(page):
        run(kind, text, folder)


@pytest.mark.slow
def test_what_the_readme_tells_runs(folder):
    """On the files that the tutorials make."""
    for name in ("quickstart", "own_text"):
        made = [text for kind, text in blocks(ROOT / f"docs/tutorials/{name}.md")
                if kind == "python" and "phrasebook" in text]  # fmt: skip
        assert len(made) == 1
        run("python", made[0], folder)
    for side in ("labels", "predictions"):
        (folder / side / "pawsx").mkdir(parents=True)
        (folder / side / "pawsx/test-en.tsv").write_text("0\n1\n")
    to_run = [block for block in blocks(ROOT / "README.md") if block != ("shell", "pytest")]
    assert len(to_run) > 8
    for kind, text in to_run:
        run(kind, text + f" {LARGE_VOCABULARY}" * ("xlm_tiny" in text), folder)
