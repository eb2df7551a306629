"""Options of xlj's objectives, one file per kind.

`xlj/objectives/` has the mathematics in files of the same names.
"""

# The order of these imports is the order of the schema.
# isort: off
from xlj.config.objectives import mlm, btmlm, rtd, dwa, xlco, retrieval, distillation, word_hmm
