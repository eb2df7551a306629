"""Values of flags that the rooms and the command line share: here, since --help loads no JAX."""

import dataclasses

METHODS = ("optimal_transport", "released", "argmax", "itermax", "match")
"""Of alignment by any encoder: XLM-Align's paper; XLM-Align's released aligner; the three of
SimAlign."""

TRAINED_METHODS = ("hmm",)
"""Of alignment by what an objective trained for it (`objectives.word_hmm`)."""

ENCODINGS = ("together", "apart")
"""Of the two sentences that are aligned: as one example (XLM-Align), or each alone (SimAlign)."""


@dataclasses.dataclass(frozen=True)
class Aligning:
    """How an encoder aligns words, unless somebody says otherwise: what its config chose
    (`evaluation.alignment`), else XLM-Align's."""

    method: str = "optimal_transport"
    encode: str = "together"
    layer: int = -1  # two thirds of the layers
    prior: float = 0.0


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
