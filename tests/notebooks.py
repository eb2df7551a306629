"""Runs the code of a notebook without Jupyter, and compares its output with its comments."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

from xla_flags import with_devices

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs/notebooks"


def code_of(notebook):
    """Returns the code cells as a script. A line that begins with `!` runs in a shell, as in
    Jupyter; its output goes to the errors."""
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    stored = [cell["outputs"] for cell in code if cell["outputs"] or cell["execution_count"]]
    assert not stored, f"{notebook.name}: clear the outputs, they go stale"
    text = "\n".join("".join(cell["source"]) for cell in code)
    shell = r"subprocess.run({!r}, shell=True, check=True, stdout=sys.stderr)"
    lines = re.compile(r"^!((?:.*\\\n)*.*)$", re.MULTILINE)
    return "import subprocess, sys\n" + lines.sub(lambda line: shell.format(line[1]), text)


def check(name, folder):
    """Runs a notebook in a process in a folder. Its output must be what the comments behind
    `print(...)` say, up to a colon that begins an explanation."""
    code = code_of(FOLDER / name)
    binaries = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env={**os.environ, "PATH": binaries, "PYTHONPATH": str(ROOT), "XLA_FLAGS": with_devices(1)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    expected = re.findall(r"^print\(.*\)  # ([^:\n]*)", code, re.MULTILINE)
    assert done.stdout.splitlines() == expected and expected
