"""Recipes by name: the files of configs/, which a wheel carries as xlj/recipes/."""

import contextlib
import difflib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import ml_collections

from xlj.config.fields import ConfigError
from xlj.config.objectives.options import registered

_PACKAGE = Path(__file__).parents[1]


def folder() -> Path:
    """Where the recipes are: in an installed wheel, else in the clone."""
    packaged = _PACKAGE / "recipes"
    return packaged if packaged.is_dir() else _PACKAGE.parent / "configs"


def find(file: str) -> str:
    """The config file that `FILE[:VARIANT]` or `NAME[:VARIANT]` means, with the variant.

    A file that is there is taken as it is. Else the name is one of a recipe, `quickstart` or
    `finetune/udpos`; `configs/quickstart.py` is the same one, wherever the command is called.

    Raises:
      ConfigError: if there is neither; the nearest recipe is offered.
    """
    path, colon, variant = file.partition(":")
    if Path(path).is_file():
        return file
    name = path.removeprefix("configs/").removesuffix(".py")
    recipe = folder() / f"{name}.py"
    if folder().resolve() in recipe.resolve().parents and recipe.is_file():
        return f"{recipe}{colon}{variant}"
    close = difflib.get_close_matches(name, names(), n=1)
    hint = f"did you mean {close[0]}?" if close else f"the recipes are in {folder()}"
    raise ConfigError(f"--config={file}: there is no such file, nor a recipe of that name; {hint}")


def names() -> list[str]:
    """All recipes, as `find` takes them; sweeps (`sweeps/NAME`) among them."""
    files = sorted(folder().rglob("*.py"))
    return [file.relative_to(folder()).with_suffix("").as_posix() for file in files]


def read(name: str) -> ml_collections.ConfigDict:
    """The ConfigDict of a recipe, or of a config file of one's own, to be changed and then run.

    Args:
      name: `quickstart`, `xlm_e:tiny`, `finetune/udpos:phrasebook` or `my/config.py`.

    Raises:
      ConfigError: if there is none, or it has no such variant.
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
def importable(beside: Path) -> Iterator[None]:
    """Lets a file import those beside it, a folder, and xlj's recipes; the next may have others of
    the same names. Where they have objectives in them, they stay importable: a run and its
    processes need them."""
    before, places = set(sys.modules), (str(beside), str(folder()))
    sys.path.insert(0, places[0])
    sys.path.append(places[1])
    try:
        yield
    finally:
        inside = {Path(place).resolve() for place in places}
        found = [
            name
            for name in sys.modules.keys() - before
            if (file := getattr(sys.modules[name], "__file__", None))
            and Path(file).resolve().parent in inside
        ]
        if not {type(options).__module__ for options in registered().values()} & set(found):
            sys.path.remove(places[0])
            del sys.path[len(sys.path) - 1 - sys.path[::-1].index(places[1])]  # the last one
            for name in found:
                del sys.modules[name]
