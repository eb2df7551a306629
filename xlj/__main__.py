"""Entry point of all commands: `xlj train ...` runs `python -m xlj.train ...`."""

import ast
import difflib
import importlib
import os
import sys
from pathlib import Path

COMMANDS = (
    "prepare",
    "train",
    "adapt",
    "finetune",
    "predict",
    "convert",
    "embed",
    "align",
    "align-documents",
    "retrieve",
    "search",
    "mine",
    "score",
    "evaluate",
    "card",
    "sweep",
    "report",
    "plan",
    "bench",
    "recipes",
    "completion",
)


def main() -> int:
    """Runs the command that the first argument names; returns its exit code."""
    name, *arguments = sys.argv[1:] or ["--help"]
    if name in ("-h", "--help", "--version"):
        return _print(_version() if name == "--version" else _help())
    if name not in COMMANDS:
        close = difflib.get_close_matches(name, COMMANDS, n=1)
        hint = f"did you mean {close[0]}?" if close else f"commands: {', '.join(COMMANDS)}"
        print(f"error: there is no command {name!r}; {hint}", file=sys.stderr)
        return 2
    sys.argv = [f"{sys.argv[0]} {name}", *arguments]
    sys.path.insert(0, os.getcwd())  # makes the user's modules importable, as `python -m` does
    code: int = importlib.import_module(module_of(name)).main()
    return code


def module_of(name: str) -> str:
    """Returns the module of a command."""
    return f"xlj.{_stem(name)}"


def _stem(name: str) -> str:
    return name.replace("-", "_")


def _print(text: str) -> int:
    """Prints a text; returns 0, or 141 if the reader has closed standard output (`| head`)."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        # Python flushes standard output again when it exits, which must not fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    return 0


def _help() -> str:
    lines = ["xlj COMMAND ...   (xlj COMMAND --help describes a command)", ""]
    for name in COMMANDS:  # the files are parsed, since importing them would be slow
        module = ast.parse(Path(__file__).with_name(f"{_stem(name)}.py").read_text("utf-8"))
        lines.append(f"  {name:15} {(ast.get_docstring(module) or '').splitlines()[0]}")
    return "\n".join(lines)


def _version() -> str:
    from xlj import __version__

    return f"xlj {__version__}"


if __name__ == "__main__":
    raise SystemExit(main())
