"""Reference implementation of the alignment rules in plain Python, one sentence pair at a time.

The rules are transcribed from the papers and from released code. Matrices are lists of rows of
float32 numbers. Sinkhorn is in float64, in the log domain.
"""

import numpy as np

ALMOST = np.float32(1 - 1e-5)  # values within this factor of the maximum tie: the first wins


def sinkhorn_log(similarity, iterations, columns_first=True, mu=1):
    """Sinkhorn (XLM-Align Eq. 1 to 6) of a float64 similarity [m, n].

    Returns:
      The transport plan, the plan after its last normalisation of rows, and the plan after its
      last normalisation of columns.
    """
    log = np.log(np.maximum(np.asarray(similarity, np.float64), 1e-6)) / mu
    last = {}
    for _ in range(iterations):
        for axis in (0, 1) if columns_first else (1, 0):
            log = log - np.logaddexp.reduce(log, axis=axis, keepdims=True)
            last[axis] = log
    return np.exp(log), np.exp(last[1]), np.exp(last[0])


def best_of_rows(matrix):
    """The forward alignment (Eq. 7): {(i, argmax_k matrix[i][k])}. Rows without a positive value
    have no link."""
    links = set()
    for i, row in enumerate(matrix):
        highest = max(row)
        best = next((j for j, value in enumerate(row) if value >= highest * ALMOST), 0)
        if row[best] > 0:
            links.add((i, best))
    return links


def best_of_columns(matrix):
    """The backward alignment: the argmax of each column."""
    return {(i, j) for j, i in best_of_rows([list(column) for column in zip(*matrix, strict=True)])}


def argmax(matrix):
    return best_of_rows(matrix) & best_of_columns(matrix)


def union(matrix):
    return best_of_rows(matrix) | best_of_columns(matrix)


def itermax(matrix, alpha=0.9, iterations=2):
    """Itermax (Eq. 8). Between iterations scores are multiplied as in the released code: by 1,
    `alpha` or 0 if neither, one or both of the tokens are linked."""
    aligned, m, n = argmax(matrix), len(matrix), len(matrix[0])
    factors = np.float32(1), np.float32(alpha), np.float32(0)
    for _ in range(iterations - 1):
        rows, columns = {i for i, _ in aligned}, {j for _, j in aligned}
        if min(m, n) <= 2 or len(rows) == m or len(columns) == n:
            break
        discounted = []
        for i in range(m):
            discounted.append([])
            for j in range(n):
                linked = (i in rows) + (j in columns)
                discounted[i].append(matrix[i][j] * factors[linked])
        aligned = aligned | argmax(discounted)
    return aligned


def released(by_rows, by_columns):
    return best_of_rows(by_rows) & best_of_columns(by_columns)


def label(links, i):
    return max((j for row, j in links if row == i), default=-1)


def diagonal(m, n, strength):
    """fast_align's prior before normalisation, exp(-strength |i / m - j / n|) from i = j = 1."""
    rows, columns = np.arange(1, m + 1)[:, None] / m, np.arange(1, n + 1) / n
    return np.exp(-strength * np.abs(rows - columns))
