"""Floating-point operations of a run by three conventions, since papers count differently.

- xlj (`objectives/operations.py`): the matrix products in the traced step of each objective.
- ELECTRA (google-research/electra, flops_computation.py): training counts as two forward passes,
  not three. Biases, activations, dropout and norms count, and embedding look-ups count as dense
  products. 15.625 % of tokens are predicted. ELECTRA's script has formulas for two models: an
  encoder that predicts masked tokens, and a generator with a discriminator. Objectives with a
  generator use the second formula, all other objectives the first. Each row counts once, even if
  the objective encodes the row several times.
- 6ND (Kaplan et al., 2020): N is the number of weights in the linear maps of all layers, including
  the layers of a generator. D is the number of tokens of all rows, including padding.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from xlj.config import Config, Model
from xlj.config.schema import Phase
from xlj.data.rows.batches import Batches
from xlj.data.rows.row_kind import Field
from xlj.data.rows.store import Corpus
from xlj.objectives import operations


class Counts(NamedTuple):
    """Numbers of floating-point operations by each convention."""

    xlj: float
    electra: float
    six_nd: float

    def __str__(self) -> str:
        other_counts = f"ELECTRA's count {self.electra:.3g}, 6ND {self.six_nd:.3g}"
        return f"{self.xlj:.3g} in matrix products ({other_counts})"


class RunFlops:
    """Floating-point operations of the steps of a run, counted once for each phase and shape of
    batches."""

    def __init__(self, config: Config, batches: Batches):
        self._schedule, self._batches = config.schedule, batches
        self._counts: dict[tuple[object, ...], Counts] = {}  # by phase and shapes of the batches
        self._sums = [Counts(0.0, 0.0, 0.0)]  # of the first steps, if batches are cut

    def of_step(self, step: int) -> Counts:
        """Returns the operations of one step (zero-based).

        A step of the batch warm-up counts as the fraction of its microbatches that have rows.
        """
        phase = next(each for each in reversed(self._schedule) if each.start <= step)
        share = phase.microbatches(step) / phase.accumulation_steps
        return Counts(*(share * count for count in self._of_full_step(phase, step)))

    def until(self, step: int) -> Counts:
        """Returns the operations of all steps before `step` (zero-based)."""
        if self._batches.cuts:
            for number in range(len(self._sums) - 1, step):
                counts = self.of_step(number)
                sums = zip(self._sums[-1], counts, strict=True)
                self._sums.append(Counts(*(done + count for done, count in sums)))
            return self._sums[step]
        done = [
            (phase.done(step), self._of_full_step(phase, phase.start)) for phase in self._schedule
        ]
        return Counts(*(sum(n * counts[i] for n, counts in done) for i in range(3)))

    def _of_full_step(self, phase: Phase, step: int) -> Counts:
        """Returns the operations of a step of a phase, all of whose microbatches have rows."""
        cut = self._batches.shapes(step) if self._batches.cuts else {}
        key = phase.start, *cut.items()
        if key not in self._counts:
            shapes = cut or self._batches.shapes(step)
            fields = {name: self._batches.fields(name, step) for name in shapes}
            self._counts[key] = of_step(phase.config, self._batches.corpus, shapes, fields)
        return self._counts[key]


def of_step(
    config: Config,
    corpus: Corpus,
    shapes: Mapping[str, tuple[int, int]],
    fields: Mapping[str, Sequence[Field]],
) -> Counts:
    """Returns the operations of a full step of a phase.

    Args:
      config: of the phase.
      shapes: (number of rows, length of a row) of each active objective.
      fields: the fields of the rows of each active objective.
    """
    model, active = config.model, config.objectives.active()
    products = electra = six_nd = 0.0
    for name, (rows, length) in shapes.items():
        options, of_row = active[name], tuple(fields[name])
        products += operations.of_step(name, options, model, corpus, rows, of_row)
        generator, tokens = options.extra_layers, rows * length
        electra += tokens * _electra(model, generator, corpus.vocabulary_size, length)
        six_nd += 6 * tokens * (model.layers + generator) * layer_weights(model)
    return Counts(products, electra, six_nd)


def layer_weights(model: Model) -> int:
    """Counts the weights in the kernels of one layer."""
    projections = 2 * model.heads + 2 * model.groups
    attention = projections * model.hidden**2 // model.heads
    return (
        attention + (2 if model.feed_forward == "gelu" else 3) * model.hidden * model.intermediate
    )


def _electra(model: Model, generator: int, size: int, length: int) -> float:
    """Returns the operations per token by ELECTRA's convention.

    In local layers, too, a token counts as attending to all tokens of its row.

    Args:
      generator: number of layers of the generator; 0 without a generator.
      size: of the vocabulary.
      length: of a row.
    """
    # The terms and their factors are those of ELECTRA's script.
    h, i = model.hidden, model.intermediate
    layer = 2 * layer_weights(model) + 4 * h * length  # products
    # Biases, activations, dropout and norms. The term 5 should be 5 * h, but the script has 5.
    layer += 20 * h + 9 * i + 5 + 10 * length * model.heads
    read = 2 * h * size + 2 * h * length + 15 * h
    predict = 0.15625 * (2 * h * size + 2 * h * h + 14 * h + 7 * size)
    detect = 2 * h * h + 11 * h
    forward = model.layers * layer + read + predict
    if generator:
        forward += generator * layer + read + detect
    return 2 * forward
