"""Floating-point operations of a run by three conventions, since papers count differently.

- xlj (`objectives/flops.py`): the matrix products of each objective.
- ELECTRA (google-research/electra, flops_computation.py): training counts as two forward passes,
  not three. Biases, activations, dropout and norms count, and embedding look-ups count as dense
  products. 15.625 % of tokens are predicted. ELECTRA's script has formulas for two models: an
  encoder that predicts masked tokens, and a generator with a discriminator. Objectives with a
  generator use the second formula, all other objectives the first. Each row counts once, even if
  the objective encodes the row several times.
- 6ND (Kaplan et al., 2020): N is the number of weights in the linear maps of all layers, including
  the layers of a generator. D is the number of tokens of all rows, including padding.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from xlj.config import Config, Model
from xlj.data.rows.corpus import Corpus
from xlj.objectives.counting import operations
from xlj.objectives.flops import layer_weights


class Counts(NamedTuple):
    """Numbers of floating-point operations by each convention."""

    xlj: float
    electra: float
    six_nd: float

    def __str__(self) -> str:
        other_counts = f"ELECTRA's count {self.electra:.3g}, 6ND {self.six_nd:.3g}"
        return f"{self.xlj:.3g} in matrix products ({other_counts})"


class RunFlops:
    """Floating-point operations of the steps of a run.

    Args:
      shapes: (zero-based step) -> (number of rows, length of a row) of each active objective.
    """

    def __init__(
        self,
        config: Config,
        corpus: Corpus,
        shapes: Callable[[int], Mapping[str, tuple[int, int]]],
    ):
        self._phases = [
            (phase, of_step(phase.config, corpus, shapes(phase.start))) for phase in config.schedule
        ]

    def of_step(self, step: int) -> Counts:
        """Returns the operations of one step (zero-based).

        A step of the batch warm-up counts as the fraction of its microbatches that have rows.
        """
        phase, counts = next(each for each in reversed(self._phases) if each[0].start <= step)
        share = phase.microbatches(step) / phase.parts
        return Counts(*(share * count for count in counts))

    def until(self, step: int) -> Counts:
        """Returns the operations of all steps before `step` (zero-based)."""
        done = [(phase.done(step), counts) for phase, counts in self._phases]
        return Counts(*(sum(n * counts[i] for n, counts in done) for i in range(3)))


def of_step(config: Config, corpus: Corpus, shapes: Mapping[str, tuple[int, int]]) -> Counts:
    """Returns the operations of a full step of a phase.

    Args:
      config: of the phase.
      shapes: (number of rows, length of a row) of each active objective.
    """
    model, active = config.model, config.objectives.active()
    matrix_products = sum(each.total for each in operations(active, model, corpus, shapes).values())
    electra = six_nd = 0.0
    for name, (rows, length) in shapes.items():
        generator, tokens = active[name].extra_layers, rows * length
        electra += tokens * _electra(model, generator, corpus.vocabulary_size, length)
        six_nd += 6 * tokens * (model.layers + generator) * layer_weights(model)
    return Counts(matrix_products, electra, six_nd)


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
