"""F1 of chunks of tagged words: CoNLL's definition, leniently, as seqeval has it."""

from collections.abc import Iterable, Sequence

from xlj.data.labelled.chunks import chunks
from xlj.evaluation.metrics import shares


def chunk_scores(
    predicted: Iterable[Sequence[str]], gold: Iterable[Sequence[str]], raw: bool = False
) -> shares.Scores:
    """Scores of chunks over all sentences (micro-averaged): right are those of equal kind and ends.

    Args:
      predicted, gold: tags of each sentence's words, else as of `chunks`.

    Raises:
      ValueError: if sentences or words are not equally many.
    """
    right = of_predicted = of_gold = 0
    for number, (guess, truth) in enumerate(zip(predicted, gold, strict=True), 1):
        if len(guess) != len(truth):
            raise ValueError(f"sentence {number}: {len(guess)} tags of {len(truth)} words")
        guessed, true = chunks(guess, raw), chunks(truth, raw)
        right += len(set(guessed) & set(true))
        of_predicted += len(guessed)
        of_gold += len(true)
    return shares.f1_scores(right, of_predicted, of_gold)
