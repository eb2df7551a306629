"""Writes docs/configs.md from the config schema and the recipes: python docs/make_configs.py"""

from __future__ import annotations

import importlib
import re
import sys
import typing
from pathlib import Path

from xlj import config as pretraining
from xlj.config import finetuning, registered, registered_optimizers
from xlj.config.optimizers import read_by_optimizer
from xlj.config.sections import read_by_objectives
from xlj.config.task import KINDS, load, read_by_kind

WHOLE_SECTIONS = ("task.", "optimizer.", "mesh.")
FILE = Path(__file__).with_name("configs.md")
RECIPES = Path(__file__).parents[1] / "configs"

HEAD = """\
# Config keys

Any key of a recipe can be set on the command line. `xlj train --help` lists the keys too.
Items of a list are separated by commas:

    xlj train --config=configs/quickstart.py --config.optimizer.learning_rate=1e-3 \\
        --config.data.languages=en,de,sw

A row is a sequence of token ids of a fixed length; a step trains on a batch of rows
([Data](data.md)). A duration is a number of steps, of tokens without padding (`3e9tok`), or of
passes over the rows (`2ep`), or of percent of the run (`10%`).

Commands check the config before any work. Each error is one line that names the key. The following
are errors:

- an unknown key (the error suggests the nearest valid name)
- a value of a wrong type or out of range
- keys that contradict each other
- a key that is set but has no effect. In the tables below, "only with" and "only if" state when a
  key has an effect

"""

BY = """
`python docs/make_configs.py` writes this page from the schema in `xlj/config/`. Do not edit the
page.

## Recipes

A recipe is a file `configs/NAME.py`. The function `get_config(variant="")` in this file starts from
`xlj.config.default()`, sets keys, and returns the config. The embedded corpus of some recipes is
xlj's phrasebook, which generates sentences in eight languages.

"""

VARIANTS = """
A variant changes some keys of a recipe. `NAME.py:VARIANT` selects a variant. `NAME.py:ONE,OTHER`
applies several variants, in this order. Every pretraining recipe has two more variants:

- `tiny` trains a small model with the objectives of the recipe on the embedded corpus, in a few
  minutes on a laptop. It is applied last.
- `modern` trains an encoder with the options of ModernBERT from scratch ([Models](models.md)).

    xlj train --config=configs/xlm_r_base.py:tiny
    xlj train --config=configs/ernie_m_ablations.py:exp3,tiny

In the file of a recipe, `VARIANTS` maps the name of each variant to a function that changes the
config:

```python
VARIANTS = {"exp3": variants.without("tlm", "btmlm")}


def get_config(variant=""):
    return variants.apply(ernie_m_base.get_config(), variant, VARIANTS)
```
"""

PHASES = """
## Phases

A phase changes some keys from a step on, such as learning rates, shares of languages or keys of
`objectives.*`. A recipe declares phases as follows:

```python
config.phases = ml_collections.ConfigDict(
    {
        "uniform": {"start_step": 1_000, "data": {"alpha": 0.0}},
        "more_masks": {"start_step": 2_000, "objectives": {"masking": {"rate": 0.2}}},
    }
)
```

Each phase inherits the keys of the phase before it. [Phases](phases.md) lists the keys that a phase
may change.
"""

TABLE = '<div class="keys" markdown>\n\n| key | default | values | meaning |\n|---|---|---|---|\n'
"""Start of a table. The class `keys` prevents line breaks in keys (docs/site.css)."""


FINETUNING = """
## Fine-tuning

`xlj finetune` reads recipes of `configs/finetune/`, which start from
`xlj.config.finetuning.default()`. [Fine-tuning](finetune.md) is the guide.

"""
FINETUNING_KEYS = """
Fine-tuning reads the sections `task`, `optimizer` and `mesh`, and these keys: {keys}. It is an
error to set another key. These defaults differ from those of pretraining:

| key | default in fine-tuning |
|---|---|
"""


def render() -> str:
    """Returns the whole page."""
    sections = "".join(_sections(pretraining.keys()))
    others = [path for path, _ in finetuning.keys() if not path.startswith(WHOLE_SECTIONS)]
    defaults = [f"| `{path}` | `{value}` |\n" for path, value in finetuning.DEFAULTS.items()]
    return "".join(
        [
            HEAD,
            f"Sections: {_links(sections)}, [phases](#phases).\n",
            BY,
            *_recipes("", "variants in addition to `modern` and `tiny`"),
            VARIANTS,
            sections,
            PHASES,
            FINETUNING,
            *_recipes("finetune/", "variants"),
            FINETUNING_KEYS.format(keys=", ".join(f"`{path}`" for path in others)),
            *defaults,
        ]
    )


def _sections(keys: typing.Iterable[tuple[str, typing.Any]]) -> typing.Iterator[str]:
    sections: dict[str, list[str]] = {}
    for path, field in keys:
        section, _, name = path.rpartition(".")
        cells = [f"`{name}`", _default(field), _values(path, field), _meaning(field)]
        cells = [_escape(cell) for cell in cells]
        sections.setdefault(section, []).append(f"| {' | '.join(cells)} |\n")
    for section, rows in sections.items():
        head = f"\n## {section or 'Keys without a section'}\n\n"
        options = registered().get(section.removeprefix("objectives."))
        about = " ".join((options.__doc__ or "").split()) + "\n\n" if options else ""
        yield f"{head}{about}{TABLE}{''.join(rows)}\n</div>\n"


def _escape(cell: str) -> str:
    """Escapes | everywhere, and < outside of code, where it would begin an HTML tag."""
    cell = re.sub(r"`[^`]*`|<", lambda part: "&lt;" if part[0] == "<" else part[0], cell)
    return cell.replace("|", "\\|")


def _links(sections: str) -> str:
    """Returns links to the sections of a part of the page."""
    names = re.findall(r"^## (.+)$", sections, re.MULTILINE)
    anchors = [name.lower().replace(".", "").replace(" ", "-") for name in names]
    links = zip(names, anchors, strict=True)
    return ", ".join(f"[{name}](#{anchor})" for name, anchor in links)


def _recipes(folder: str, variants: str) -> typing.Iterator[str]:
    yield f"| recipe | what it trains | {variants} |\n|---|---|---|\n"
    for file in sorted((RECIPES / folder).glob("*.py")):
        module = import_recipe(file.stem, folder)
        first = (module.__doc__ or "").split("\n")[0].rstrip(".")
        names = ", ".join(f"`{name}`" for name in getattr(module, "VARIANTS", {}))
        yield f"| [{file.name}](../configs/{folder}{file.name}) | {first} | {names} |\n"


def import_recipe(name: str, folder: str = "") -> typing.Any:
    """Imports the module of a recipe. A recipe may import other recipes of the same folder."""
    path = str(RECIPES / folder)
    if path not in sys.path:
        sys.path.insert(0, path)
    return importlib.import_module(name)


def _meaning(field: typing.Any) -> str:
    """Returns the documentation of a key, with the key's choices marked as code."""
    choices = "|".join(choice for choice in field.metadata.get("choices") or () if choice)
    doc: str = field.metadata["doc"]
    return re.sub(rf"(?<![\w`])({choices}):", r"`\1`:", doc) if choices else doc


def _default(field: typing.Any) -> str:
    value = field.default
    if isinstance(value, bool | int | float):
        return f"`{value}`"
    shown = ",".join(value) if isinstance(value, tuple) else value
    return f"`{shown}`" if isinstance(shown, str) and shown else "empty"


def _values(path: str, field: typing.Any) -> str:
    metadata = field.metadata
    if metadata.get("choices"):
        values = ", ".join(f"`{choice}`" for choice in metadata["choices"] if choice)
    else:
        kind = (typing.get_origin(field.type) or field.type).__name__
        names = {"tuple": "list", "str": "text", "Mapping": "sections", "bool": "true or false"}
        values = names.get(kind, kind)
        low, high = metadata.get("low"), metadata.get("high")
        if low is not None and high is not None:
            values += f", {low} to {high}"
        elif low is not None:
            values += f", at least {low}"
        values += ", or `auto`" * metadata.get("auto", False)
        if units := metadata.get("duration"):
            values += f", or with {_code(units)}"
    condition = metadata.get("used_when")
    if condition is read_by_objectives:
        readers = [name for name, options in registered().items() if path in options.reads]
        values += f"; only with the objectives {_code(readers)}"
    elif condition is read_by_optimizer:
        readers = [name for name, entry in registered_optimizers().items() if path in entry.reads]
        values += f"; only with `optimizer.name` = {_code(readers)}"
    elif condition is read_by_kind:
        readers = [kind for kind in KINDS if path.removeprefix("task.") in load(kind).reads]
        values += f"; only with `task.kind` = {_code(readers)}"
    elif condition and (condition.__doc__ or "").startswith("only"):
        values += f"; {condition.__doc__}"
    return values


def _code(names: typing.Iterable[str]) -> str:
    return " or ".join(f"`{name}`" for name in names)


if __name__ == "__main__":
    FILE.write_text(render(), encoding="utf-8")
