"""Values of flags that the rooms and the command line share: here, since --help loads no JAX."""

METHODS = ("optimal_transport", "released", "argmax", "itermax", "match")
"""Of alignment: XLM-Align's paper; XLM-Align's released aligner; the three of SimAlign."""

ENCODINGS = ("together", "apart")
"""Of the two sentences that are aligned: as one example (XLM-Align), or each alone (SimAlign)."""

POOLINGS = ("mean", "text", "first")
"""The mean over all of a sentence's tokens, `<s>` and `</s>` too (XTREME's script,
sentence-transformers); over the text's own (what XLCO and fine-tuning for retrieval compare); or
the vector of `<s>`."""

SIMILARITIES = ("cosine", "margin")
"""Cosine; or the ratio margin of Artetxe and Schwenk (2019): cosine over the mean cosine of both
sentences with their nearest neighbours."""

VECTOR_TYPES = ("float32", "float16")
"""Of the numbers in a file of vectors."""

SEARCHES = ("exact", "faiss")
"""How `xlj.mine` looks for neighbours."""
