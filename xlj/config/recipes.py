"""Finds recipes by name: the files of configs/, which a wheel contains as xlj/recipes/."""

import contextlib
import difflib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import ml_collections

from xlj.config.fields import ConfigError
from xlj.config.objectives import registered

_PACKAGE = Path(__file__).parents[1]


def folder() -> Path:
    """Returns the folder of the recipes: that of an installed wheel, or `configs/` of a clone."""
    packaged = _PACKAGE / "recipes"
    return packaged if packaged.is_dir() else _PACKAGE.parent / "configs"


def find(file: str) -> str:
    """Resolves `FILE[:VARIANT]` or `NAME[:VARIANT]` to a config file with the variant.

    An existing file has precedence. Otherwise the name is that of a recipe, such as `quickstart` or
    `finetune/udpos`; `configs/quickstart.py` names the same recipe from any working directory.

    Raises:
      ConfigError: if there is no such file or recipe (suggests the nearest recipe), or the file is
        JSON.
    """
    path, colon, variant = file.partition(":")
    if Path(path).is_file():
        if Path(path).suffix == ".json":
            raise ConfigError(
                f"--config={file}: a config is a Python file (.py), such as those in {folder()}; "
                "config.json in the folder of a run only records its values"
            )
        return file
    name = path.removeprefix("configs/").removesuffix(".py")
    recipe = folder() / f"{name}.py"
    if folder().resolve() in recipe.resolve().parents and recipe.is_file():
        return f"{recipe}{colon}{variant}"
    close = difflib.get_close_matches(name, names(), n=1)
    hint = f"did you mean {close[0]}?" if close else f"the recipes are in {folder()}"
    raise ConfigError(f"--config={file}: there is no such file or recipe; {hint}")


def names() -> list[str]:
    """Returns the names of all recipes, including sweeps (`sweeps/NAME`), for `find`."""
    files = sorted(folder().rglob("*.py"))
    return [file.relative_to(folder()).with_suffix("").as_posix() for file in files]


def read(name: str) -> ml_collections.ConfigDict:
    """Returns the ConfigDict of a recipe or of your own config file, which you can change and run.

    Args:
      name: `quickstart`, `xlm_e:tiny`, `finetune/udpos:phrasebook` or `my/config.py`.

    Raises:
      ConfigError: if there is no such recipe or variant.
    """
    path, _, variant = find(name).partition(":")
    with importable(Path(path).parent):
        spec = importlib.util.spec_from_file_location(Path(path).stem, path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        config: ml_collections.ConfigDict = module.get_config(variant)
    return config


@contextlib.contextmanager
def importable(parent: Path) -> Iterator[None]:
    """Context in which the modules in a config file's folder and xlj's recipes can be imported.

    When the context ends, the imported modules are removed from `sys.modules`, since the next
    config file may import other modules with the same names. If an imported module registered an
    objective, all modules remain importable, because the run and its processes need them.
    """
    before, folders = set(sys.modules), (str(parent), str(folder()))
    sys.path.insert(0, folders[0])
    sys.path.append(folders[1])
    try:
        yield
    finally:
        inside = {Path(path).resolve() for path in folders}
        imported = [
            name
            for name in sys.modules.keys() - before
            if (file := getattr(sys.modules[name], "__file__", None))
            and Path(file).resolve().parent in inside
        ]
        if not {type(options).__module__ for options in registered().values()} & set(imported):
            sys.path.remove(folders[0])
            del sys.path[len(sys.path) - 1 - sys.path[::-1].index(folders[1])]  # the last one
            for name in imported:
                del sys.modules[name]
