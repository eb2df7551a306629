"""Fine-tunes an encoder on a task, and scores it in all languages.

    python -m xlj.finetune --config=configs/finetune/NAME.py --config.init_from=DIR

DIR is a workdir, a checkpoint or a Hugging Face folder. The workdir gets a folder a seed, with
checkpoints, metrics and predictions, and results.json, results.md. The same command again goes on
where it stopped. docs/finetune.md tells more.
"""

import contextlib
import sys
from pathlib import Path

from absl import flags

from xlj import cli
from xlj.config import finetuning
from xlj.config.finetuning import FinetuningConfig
from xlj.config.paths import local_path

_WORKDIR = flags.DEFINE_string(
    "workdir", "", "runs and results; empty means runs/finetune/ and the config's name"
)
_SUBMISSION = flags.DEFINE_string(
    "submission", "", "folder that gets XTREME's files of predictions, in a folder NAME"
)
_NAME = flags.DEFINE_string("name", "", "the task's name in results; empty means the config's")
_PLOT = flags.DEFINE_string("plot", "", "draw the scores by language into this .png, .svg or .pdf")
_DISTRIBUTED = flags.DEFINE_bool(
    "distributed", False, "this is one of several processes (Slurm, a TPU pod, mpirun): join them"
)


def run(config: FinetuningConfig) -> None:
    """Fine-tunes to the end, writes the results and prints their table."""
    import jax

    if _DISTRIBUTED.value:
        jax.distributed.initialize()

    from xlj.evaluation import language_report
    from xlj.finetuning import running, task_results
    from xlj.training.workdir import only_run

    name = _NAME.value or cli.config_name()
    workdir = local_path("--workdir", _WORKDIR.value or Path("runs") / "finetune" / name)
    if _SUBMISSION.value:
        local_path("--submission", _SUBMISSION.value)
    if _PLOT.value:
        cli.check_output("plot", _PLOT.value, cli.PLOTS)
    if _SUBMISSION.value and not config.task.test:
        raise cli.ConfigError("--submission is of test sets, but task.test is empty")
    main_process = jax.process_index() == 0
    try:
        with only_run(workdir) if main_process else contextlib.nullcontext():
            outcome = running.run(config, workdir)
    except FloatingPointError as error:
        raise cli.ConfigError(str(error)) from error
    if not main_process:
        return
    if not outcome.finished:
        print(f"stopped; the same command goes on from there, in {workdir}")
        return
    files = task_results.write(workdir, name, config, outcome)
    print("", task_results.as_markdown(name, config, outcome), *files, sep="\n")
    if _SUBMISSION.value:
        submission = Path(_SUBMISSION.value).expanduser()
        folder, others = task_results.submit(submission, name, config, outcome)
        print(folder)
        for file in others:
            print(f"{file} was there before, and is not of this run", file=sys.stderr)
    if _PLOT.value:
        path, panels = Path(_PLOT.value), task_results.panels(outcome)
        if panels:
            cli.draw(path, lambda: language_report.plot(panels, path))
        else:
            print("no plot: no labels are known", file=sys.stderr)


if __name__ == "__main__":
    cli.main(run, __doc__, finetuning)
