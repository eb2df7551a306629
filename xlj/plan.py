"""Plans a run on GPUs or TPUs that this machine does not have: its memory and time per step.

    python -m xlj.plan --config=configs/xlm_r_base.py --topology=h100:8x8 [--search] [--json=FILE]

The command compiles the train step of every phase for the topology; the chips are not needed. It
prints the memory, the operations, and the traffic to memory and between devices. From these it
computes the minimum time of a step, and estimates the actual time with rates measured on an H100.
`--search` tries meshes, recomputation and microbatches for the same batch, and prints the best
flags.

`pip install -e '.[cuda]'` installs the compiler for a100, h100, h200, b200 and rtx4090; their
topology is HOSTSxGPUS, where GPUS is the number of GPUs per host. `pip install -e '.[tpu]'`
installs the compiler for v5e and v6e (two sides of a torus, such as v5e:4x4) and v5p (three sides).
More: docs/scaling.md
"""

from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from xlj import config as schema
from xlj.cli import command, configs, outputs
from xlj.cli.parser import Parser

if TYPE_CHECKING:  # types only: a command reads its flags without JAX
    from xlj.data.rows.store import RowStore
    from xlj.training.memory import Sizes


def _add_flags(parser: Parser) -> None:
    add = parser.add_argument
    add(
        "--topology",
        metavar="CHIP:SIDES",
        required=True,
        help="kind of chip, and the sides of the cluster or torus: h100:8x8 (8 hosts of 8 GPUs), "
        "v5e:4x4 or v5p:4x4x4",
    )
    add("--search", action="store_true", help="find the fastest mesh and microbatches that fit")
    parser.add_file("--json", "file for all numbers of the plan as JSON")
    add(
        "--programs",
        metavar="DIR",
        type=Path,
        help="folder for the compiled program of each phase, as a text file phase-N.txt",
    )


@command.entry("plan", __doc__, _add_flags, schema)
def main(flags: Namespace) -> int:
    """Prints the plan; returns 1 if the run does not fit in memory."""
    from xlj.io import json_file
    from xlj.tools.planning import topologies

    topology = topologies.parse(flags.topology)
    outputs.check_output("json", flags.json, [("config", flags.config_file.partition(":")[0])])
    if flags.programs:
        outputs.check_folder("programs", flags.programs)
        flags.programs.mkdir(parents=True, exist_ok=True)
    topologies.use_compilers()

    from xlj.data.rows.preparing import open_rows
    from xlj.tools.planning import figures, programs, search, table
    from xlj.training import duration_steps, revisions, start

    config = start.adopt_model(revisions.pin(flags.config))
    config, store = open_rows(config.for_platform(topology.devices()[0].platform))
    sizes = _sizes(config, store)
    config, notes = duration_steps.resolve(config, store)
    record: dict[str, object] = {"config": flags.config_file, "topology": topology.name}
    known: dict[int, figures.Figures] = {}
    advice = ""
    if flags.search:
        trials = search.search(config, sizes, topology)
        print(table.trials(trials), "\n", flush=True)
        record["trials"] = [trial.record() for trial in trials]
        best = trials[0]
        if best.fits and best.figures:
            config, known = (
                best.choice.of(config),
                {search.find_largest_phase(config, sizes): best.figures},
            )
            advice = f"\nflags: {best.choice.flags()}"
        else:
            advice = "nothing fits: use more or larger chips, or a smaller model"
    fits = not flags.search or bool(known)
    if fits:
        try:
            phases = figures.of_run(config, sizes, topology, known, flags.programs)
        except programs.DoesNotFit as error:
            phases, fits = [], False
            print(f"does not fit: {error}")
        else:
            fits = all(phase.memory.fits for phase in phases)
            print(table.table(phases, configs.name_of(flags.config_file), topology))
            if notes and store is None:
                assumed = "assumed: every row is full, and a step is one pass over the rows"
                print(*notes, assumed, sep="\n")
        record["phases"] = [phase.record() for phase in phases]
    # The search tries only the largest phase, but another phase may need more memory.
    if advice and known and not fits:
        advice = "nothing fits in every phase: use more or larger chips, or a smaller model"
    if advice:
        print(advice)
    if flags.json:
        json_file.write(flags.json, record)
    return 0 if fits else 1


def _sizes(config: schema.Config, store: "RowStore | None") -> "Sizes":
    """Returns the sizes on which the run's memory depends (`training.memory.expected_sizes`)."""
    from xlj.training import memory, start

    try:
        _, vocabulary = start.adopt_vocabulary(config, None, store)
        return memory.expected_sizes(config, store, vocabulary)
    except schema.ConfigError as error:
        if not config.data.vocabulary:
            raise
        size = "--config.data.vocabulary= --config.data.vocabulary_size=250002"
        raise schema.ConfigError(
            f"{error}; a plan needs only the size of the vocabulary, for example {size}"
        ) from None


if __name__ == "__main__":
    raise SystemExit(main())
