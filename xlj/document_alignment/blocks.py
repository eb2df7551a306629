"""Blocks of consecutive sentences of a document, and their vectors.

Vectors are centred: the mean vector of the document is subtracted, so that the cosine of two random
sentences is 0 in the mean. The cosine of centred vectors is therefore a margin against random
sentences of the two documents.
"""

import dataclasses

import numpy as np

from xlj.data.text.splitting import join

SIZES = 4
"""The largest number of sentences of a block."""
WEIGHT = 0.7
"""The power of the length of a sentence that is its weight in a sum."""
_MIN_NORM = 1e-9


@dataclasses.dataclass(frozen=True)
class Blocks:
    """The blocks of a document.

    Attributes:
      weighted: float32 [sentences, width], the vector of each sentence times its weight. The vector
        of a block is the sum of the vectors of its sentences, unless `encoded` has it.
      lengths: float64 [sentences], characters of each sentence.
      starts: int64 [sentences], the first sentence that may share a block with this sentence.
      encoded: float32 [sizes, sentences, width]; row i of size n has the vector of the n sentences
        that end with sentence i. None for sums.
    """

    weighted: np.ndarray
    lengths: np.ndarray
    starts: np.ndarray
    encoded: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.lengths)

    def vectors(self, first: int, stop: int, sizes: int) -> np.ndarray:
        """Returns the unit vectors of the blocks that end with the sentences first to stop - 1.

        Returns:
          float32 [sizes, stop - first, width]; blocks that begin before the document are shorter.
        """
        if self.encoded is not None:
            return self.encoded[:sizes, first:stop]
        vectors = np.zeros((sizes, stop - first, self.weighted.shape[1]), np.float32)
        for size in range(sizes):
            begin = max(first, size)  # the first block of this size that is inside the document
            if begin < stop:
                vectors[size:, begin - first :] += self.weighted[begin - size : stop - size]
        return _unit(vectors)

    def block_lengths(self, sizes: int) -> np.ndarray:
        """Returns the characters of all blocks, float64 [sizes, sentences]; infinite for blocks
        that contain a break."""
        ends = np.concatenate([[0.0], np.cumsum(self.lengths)])
        at = np.arange(len(self))
        result = np.full((sizes, len(self)), np.inf)
        for size in range(sizes):
            inside = at - size >= self.starts
            result[size, inside] = ends[at[inside] + 1] - ends[at[inside] - size]
        return result

    def halved(self) -> "Blocks":
        """Returns a document of half the length, whose sentences are sums of two sentences."""
        firsts = np.arange(0, len(self), 2)
        sums = np.add.reduceat(self.weighted, firsts, axis=0)
        lengths = np.add.reduceat(self.lengths, firsts)
        return Blocks(sums, lengths, np.zeros(len(firsts), np.int64))


def of_sentences(
    vectors: np.ndarray, texts: list[str], starts: np.ndarray, joins: np.ndarray | None = None
) -> Blocks:
    """Returns the blocks of a document.

    The weight of a sentence in a sum is its length to the power of `WEIGHT`, "ours": an encoder
    that pools the tokens of joined sentences weights them by their length, but a short sentence
    then hardly changes a sum.

    Args:
      vectors: float32 [sentences, width].
      texts: the sentences.
      starts: see `Blocks.starts`.
      joins: float32 [SIZES - 1, sentences, width], the vectors of `joined_texts`; None for sums.
    """
    lengths = np.array([max(1, len(text)) for text in texts], np.float64)
    centred = _unit(vectors - vectors.mean(0))
    weighted = centred * (lengths**WEIGHT)[:, None].astype(np.float32)
    encoded = None
    if joins is not None:
        encoded = np.stack([centred, *(_unit(side - side.mean(0)) for side in joins)])
    return Blocks(weighted, lengths, starts, encoded)


def joined_texts(texts: list[str], starts: np.ndarray, size: int) -> list[str]:
    """Returns the text of `size` sentences that end with each sentence. A text does not begin
    before `starts`."""
    begins = np.maximum(np.arange(len(texts)) - size + 1, starts).tolist()
    return [join(texts[begin : end + 1]) for end, begin in enumerate(begins)]


def _unit(vectors: np.ndarray) -> np.ndarray:
    norms = np.sqrt(np.einsum("...d,...d->...", vectors, vectors))[..., None]
    return (vectors / np.maximum(norms, _MIN_NORM)).astype(np.float32)
