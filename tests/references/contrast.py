"""Reference implementation of contrast: plain loops over examples, in float64."""

import numpy as np

from references.losses import log_sum_exp, softplus


def shortened(vector, size):
    part = vector[:size]
    return part if size == len(vector) else part / np.sqrt(part @ part)


def ranked(examples, vectors, directions, scale, margin, guard, sizes, hardest):
    """Losses and counts of each example, and the numbers of texts that are no negatives.

    Args:
      examples: tuples (query, positive, list of negatives) of texts.
      vectors: a function (example, text number) -> unit vector: 0 the query, 1 the positive, 2 and
        more the negatives.
      guard: the margin of the guard, or None.
      sizes: weights by number of dimensions, all dimensions first.
    """
    full = next(iter(sizes))
    losses, counted, correct, dropped = [], [], [], {"shared": 0, "guarded": 0, "candidates": 0}
    for i, example in enumerate(examples):
        own_texts = set(example[:2])
        loss, has_negative, right_of_all = 0.0, False, True
        for side, across, within in ((0, "query_to_passage", "query_to_query"),
                                     (1, "passage_to_query", "passage_to_passage")):  # fmt: skip
            anchor, positive = vectors(i, side), vectors(i, 1 - side)
            negatives, nearest = [], -np.inf
            for j, other in enumerate(examples):
                places = [1 - side] * (across in directions) + [side] * (within in directions)
                given = [] if side or across not in directions else range(2, 2 + len(other[2]))
                for place in (*places, *given):
                    if place < 2 and j == i:
                        continue
                    dropped["candidates"] += 1
                    texts = set(other[:2]) if place < 2 else {other[2][place - 2]}
                    if texts & own_texts:
                        dropped["shared"] += 1
                        continue
                    cosine = anchor @ vectors(j, place)
                    nearest = max(nearest, cosine)
                    if guard is not None and cosine > anchor @ positive - guard:
                        dropped["guarded"] += 1
                        continue
                    negatives.append((j, place))
            if not negatives:
                continue
            has_negative = True
            for size, weight in sizes.items():
                own = shortened(anchor, size)
                logits = np.array([scale * own @ shortened(vectors(*x), size) for x in negatives])
                right = scale * (own @ shortened(positive, size) - margin)
                if hardest:
                    loss += weight * (softplus(-right) + softplus(logits.max()))
                else:
                    loss += weight * (log_sum_exp(np.append(logits, right)) - right)
                if size == full:
                    right_of_all &= right > scale * nearest
        losses.append(loss)
        counted.append(has_negative)
        correct.append(has_negative and right_of_all)
    return np.array(losses), np.array(counted), np.array(correct), dropped


def of_lists(examples, scores, vectors, scale, sizes, kind, temperature):
    """Losses of a teacher's scores, 0 for examples without scores, and whether they count."""
    losses, counted, correct = [], [], []
    for i, example in enumerate(examples):
        known = [n for n in range(len(example[2])) if np.isfinite(scores[i][1 + n])]
        counts = bool(known) and np.isfinite(scores[i][0])
        loss = 0.0
        for number, (size, weight) in enumerate(sizes.items() if counts else ()):
            query = shortened(vectors(i, 0), size)
            texts = [1, *(2 + n for n in known)]
            student = np.array([scale * query @ shortened(vectors(i, x), size) for x in texts])
            teacher = np.array([scores[i][0], *(scores[i][1 + n] for n in known)])
            if kind == "kl":
                of_teacher = teacher / temperature
                of_teacher = of_teacher - log_sum_exp(of_teacher)
                of_student = student - log_sum_exp(student)
                loss += weight * (np.exp(of_teacher) * (of_teacher - of_student)).sum()
            else:
                gaps = (student[0] - student[1:]) - (teacher[0] - teacher[1:])
                loss += weight * (gaps**2).mean()
            if not number:
                correct.append(student[0] > student[1:].max())
        if not counts:
            correct.append(False)
        losses.append(loss)
        counted.append(counts)
    return np.array(losses), np.array(counted), np.array(correct)


def ordered(scores, vectors, scale, sizes):
    """The CoSENT loss of the batch, for each example with a score."""
    known = [i for i in range(len(scores)) if np.isfinite(scores[i][0])]
    total = np.zeros(len(scores))
    correct = np.zeros(len(scores), bool)
    for number, (size, weight) in enumerate(sizes.items()):
        cosines = {
            i: scale * shortened(vectors(i, 0), size) @ shortened(vectors(i, 1), size)
            for i in known
        }
        gaps = [
            cosines[j] - cosines[i] for i in known for j in known if scores[i][0] > scores[j][0]
        ]
        total[known] += weight * log_sum_exp(np.array([0.0, *gaps]))
        for i in known if not number else ():
            lower = [cosines[j] for j in known if scores[j][0] < scores[i][0]]
            correct[i] = all(cosines[i] > x for x in lower)
    counted = np.isin(np.arange(len(scores)), known)
    return total, counted, correct
