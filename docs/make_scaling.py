"""Writes the tables of docs/experiments/compiled_steps.md: bounds of each recipe on GPUs and TPUs.

    python docs/make_scaling.py [--only=xlm_r,h100] [--folder=build/scaling] [--again=FOLDER]

The script compiles every recipe for every topology. It needs the compilers (`pip install -e
'.[cuda]'` and `'.[tpu]'`) but no chips, and takes hours on one core. The figures are saved in
`--folder`, so the same command resumes. Saved figures are not replaced: after a change of the
code, use another folder. With `--again=OLD_FOLDER`, the script compiles the meshes and microbatches
that a search chose for OLD_FOLDER, and does not search again. If `--folder` has no figures for a
row of the page, the row does not change.
"""

import argparse
import json
import sys
import time
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from xlj.tools.planning import topologies  # noqa: E402

RECIPES = (
    *("xlm", "xlm_r_base", "xlm_r_large", "xlm_r_tlm", "infoxlm", "xlm_align", "meta_xlm"),
    *("meta_xlm_minilm", "xlm_e", "ernie_m_small", "ernie_m_base", "ernie_m_15", "ernie_m_large"),
    *("ernie_m_retrieval", "modernbert_base", "mmbert_small"),
    *("mmbert_base", "eurobert_210m", "modern_xlm_e", "modern_xlm_align"),
)
"""The recipes that reproduce papers. ernie_m_ablations is left out, because it trains ernie_m_base
with some of the objectives."""
NEEDS_NO_FILE = {
    "meta_xlm": {"data.vocabulary": "", "data.vocabulary_size": 250_002},
    "modern_xlm_align": {"init_from": "", "data.vocabulary_size": 256_000},
}
"""Keys that replace a vocabulary or a model on disk by the size of the vocabulary, by recipe."""
TOPOLOGIES = ("h100:1x8", "h100:8x8", "v5e:16x16", "v6e:16x16")
WEAK = {"h100:1x8": 8, "h100:8x8": 8, "h100:64x8": 8, "v5p:2x2x4": 4, "v5p:4x8x16": 4}
"""For each topology, the number of devices that share a copy of the parameters (`mesh.fsdp`). These
are the devices of a host, or of one side of a torus."""
WEAK_ROWS = 32
"""The number of rows per device."""
PAGE = ROOT / "docs" / "experiments" / "compiled_steps.md"
_GIB = 2**30


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only",
        default="",
        help="compile only recipes and topologies that start with these texts, as RECIPE,TOPOLOGY",
    )
    parser.add_argument(
        "--folder",
        type=Path,
        default=ROOT / "build" / "scaling",
        help="folder for the figures [build/scaling]",
    )
    parser.add_argument(
        "--again", type=Path, help="an older --folder, whose choices are compiled without a search"
    )
    flags = parser.parse_args()
    topologies.use_compilers()
    flags.folder.mkdir(parents=True, exist_ok=True)
    recipe, _, chips = flags.only.partition(",")
    for topology in TOPOLOGIES:
        for name in RECIPES:
            path = flags.folder / f"{name}-{topology.replace(':', '-')}.json"
            if name.startswith(recipe) and topology.startswith(chips) and not path.exists():
                before = read_choice(flags.again / path.name) if flags.again else None
                write_record(path, partial(plan_recipe, name, topology, before))
    for topology in WEAK:
        path = flags.folder / f"weak-{topology.replace(':', '-')}.json"
        if "weak".startswith(recipe) and topology.startswith(chips) and not path.exists():
            write_record(path, partial(plan_weak_scaling, topology))
    PAGE.write_text(page(flags.folder), "utf-8")


def write_record(path: Path, work) -> None:
    """Writes the result of `work()` as JSON, and prints how long it took."""
    import jax

    from xlj.io import atomic

    began = time.monotonic()
    record = work()
    atomic.write(path, (json.dumps(record, indent=1) + "\n").encode())
    jax.clear_caches()
    print(f"{path.name}: {time.monotonic() - began:.0f} s", flush=True)


def load_recipe(name: str, changes: dict[str, object]):
    """Returns the config of a recipe, with durations in steps, and the expected sizes of rows."""
    from xlj import config as schema
    from xlj.cli import configs
    from xlj.training import duration_steps
    from xlj.training.memory import expected_sizes

    overrides = [f"--config.{key}={value}" for key, value in changes.items()]
    config = configs.load(str(ROOT / "configs" / f"{name}.py"), overrides, schema)
    config, _ = duration_steps.resolve(config, None)
    return config, expected_sizes(config)


def read_choice(path: Path):
    """Returns the choice in a record file; None if there is none."""
    record = json.loads(path.read_text("utf-8")) if path.exists() else {}
    return record.get("choice")


def plan_recipe(name: str, topology: str, before: dict[str, object] | None) -> dict[str, object]:
    """Computes the figures of a recipe on a topology.

    Args:
      before: the choice to compile; None to search for the first choice that fits.

    Returns:
      The choice and the figures of each phase ("choice", "phases"), or the reason that there are
      none ("why").
    """
    from xlj.config import ConfigError
    from xlj.tools.planning import figures, search
    from xlj.tools.planning.programs import DoesNotFit

    config, sizes = load_recipe(name, NEEDS_NO_FILE.get(name, {}))
    parsed_topology = topologies.parse(topology)
    try:
        if before:
            choice, known = search.Choice(**before), {}
        else:
            best, *_ = search.search(config, sizes, parsed_topology, try_all=False)
            if not best.fits:
                return {"why": "nothing that was tried fits"}
            choice, known = best.choice, {search.find_largest_phase(config, sizes): best.figures}
        phase_figures = figures.of_run(choice.of(config), sizes, parsed_topology, known)
    except (ConfigError, DoesNotFit) as error:
        return {"why": str(error)}
    return {"choice": choice._asdict(), "phases": [each.record() for each in phase_figures]}


def plan_weak_scaling(topology: str) -> dict[str, object]:
    """Computes the figures and the theoretical communication of XLM-R base on a topology, with
    `WEAK_ROWS` rows per device."""
    from xlj.tools.planning import figures, theory

    parsed_topology = topologies.parse(topology)
    config, sizes = load_recipe(
        "xlm_r_base",
        {
            "objectives.mmlm.batch_size": WEAK_ROWS * parsed_topology.size,
            "mesh.fsdp": WEAK[topology],
            "model.remat": "all",
            "train.gradient_accumulation_steps": 1,
        },
    )
    phase_figures = figures.of_phase(config, sizes, parsed_topology, 0)
    return {
        "figures": phase_figures.record(),
        "theory": theory.sent(config, sizes, parsed_topology.size),
    }


def page(folder: Path) -> str:
    """Returns the text of the page, with the tables from the figures in a folder."""
    text = PAGE.read_text("utf-8")
    for mark, made_rows in (("recipes", recipe_rows), ("weak", weak_rows)):
        begin, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->"
        before, _, rest = text.partition(begin)
        old, _, after = rest.partition(end)
        lines = made_rows(folder, old.splitlines())
        text = before + begin + "\n" + "\n".join(lines) + "\n\n" + end + after
    return text


def rows_of(lines: list[str], *cells: str) -> list[str]:
    """Returns the rows of a table whose first cells are `cells`.

    Of a cell with a comma (recipe, step), only the part before the comma is compared.
    """

    def first(line: str) -> tuple[str, ...]:
        all_cells = [cell.strip().partition(",")[0] for cell in line.split("|")[1:]]
        return tuple(all_cells[: len(cells)])

    return [line for line in lines if first(line) == cells]


def recipe_rows(folder: Path, old: list[str]) -> list[str]:
    """Returns the lines of the table of recipes, with a row for each phase.

    Args:
      folder: the folder with the figures.
      old: the lines of the present table, for rows without figures.
    """
    lines = [
        "| recipe, from step | topology | mesh.fsdp, remat, accumulation | GiB per device | "
        "traffic, GB | "
        "sent, GB (fast, slow) | least time of a step | bottleneck | MFU at most | tokens/s | "
        "days of the run |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in RECIPES:
        for topology in TOPOLOGIES:
            path = folder / f"{name}-{topology.replace(':', '-')}.json"
            if not path.exists():
                lines += rows_of(old, name, topology)
                continue
            record = json.loads(path.read_text("utf-8"))
            if "why" in record:
                lines.append(f"| {name} | {topology} | {record['why']} |" + " |" * 8)
                continue
            choice, phases = record["choice"], record["phases"]
            gather = ", gather=step" if choice.get("gather") == "step" else ""
            choice_text = f"{choice['fsdp']}{gather}, {choice['remat']}, {choice['accumulation']}"
            days = sum(phase["days"] for phase in phases)
            for number, phase in enumerate(phases):
                sent = [
                    sum(each[kind] for each in phase["collectives"]) for kind in ("fast", "slow")
                ]
                cells = [
                    f"{name}, {phase['start']:,}",
                    topology,
                    choice_text,
                    f"{phase['memory']['peak'] / _GIB:.1f} of {phase['memory']['limit'] / _GIB:.1f}"
                    + ("" if phase["memory"]["fits"] else ": **does not fit**"),
                    f"{sum(phase['traffic'].values()) / 1e9:,.0f}",
                    f"{sent[0] / 1e9:.1f}, {sent[1] / 1e9:.1f}",
                    f"{phase['step_seconds']:.3f} s",
                    phase["bottleneck"],
                    "no gradient" if phase["mfu"] is None else f"{phase['mfu']:.0%}",
                    f"{phase['tokens_per_second'] / 1e6:.2f} M",
                    "" if number else f"{days:,.1f}",
                ]
                lines.append("| " + " | ".join(cells) + " |")
    return lines


def weak_rows(folder: Path, old: list[str]) -> list[str]:
    """Returns the lines of the table of weak scaling; the arguments are those of `recipe_rows`."""
    lines = [
        "| topology | memory beyond the state, GiB | gathered, GB (theory) | "
        "reduced and scattered, GB (theory) | exchanged, GB (theory) | "
        "summed over copies, GB (theory) | least time of a step | MFU at most |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for topology in WEAK:
        path = folder / f"weak-{topology.replace(':', '-')}.json"
        if not path.exists():
            lines += rows_of(old, topology)
            continue
        record = json.loads(path.read_text("utf-8"))
        phase_figures = record["figures"]
        cells = [topology, f"{phase_figures['memory']['working'] / _GIB:.2f}"]
        for kind in ("all-gather", "reduce-scatter", "all-to-all", "all-reduce"):
            same = [each for each in phase_figures["collectives"] if each["kind"] == kind]
            sent = sum(each["fast"] + each["slow"] for each in same)
            cells.append(f"{sent / 1e9:.2f} ({record['theory'][kind] / 1e9:.2f})")
        cells += [f"{phase_figures['step_seconds']:.3f} s", f"{phase_figures['mfu']:.0%}"]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


if __name__ == "__main__":
    main()
