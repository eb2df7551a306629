"""All commands and code in README.md, the tutorials and a notebook run, in order, in one folder.

The tests run the text of the pages, but train fewer steps. Code that loads an export with
transformers runs only if transformers is installed (`.[parity]`).
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import notebooks
import pytest
from xla_flags import with_devices

from xlj import phrasebook

ROOT = Path(__file__).parents[1]
REAL = ROOT / "build/real/e5"
TUTORIALS = sorted((ROOT / "docs/tutorials").glob("*.md"))

SHORTER = {  # flags to add to commands that begin like this; None skips a command
    "pip install": None,  # was run before the tests
    "hf download": None,  # needs a network; real/test_real_figures runs the code that uses it
    "curl": None,
    "xlj train": "--config.train.steps=6 --config.optimizer.warmup_steps=2"
    " --config.train.checkpoint_every=6 --config.train.eval_every=6 --config.train.eval_rows=32",
    "xlj adapt": "--steps=6 --config.train.eval_rows=32",
    "xlj finetune": "--config.train.steps=0.05ep --config.train.eval_every=100%",
    "tensorboard": "--inspect",  # reads the events and exits
}
SMALL_VOCABULARY = "--config.data.vocabulary_size=1000"  # 16,384 pieces need more text


def blocks(page):
    """Yields (kind, text) of each block to run: "shell" (one command) or "python"."""
    text = page.read_text("utf-8")
    block = r"^```(\w*)\n((?:.*\n)*?)```$|^    (\S(?:.*\\\n)*.*)$"
    for match in re.finditer(block, text, re.MULTILINE):
        language, code, command = match.groups()
        if language == "python":
            yield language, code
        elif command:
            yield from (("shell", part) for part in command.replace("\\\n", " ").split(" && "))


def run(kind, text, folder, changes=SHORTER):
    """Runs a block in `folder`, or writes it to the file that its first line (`# FILE.py`) has."""
    if file := re.match(r"# (\S+\.py)\n", text):
        (folder / file[1]).write_text(text, encoding="utf-8")
        return
    if "transformers" in text and not importlib.util.find_spec("transformers"):
        return
    if 'xlj.load("e5")' in text:
        return
    command = [sys.executable, "-c", text]
    if kind == "shell":
        short = text.replace("python -m xlj.", "xlj ")
        added = next((more for start, more in changes.items() if short.startswith(start)), "")
        if added is None:
            return
        command = ["bash", "-c", f"{text} {added}"]
    binaries = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, "PATH": binaries, "PYTHONPATH": str(ROOT), "XLA_FLAGS": with_devices(1)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{text}\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"


@pytest.fixture
def folder(tmp_path):
    """A folder like a clone, with the recipes."""
    shutil.copytree(ROOT / "configs", tmp_path / "configs")
    return tmp_path


def test_blocks_yields_commands_and_code(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "text\n\n    pip install x && a --b=1 \\\n        --c=2\n    second\n\n```\noutput\n```\n\n"
        "1. a list\n   goes on\n\n```python\n# f.py\nif x:\n    y\n```\n",
        "utf-8",
    )
    expected = [("shell", "pip install x"), ("shell", "a --b=1          --c=2"),
                ("shell", "second"), ("python", "# f.py\nif x:\n    y\n")]  # fmt: skip
    assert list(blocks(page)) == expected


@pytest.mark.parametrize(
    "page",
    [
        # These tutorials train two encoders, and the real one.
        pytest.param(
            page,
            marks=getattr(
                pytest.mark, "extra" if page.stem in ("sentences", "adapting") else "slow"
            ),
        )
        for page in TUTORIALS
    ],
    ids=lambda page: page.stem,
)
def test_a_tutorial_runs(page, folder):
    if page.stem == "adapting":
        prepare_downloads(folder)
    for kind, text in blocks(page):
        run(kind, text, folder)


def prepare_downloads(folder):
    """Writes files in place of those that the tutorial downloads."""
    if not REAL.is_dir():
        pytest.skip(f"{REAL} is missing: run python tests/real/make_folder.py")
    (folder / "e5").symlink_to(REAL)
    pairs = ["\t".join(pair) for pair in phrasebook.pair_lines("en-sw")]
    (folder / "mafand.tsv").write_text("\n".join(["en\tyor", *pairs[:400]]) + "\n", "utf-8")
    for side, name in enumerate(("test.en", "test.yo")):
        lines = [pair.split("\t")[side] for pair in pairs[400:450]]
        (folder / name).write_text("\n".join(lines) + "\n", "utf-8")


@pytest.mark.slow
def test_the_notebook_of_an_adaptation_prints_what_its_comments_say(tmp_path):
    notebooks.check("adapt.ipynb", tmp_path)


@pytest.mark.slow
def test_the_readme_runs(folder):
    """Its commands read files that code in the tutorials writes."""
    for name in ("quickstart", "own_text"):
        code_blocks = [text for kind, text in blocks(ROOT / f"docs/tutorials/{name}.md")
                if kind == "python" and "phrasebook" in text]  # fmt: skip
        assert len(code_blocks) == 1
        run("python", code_blocks[0], folder)
    for name, other in (("sw.txt", "yo.txt"), ("en-sw.tsv", "en-yo.tsv")):
        shutil.copy(folder / "corpus" / name, folder / "corpus" / other)
    for side in ("labels", "predictions"):
        (folder / side / "pawsx").mkdir(parents=True)
        (folder / side / "pawsx/test-en.tsv").write_text("0\n1\n")
    readme_blocks = [block for block in blocks(ROOT / "README.md") if block != ("shell", "pytest")]
    assert len(readme_blocks) > 8
    for kind, text in readme_blocks:
        if "--from=e5" in text:
            run("shell", "xlj convert export --checkpoint=runs/quickstart --output=e5", folder)
        run(kind, text + f" {SMALL_VOCABULARY}" * ("=xlm_tiny" in text), folder)
