"""What a run came to: a few lines for the person who started it."""

from __future__ import annotations

from typing import Any

from xlj.training import metrics
from xlj.training.loop import Outcome


def summary(outcome: Outcome, command: str) -> str:
    """Where the checkpoint is, held-out losses before and after, and what to run next.

    Args:
      command: what the run was started with, without its workdir.
    """
    lines = metrics.read(outcome.workdir)
    evaluations = [line for line in lines if any(key.startswith("eval/") for key in line)]
    text = [f"\ncheckpoint: {outcome.checkpoint}", f"metrics:    {outcome.workdir / metrics.FILE}"]
    if evaluations:
        text += ["", *_table(evaluations[0], evaluations[-1])]
    if not outcome.finished:
        text += ["", f"stopped at step {outcome.step}; the same command goes on from there"]
        return "\n".join(text)
    text += [
        "",
        "next:",
        f"  tensorboard --logdir={outcome.workdir / 'tensorboard'}",
        "  # a new run from these parameters; give it other text, or another recipe",
        f"  {command} --workdir={outcome.workdir}-next --config.init_from={outcome.workdir}",
    ]
    return "\n".join(text)


def _table(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    """Loss and accuracy of each objective and language at two evaluations; means come last."""
    losses = [key for key in after if key.startswith("eval/") and key.endswith("/loss")]
    width = max(map(len, map(_label, losses)))
    steps = f"step {before['step']:,} -> {after['step']:,}"
    rows = [f"held-out loss (nats a predicted token) and accuracy, {steps}"]
    for key in losses:
        accuracy = key.removesuffix("loss") + "accuracy"
        rows.append(
            f"  {_label(key):{width}}  {before.get(key, float('nan')):7.3f} -> {after[key]:6.3f}"
            f"   {100 * before.get(accuracy, float('nan')):5.1f}% -> {100 * after[accuracy]:5.1f}%"
        )
    return rows


def _label(key: str) -> str:
    objective, *language = key.split("/")[1:-1]
    return f"{objective} {language[0] if language else 'mean'}"
