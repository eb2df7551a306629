"""Prints the tests of changed files: pytest $(python tests/related.py [COMMIT])

These are the tests of all files that differ from COMMIT [HEAD], and changed test modules. Mutation
tests (`tests/mutants`) find the tests of a file here too, so that no list has to be maintained.
"""

from __future__ import annotations

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def tests_of(root: Path, file: str) -> list[str]:
    """Returns test modules and folders of a file of `xlj/`, the most relevant first.

    These are the test module with the name of the file, or of its folder (`test_mlm.py` for
    `objectives/mlm/loss.py`), test modules that import the file, and its area: the folder that
    mirrors the subpackage. A subpackage without such a folder is tested by the modules that import
    anything of it.

    Args:
      root: the folder of the repository.
      file: path below `root`, such as `xlj/models/norms.py`, or a recipe.

    Returns:
      Paths below `root`, without duplicates.
    """
    if file.startswith("configs/"):
        return ["tests/test_recipe_values.py", "tests/test_recipes.py"]
    module = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    package, _, name = module.removeprefix("xlj.").rpartition(".")
    modules = sorted((root / "tests").rglob("test_*.py"))
    own = f"{package}.{name}", package
    namesakes = [p for p in modules if f"{_area(p)}.{p.stem.removeprefix('test_')}" in own]
    importers = [path for path in modules if module in imports(path)]
    area = root / "tests" / package.replace(".", "/")
    while area.name != "tests" and not area.is_dir():
        area = area.parent
    if area.name != "tests":
        rest = [area]
    else:
        prefix = f"xlj.{package}." if package else f"{module}."
        rest = [p for p in modules if any(f"{m}.".startswith(prefix) for m in imports(p))]
    paths = [*namesakes, *importers, *rest]
    return list(dict.fromkeys(str(path.relative_to(root)) for path in paths))


@functools.cache
def imports(path: Path) -> frozenset[str]:
    """Returns the full names of all modules, and names in modules, that a file imports."""
    return frozenset(_imports(ast.parse(path.read_text("utf-8"))))


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _area(path: Path) -> str:
    """Returns the subpackage that the folder of a test module mirrors: `data.rows`."""
    return ".".join(path.parts[path.parts.index("tests") + 1 : -1])


def changed(commit: str) -> list[str]:
    """Returns the files that differ from a commit, and files that git does not track."""
    files = []
    for command in (
        ["diff", "--name-only", commit],
        ["ls-files", "--others", "--exclude-standard"],
    ):
        printed = subprocess.check_output(["git", *command], cwd=ROOT, text=True)
        files += [file for file in printed.splitlines() if (ROOT / file).exists()]
    return files


def main() -> None:
    paths = dict[str, None]()
    for file in changed(*sys.argv[1:] or ["HEAD"]):
        if file.startswith("tests/") and Path(file).name.startswith("test_"):
            paths[file] = None
        elif file.startswith(("xlj/", "configs/")) and file.endswith(".py"):
            paths |= dict.fromkeys(tests_of(ROOT, file))
    print("\n".join(paths))


if __name__ == "__main__":
    main()
