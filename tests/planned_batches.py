"""Batches of a config whose rows have not been built: only their shapes and fields."""

from xlj.config.fields import lookup


class PlannedBatches:
    """The part of `Batches` from which operations are counted."""

    cuts = False

    def __init__(self, config, corpus):
        self.config, self.corpus = config, corpus

    def shapes(self, step):
        return {
            name: (options.batch_size, self._length(name, step))
            for name, options in self._active(step).items()
        }

    def fields(self, name, step):
        row_kind = self._active(step)[name].row_kind
        return row_kind.batch_fields(self._length(name, step), "<i4")

    def _active(self, step):
        return self.config.phase_at(step).config.objectives.active()

    def _length(self, name, step):
        return lookup(self.config, self._active(step)[name].row_kind.length)
