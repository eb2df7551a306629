"""The command `xlj`, and the public names of the package."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import xlj
from xlj import __main__ as launcher

ROOT = Path(__file__).parents[1]
MODULES = {
    file.stem.replace("_", "-")
    for file in (ROOT / "xlj").glob("*.py")
    if '__name__ == "__main__"' in file.read_text("utf-8")
} - {"--main--"}


def run(monkeypatch, capsys, *arguments):
    """Returns (exit code, output, errors) of `xlj ARGUMENTS`."""
    monkeypatch.setattr(sys, "argv", ["xlj", *arguments])
    monkeypatch.setattr(sys, "path", list(sys.path))
    code = launcher.main()
    return code, *capsys.readouterr()


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",)])
def test_help_has_a_line_for_each_command(arguments, monkeypatch, capsys):
    code, output, _ = run(monkeypatch, capsys, *arguments)
    lines = dict(line.split(maxsplit=1) for line in output.splitlines()[2:])
    assert code == 0 and set(lines) == set(launcher.COMMANDS) == MODULES
    for name, line in lines.items():
        assert importlib.import_module(launcher.module_of(name)).__doc__.startswith(line)


def test_a_command_gets_the_arguments_after_its_name(monkeypatch, capsys):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", "kept")
    monkeypatch.setenv("GLIBC_TUNABLES", "kept")
    code, output, _ = run(monkeypatch, capsys, "train", "--config=quickstart", "--check")
    assert code == 0 and '"en", "de", "fr"' in output
    code, output, errors = run(monkeypatch, capsys, "train", "--config=quikstart", "--check")
    assert (code, output) == (2, "") and "did you mean quickstart?" in errors
    code, output, errors = run(monkeypatch, capsys, "trian")
    assert (code, output) == (2, "") and errors.endswith("'trian'; did you mean train?\n")
    assert "; commands: prepare, train," in run(monkeypatch, capsys, "xyz")[2]
    assert run(monkeypatch, capsys, "--version")[1] == f"xlj {xlj.__version__}\n"


def test_help_ends_quietly_if_its_output_is_closed():
    reader, writer = os.pipe()
    os.close(reader)  # as `| head` does after its lines
    command = [sys.executable, "-m", "xlj", "--help"]
    result = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (result.returncode, result.stderr) == (141, b"")


def test_commands_do_not_replace_public_names():
    for name in MODULES:
        importlib.import_module(launcher.module_of(name))
    assert not MODULES & set(xlj.__all__)
    for name in xlj.__all__:
        value = getattr(xlj, name)
        assert value.__doc__ and (name == "__version__" or callable(value)), name
        assert name in dir(xlj)
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        xlj.lode  # noqa: B018


def test_all_files_have_the_same_version():
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    headings = re.findall(r"^## (\S+?),? ", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert f"\nversion: {xlj.__version__}\n" in citation
    assert headings[0] == xlj.__version__
    home_page = (ROOT / "docs/index.md").read_text("utf-8")
    assert set(re.findall(r"[Vv]ersion (\d\S*\d)", home_page)) == {xlj.__version__}


def test_a_notebook_beside_the_clone_imports_the_package(tmp_path):
    """Python takes a folder `xlj` without __init__.py for a package if nothing else is found."""
    (tmp_path / "xlj" / "xlj").mkdir(parents=True)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [sys.executable, "-c", "import xlj; print(xlj.__version__)"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, f"{xlj.__version__}\n"), done.stderr
