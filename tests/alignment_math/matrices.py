"""Random matrices of many sizes, separate and padded into one array."""

import numpy as np


def random_matrices(count, largest, seed=0):
    """Returns matrices of 1 to `largest` rows and columns; half have ties and zeros."""
    random = np.random.default_rng(seed)
    matrices = []
    for k in range(count):
        shape = random.integers(1, largest + 1, 2)
        matrix = random.integers(0, 5, shape) / 4 if k % 2 else random.random(shape)
        matrices.append(matrix.astype(np.float32))
    return matrices


def padded(matrices, filler):
    """Pads matrices to one array [count, m, n] with `filler`, and returns the ids of its tokens."""
    m, n = (max(matrix.shape[axis] for matrix in matrices) for axis in (0, 1))
    similarity = np.full((len(matrices), m, n), filler, np.float32)
    source_ids = np.zeros((len(matrices), m), np.int32)
    target_ids = np.zeros((len(matrices), n), np.int32)
    for k, matrix in enumerate(matrices):
        rows, columns = matrix.shape
        similarity[k, :rows, :columns] = matrix
        source_ids[k, :rows] = target_ids[k, :columns] = 1
    return similarity, source_ids, target_ids


def packed(matrices, filler):
    """Packs all examples into one block matrix [sum m, sum n], and returns the ids of its tokens.

    Between examples there is a token of no example, like `</s>` in a row.
    """
    source_ids = np.concatenate([[k] * len(x) + [0] for k, x in enumerate(matrices, 1)])
    target_ids = np.concatenate([[0] + [k] * x.shape[1] for k, x in enumerate(matrices, 1)])
    similarity = np.full((len(source_ids), len(target_ids)), filler, np.float32)
    for k, matrix in enumerate(matrices, 1):
        similarity[np.ix_(source_ids == k, target_ids == k)] = matrix
    return similarity, source_ids.astype(np.int32), target_ids.astype(np.int32)


def links_of(array):
    return {(int(i), int(j)) for i, j in np.argwhere(np.asarray(array))}
