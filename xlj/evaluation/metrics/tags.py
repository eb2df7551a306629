"""Computes F1 of chunks of tagged words, as CoNLL defines it and seqeval does in lenient mode."""

from collections.abc import Iterable, Sequence

from xlj.data.labelled.chunks import find_chunks
from xlj.evaluation.metrics import shares


def chunk_scores(
    predicted: Iterable[Sequence[str]], gold: Iterable[Sequence[str]], raw: bool = False
) -> shares.ShareScores:
    """Scores the chunks of all sentences together (micro-average).

    A chunk is correct if the kind, the start and the end are correct.

    Args:
      predicted, gold: the tags of each sentence's words.
      raw: whether tags have no prefix such as B or I, like parts of speech
        (`data.labelled.chunks.find_chunks`).

    Raises:
      ValueError: if the numbers of sentences or words differ.
    """
    correct = predicted_count = gold_count = 0
    for number, (predicted_tags, gold_tags) in enumerate(zip(predicted, gold, strict=True), 1):
        if len(predicted_tags) != len(gold_tags):
            raise ValueError(
                f"sentence {number}: {len(predicted_tags)} predicted tags for "
                f"{len(gold_tags)} words; expected one for each word"
            )
        predicted_chunks, gold_chunks = (
            find_chunks(predicted_tags, raw),
            find_chunks(gold_tags, raw),
        )
        correct += len(set(predicted_chunks) & set(gold_chunks))
        predicted_count += len(predicted_chunks)
        gold_count += len(gold_chunks)
    return shares.f1_scores(correct, predicted_count, gold_count)
