"""Aligns two documents in the space of an encoder of sentences."""

import numpy as np

from xlj.document_alignment import aligner, blocks
from xlj.document_alignment.blocks import Blocks
from xlj.document_alignment.documents import Document
from xlj.document_alignment.pair_formats import Aligned
from xlj.retrieval.sentence_embedder import SentenceEmbedder


def align(
    embedder: SentenceEmbedder,
    source: Document,
    target: Document,
    joins: str,
    show_progress_bar: bool | None = None,
) -> Aligned:
    """Aligns two documents.

    Args:
      embedder: computes the vectors, for exactly one layer.
      joins: one of `choices.JOINS`.
      show_progress_bar: None for a bar in terminals only.

    Returns:
      The documents, and all steps of their alignment.
    """
    sides = (of_document(embedder, each, joins, show_progress_bar) for each in (source, target))
    return Aligned(source, target, aligner.align(*sides))


def of_document(
    embedder: SentenceEmbedder,
    document: Document,
    joins: str,
    show_progress_bar: bool | None = None,
) -> Blocks:
    """Returns the blocks of a document, with the vectors of an embedder."""
    texts, starts = document.texts, document.starts
    joined = None
    if joins == "encode":
        all_joined = (
            blocks.joined_texts(texts, starts, size) for size in range(2, blocks.SIZES + 1)
        )
        joined = np.stack([embedder.embed(each, show_progress_bar)[0] for each in all_joined])
    vectors = embedder.embed(texts, show_progress_bar)[0]
    return blocks.of_sentences(vectors, texts, starts, joined)
