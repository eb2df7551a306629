"""A plain dynamic programme of sentence alignment over all cells, for tests."""


def best_score(score, rows, columns, sizes, open_gap, skip, close=0.0):
    """Returns the score of the best path, and the cells of one such path.

    Args:
      score: `score(i, j, n, m)` is the score of the n sources that end at i and the m targets that
        end at j.
    """
    best = {(0, 0, "pair"): (0.0, [(0, 0)])}
    for i, j in ((i, j) for i in range(rows + 1) for j in range(columns + 1)):
        into_pair, into_gap = [], []
        for n, m in ((n, m) for n in range(1, sizes + 1) for m in range(1, sizes + 1)):
            for state, more in (("pair", 0.0), ("gap", close)):
                if before := best.get((i - n, j - m, state)):
                    value = before[0] + more + score(i, j, n, m)
                    into_pair.append((value, before[1]))
        for a, b in ((i - 1, j), (i, j - 1)):
            for state, more in (("pair", open_gap), ("gap", 0.0)):
                if before := best.get((a, b, state)):
                    into_gap.append((before[0] + more + skip, before[1]))
        for state, choices in (("pair", into_pair), ("gap", into_gap)):
            if choices:
                value, cells = max(choices, key=lambda choice: choice[0])
                best[i, j, state] = (value, [*cells, (i, j)])
    ends = [best.get((rows, columns, state)) for state in ("pair", "gap")]
    return max((end for end in ends if end), key=lambda end: end[0])
