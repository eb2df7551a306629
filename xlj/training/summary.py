"""Summary of a run: checkpoint, metrics and next commands."""

import shlex
from collections.abc import Mapping

from xlj.checkpoints import metrics
from xlj.training.loop import Outcome

_MOST = 24  # lines of a table that are printed; the file of metrics has all
_OF_A_LOSS = ("loss", "accuracy")
"""Measures that the table of losses shows in one line."""


def summary(outcome: Outcome, command: str, can_export: bool = True) -> str:
    """Returns a text with the checkpoint's path, the first and last evaluation, and next commands.

    Args:
      command: the command that started the run, without `--workdir`.
      can_export: whether the library transformers has an architecture for the model, so that the
        text can suggest an export.
    """
    if not outcome.step:
        return "\nstopped before anything was saved; the same command starts over"
    lines, workdir = outcome.metrics, shlex.quote(str(outcome.workdir))
    evaluations = [line for line in lines if any(key.startswith("eval/") for key in line)]
    text = [f"\ncheckpoint: {outcome.checkpoint}", f"metrics:    {outcome.workdir / metrics.FILE}"]
    text.append(f"operations: {outcome.operations}")
    if evaluations:
        text += _tables(evaluations[0], evaluations[-1])
    if not outcome.finished:
        text += ["", f"stopped at step {outcome.step}; the same command resumes from it"]
        return "\n".join(text)
    text += [
        "",
        "next:",
        "  # align the words of sentence pairs; embed sentences",
        f"  {_of_text('a sentence ||| its translation', 'align', workdir)} --input=- --output=-",
        f"  {_of_text('a sentence', 'embed', workdir)} --output=vectors.npy",
        "  # plot the metrics; export a folder for transformers; start a new run from this one",
        f"  python -m xlj.report {workdir} --output=report.html",
        *[f"  python -m xlj.convert export --checkpoint={workdir} --output={workdir}-exported"]
        * can_export,
        f"  {command} --workdir={workdir}-next --config.init_from={workdir}",
    ]
    return "\n".join(text)


def _of_text(text: str, name: str, workdir: str) -> str:
    """Returns the beginning of a shell command that pipes a text into `python -m xlj.NAME`."""
    return f"echo {shlex.quote(text)} | python -m xlj.{name} --checkpoint={workdir}"


def _tables(before: metrics.Line, after: metrics.Line) -> list[str]:
    """Formats two evaluations as lines of two tables: losses with accuracies, then other measures.

    Args:
      before, after: lines of metrics of the first and of the last evaluation.
    """
    measured = [key for key in after if key.startswith("eval/")]
    losses = [key for key in measured if key.endswith("/loss")]
    of_losses = {key.removesuffix("loss") + measure for key in losses for measure in _OF_A_LOSS}
    other_measures = [key for key in measured if key not in of_losses]
    losses, more_losses = _worst(losses, after)
    other_measures, more_measures = _worst(other_measures, {})
    measured = [*losses, *other_measures]
    width = max(len(_label(key)) for key in measured)
    steps = f"step {before['step']:,} -> {after['step']:,}"
    rows = []
    if losses:
        rows += ["", f"held-out loss (nats per prediction) and accuracy, {steps}"]
    for key in losses:
        accuracy = key.removesuffix("loss") + "accuracy"
        rows.append(
            f"  {_label(key):{width}}  {before.get(key, float('nan')):7.3f} -> {after[key]:6.3f}"
            f"   {100 * before.get(accuracy, float('nan')):5.1f}% -> {100 * after[accuracy]:5.1f}%"
        )
    rows += more_losses
    if other_measures:
        rows += ["", f"other measures, {steps}"]
    for key in other_measures:
        measure = key.rpartition("/")[2]
        rows.append(
            f"  {_label(key):{width}}  {before.get(key, float('nan')):11,.3f} -> {after[key]:9,.3f}"
            f"   {measure}"
        )
    return rows + more_measures


def _worst(keys: list[str], losses: Mapping[str, float]) -> tuple[list[str], list[str]]:
    """Returns the metrics to print, and a line about the others. Of more than `_MOST` metrics these
    are the means over languages, then the languages with the largest losses.

    Args:
      losses: values by which to sort metrics of languages; empty to keep their order.
    """
    if len(keys) <= _MOST:
        return keys, []
    means = [key for key in keys if key.count("/") == 2]
    others = [key for key in keys if key.count("/") != 2]
    others.sort(key=lambda key: -losses.get(key, 0.0))
    rest = len(others) - _MOST
    order = "; the largest losses are above" if losses else ""
    note = [f"  ... {rest:,} more are in {metrics.FILE}{order}"] if rest > 0 else []
    return [*means, *others[:_MOST]], note


def _label(key: str) -> str:
    """Returns the label of a metric eval/OBJECTIVE/LANGUAGE/MEASURE or eval/OBJECTIVE/MEASURE."""
    objective, *language = key.split("/")[1:-1]
    return f"{objective} {language[0] if language else 'mean'}"
