"""Values of flags that subpackages and the command line share. Imports no JAX."""

import dataclasses

from xlj.config.fields import key

METHODS = ("optimal_transport", "released", "argmax", "itermax", "match")
"""Alignment methods for any encoder: XLM-Align's paper, XLM-Align's released aligner, and the three
methods of SimAlign."""

TRAINED_METHODS = ("hmm", "word_links")
"""Alignment methods with trained parameters: of the objective `word_hmm`, or of fine-tuning on word
links."""

ENCODINGS = ("together", "apart")
"""Encodings of a pair for alignment: both sentences as one example (XLM-Align), or each sentence
separately (SimAlign)."""


AUTO = "auto"
"""The value of `method` and `encode` that chooses by the model
(`word_alignment.defaults.resolve`)."""


@dataclasses.dataclass(frozen=True)
class AlignmentOptions:
    """Options of word alignment.

    The method is not checked here, since users can register methods.
    """

    method: str = key(
        AUTO,
        "alignment method; auto: word_links if the model was trained on word links, "
        "optimal_transport if it was trained on pairs that are encoded together, else argmax "
        "(docs/align.md)",
        choices=(AUTO, *METHODS, *TRAINED_METHODS),
    )
    encode: str = key(
        AUTO,
        "encode a pair as one example (together), or each sentence separately (apart); auto: "
        "together if the model was trained on word links or on pairs that are encoded together, "
        "else apart",
        choices=(AUTO, *ENCODINGS),
    )
    layer: int = key(
        -1,
        "layer whose vectors are aligned; 0: the embeddings, -1: the layer at two thirds of the "
        "depth",
        low=-1,
    )
    prior: float = key(
        0.0, "strength of the prior that favours links near the diagonal; 0: no prior", low=0
    )


ACTIVATIONS = ("Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid")
"""Activations of a linear layer after the pooling, by their class names in PyTorch."""

POOLINGS = ("mean", "text", "first")
"""Sentence vectors. `mean`: the mean over all tokens, with `<s>` and `</s>` (XTREME's script,
sentence-transformers). `text`: the mean over the text's tokens only (the vectors that
`objectives.retrieval` trains). `first`: the vector of `<s>` (`objectives.xlco` trains it)."""

SIMILARITIES = ("cosine", "margin")
"""Similarities of sentence vectors: cosine, or the ratio margin of Artetxe and Schwenk (2019). The
margin divides the cosine by the mean cosine of both sentences with their nearest neighbours."""

VECTOR_TYPES = ("float32", "float16")
"""Number types in a file of vectors."""

BACKENDS = {"jax": "", "onnx": "float32", "onnx-int8": "int8"}
"""What computes sentence vectors: JAX, or onnxruntime with an exported graph, whose type of weights
(`onnx_names.WEIGHTS`) is the value."""

COMPUTE_TYPES = ("float32", "bfloat16")
"""Types of matrix products of a loaded encoder (`model.dtype`)."""

SEARCHES = ("exact", "faiss")
"""Neighbour searches of `xlj.mine` and `xlj.search`."""

PAIR_SCORES = ("cosine", "margin", "likelihood")
"""Scores of `xlj.score` for a sentence pair: cosine of the vectors; the ratio margin of Artetxe and
Schwenk (2019), with neighbours from all pairs; or the likelihood with which an aligner's model
generates each sentence from the other."""

TEXT_FORMATS = ("text", "jsonl", "conll")
"""Input formats of `xlj.predict`, read by `finetuning.new_text`."""

LABEL_FORMATS = ("tsv", "jsonl", "conll")
"""Output formats of `xlj.predict`, described in `finetuning.new_text`."""

WORD_SPLITS = ("spaces", "whitespace")
"""Separators of words in tokenised text, described in `word_alignment.gold_alignments`."""

LINK_FORMATS = ("pharaoh", "pharaoh_1", "naacl", "words", "pieces")
"""Link formats of `xlj.align`, described in `word_alignment.link_formats`."""

PAIR_FORMATS = ("tsv", "jsonl", "tmx")
"""Formats of pairs of `xlj.align_documents`, described in `document_alignment.pair_formats`."""

JOINS = ("sum", "encode")
"""How `xlj.align_documents` computes the vectors of joined sentences: as the sum of the vectors of
the sentences, or by encoding the joined text."""

CHARACTERS = ("all", "scripts", "text")
"""One-character pieces that always remain in a trimmed vocabulary.

- `all`: all.
- `scripts`: those that occur in the text, those that are no letters, and the letters of each script
  that has at least 0.1 % of the letters of a language's text.
- `text`: those that occur in the text, alone or within pieces."""
