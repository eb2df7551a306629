"""F1 of chunks of tagged words, as CoNLL defines it and seqeval computes it (lenient mode)."""

from collections.abc import Iterable, Sequence

from xlj.data.labelled.chunks import find_chunks
from xlj.evaluation.metrics import shares


def chunk_scores(
    predicted: Iterable[Sequence[str]], gold: Iterable[Sequence[str]], raw: bool = False
) -> shares.Scores:
    """Scores chunks over all sentences (micro-average). A chunk is correct if its kind, start and
    end are.

    Args:
      predicted, gold: the tags of each sentence's words.
      raw: as in `find_chunks`.

    Raises:
      ValueError: if the numbers of sentences or words differ.
    """
    correct = of_predicted = of_gold = 0
    for number, (guess, truth) in enumerate(zip(predicted, gold, strict=True), 1):
        if len(guess) != len(truth):
            raise ValueError(f"sentence {number}: {len(guess)} tags for {len(truth)} words")
        guessed, true = find_chunks(guess, raw), find_chunks(truth, raw)
        correct += len(set(guessed) & set(true))
        of_predicted += len(guessed)
        of_gold += len(true)
    return shares.f1_scores(correct, of_predicted, of_gold)
