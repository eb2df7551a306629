"""The options of each objective, a file a kind; `xlj/objectives/` has its mathematics in a file of
the same name. This is the one list of xlj's own."""

# In the order of the schema.
# isort: off
from xlj.config.objectives import mlm, btmlm, rtd, dwa, xlco, retrieval, distillation, word_hmm
