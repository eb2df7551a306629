"""Floating-point operations of a run by three conventions, since no two papers count alike.

- xlj's own: `objectives/flops.py`, what each objective does.
- ELECTRA's (google-research/electra, flops_computation.py): training as two forward passes, not
  three; biases, activations, dropout and norms; embedding look-ups as dense products; a prediction
  for 15.625 % of tokens. It knows two models, one that predicts masked tokens and one of generator
  and discriminator, and each row counts as read by one of them, whatever else is done with it.
- 6ND (Kaplan et al., 2020): N are the weights of the layers' linear maps, the generator's too; D
  the tokens of all rows, padding included.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from xlj.config import Config, Model
from xlj.data.rows.corpus import Corpus
from xlj.objectives.counting import operations
from xlj.objectives.flops import layer_weights


class Counts(NamedTuple):
    """Operations by each convention."""

    xlj: float
    electra: float
    six_nd: float

    def __str__(self) -> str:
        others = f"ELECTRA's count {self.electra:.3g}, 6ND {self.six_nd:.3g}"
        return f"{self.xlj:.3g} in matrix products ({others})"


class RunFlops:
    """Operations of the steps of a run.

    Args:
      shapes: step -> (rows, their length) of each objective that is on.
    """

    def __init__(
        self,
        config: Config,
        corpus: Corpus,
        shapes: Callable[[int], Mapping[str, tuple[int, int]]],
    ):
        self._config = config
        self._phases = [
            (phase, of_step(phase.config, corpus, shapes(phase.start))) for phase in config.schedule
        ]

    def of_step(self, step: int) -> Counts:
        """Of one step; of a smaller batch its share."""
        share = self._config.microbatches(step) / self._config.phase_at(step).parts
        counts = next(counts for phase, counts in reversed(self._phases) if phase.start <= step)
        return Counts(*(share * count for count in counts))

    def until(self, step: int) -> Counts:
        """Of all steps before `step`."""
        done = [(phase.done(step), counts) for phase, counts in self._phases]
        return Counts(*(sum(n * counts[i] for n, counts in done) for i in range(3)))


def of_step(config: Config, corpus: Corpus, shapes: Mapping[str, tuple[int, int]]) -> Counts:
    """Operations of a step under the config of its phase; `shapes` are (rows, their length) of each
    objective that is on."""
    model, active = config.model, config.objectives.active()
    own = sum(found.total for found in operations(active, model, corpus, shapes).values())
    electra = six_nd = 0.0
    for name, (rows, length) in shapes.items():
        generator = active[name].extra_layers
        tokens, length = rows * active[name].text_length(length), active[name].text_length(length)
        electra += tokens * _electra(model, generator, corpus.vocabulary_size, length)
        six_nd += 6 * tokens * (model.layers + generator) * layer_weights(model)
    return Counts(own, electra, six_nd)


def _electra(model: Model, generator: int, size: int, length: int) -> float:
    """A token's share of ELECTRA's count of a step; windows are not counted.

    Args:
      generator: its layers; 0 where there is none.
      size: of the vocabulary.
      length: of a row.
    """
    h, i = model.hidden, model.intermediate
    layer = 2 * layer_weights(model) + 4 * h * length  # products
    layer += 20 * h + 9 * i + 5 + 10 * length * model.heads  # (5 of a norm: not times h, as there)
    read = 2 * h * size + 2 * h * length + 15 * h
    predict = 0.15625 * (2 * h * size + 2 * h * h + 14 * h + 7 * size)
    detect = 2 * h * h + 11 * h
    forward = model.layers * layer + read + predict
    if generator:
        forward += generator * layer + read + detect
    return 2 * forward
