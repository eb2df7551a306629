"""Values of flags that the rooms and the command line share: here, since --help loads no JAX."""

import dataclasses
from collections.abc import Collection

from xlj.config.fields import ConfigError, key, suggestion

METHODS = ("optimal_transport", "released", "argmax", "itermax", "match")
"""Of alignment by any encoder: XLM-Align's paper; XLM-Align's released aligner; the three of
SimAlign."""

TRAINED_METHODS = ("hmm",)
"""Of alignment by what an objective trained for it (`objectives.word_hmm`)."""

ENCODINGS = ("together", "apart")
"""Of the two sentences that are aligned: as one example (XLM-Align), or each alone (SimAlign)."""


@dataclasses.dataclass(frozen=True)
class AlignmentOptions:
    """How an encoder aligns words; by default as in XLM-Align's paper. Not checked here: methods
    may be of one's own."""

    method: str = key(
        "optimal_transport",
        "how words are linked (docs/align.md)",
        choices=(*METHODS, *TRAINED_METHODS),
    )
    encode: str = key(
        "together", "a pair as one example, or each sentence alone", choices=ENCODINGS
    )
    layer: int = key(
        -1,
        "layer whose vectors are aligned, 0 is the embeddings; -1 means two thirds of the layers",
        low=-1,
    )
    prior: float = key(0.0, "strength of the prior on the diagonal; 0 is none", low=0)


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

PAIR_SCORES = ("cosine", "margin", "likelihood")
"""How `xlj.score` compares the sentences of a pair: cosine of their vectors; the ratio margin of
Artetxe and Schwenk (2019), with neighbours among all pairs; how well an aligner's model generates
each from the other."""

TEXT_FORMATS = ("text", "jsonl", "conll")
"""How text to be labelled is written: `finetuning.new_text` reads each."""

LABEL_FORMATS = ("tsv", "jsonl", "conll")
"""How `xlj.predict` writes labels: `finetuning.new_text` describes each."""

WORD_SPLITS = ("spaces", "whitespace")
"""What divides words of text that is tokenised: `word_alignment.words` describes each."""

LINK_FORMATS = ("pharaoh", "pharaoh_1", "naacl", "words", "pieces")
"""How `xlj.align` writes links: `word_alignment.link_formats` describes each."""


def check_choice(name: str, value: str, known: Collection[str]) -> None:
    """Raises a `ConfigError` if an argument of this name has none of the known values."""
    if value not in known:
        raise ConfigError(
            f"{name}={value!r}: there are {', '.join(known)}{suggestion(str(value), known)}"
        )
