"""What speaks for a pair of blocks: similar vectors, and lengths in the ratio of the documents.

The score of a pair is a log-likelihood ratio: how much more likely are its cosine and its ratio of
lengths if the blocks translate each other than if they are random blocks of the two documents? All
parameters are estimated from the two documents, without gold:

- First from sentences that are mutual nearest neighbours.
- Then from the pairs, the kinds and the gaps of the best path.

The length of a translation follows Gale and Church (1993), with the ratio in place of the
difference. The rest is "ours".
"""

import dataclasses
import math

import numpy as np

from xlj.document_alignment.blocks import Blocks
from xlj.document_alignment.programme import Path, Scores

SAMPLE = 1000
"""The number of sentences whose nearest neighbours are searched for the first estimate."""
_LONGEST = np.float32(8.0)
"""The largest loss of a pair by its lengths, so that one odd pair does not displace a path."""
_WORTH = 0.8
"""The factor of the likelihood ratio of a cosine: neighbours, the usual mistakes, are more alike
than random sentences."""
_FREE = np.float32(3.0)
"""The largest loss of a pair by its cosine: about 1 in 20 translations is so free that its cosine
is random."""
_MAD = 1.4826  # the standard deviation of a normal distribution with median absolute deviation 1
_CHUNK = 64  # rows of cosines that are computed at a time
_KINDS_WEIGHT = 20.0  # the number of pairs that the first shares of kinds are worth


@dataclasses.dataclass(frozen=True)
class Evidence:
    """Parameters of the scores.

    Attributes:
      similar: the median cosine of translations.
      spread: the standard deviation of the cosines of translations.
      random_spread: the standard deviation of the cosines of random sentences, whose mean is 0.
      log_ratio: the median of log(target length / source length) of translations.
      ratio_variance: the variance of this logarithm for long translations.
      ratio_noise: what 1 / length adds to this variance, with the harmonic mean of both lengths.
      random_ratio_variance: the variance of this logarithm for random sentences.
      kinds: float64 [sizes, sizes], the share of each kind of pair: n sources and m targets.
      gap: the probability that a gap follows a pair.
      stay: the probability that a sentence of a gap is followed by another sentence of the gap.
    """

    similar: float
    spread: float
    random_spread: float
    log_ratio: float
    ratio_variance: float
    ratio_noise: float
    random_ratio_variance: float
    kinds: np.ndarray
    gap: float = 0.05
    stay: float = 0.6

    @property
    def gap_scores(self) -> dict[str, float]:
        """The arguments of `programme.best_path` for gaps."""
        return {
            "open_gap": math.log(self.gap) - math.log(self.stay),
            "skip": math.log(self.stay),
            "close": math.log(1 - self.stay) - math.log(1 - self.gap),
        }


def first_kinds(sizes: int) -> np.ndarray:
    """Returns the shares of kinds of pairs before any estimate, float64 [sizes, sizes].

    A pair of one and one sentence has most of them. Each further sentence halves the share, and a
    pair of several with several sentences is 16 times rarer.
    """
    n, m = np.indices((sizes, sizes))
    shares = 0.12 / 2.0 ** (n + m + 4 * ((n > 0) & (m > 0)))
    shares[0, 0] = 0.85
    return shares / shares.sum()


def first_estimate(source: Blocks, target: Blocks, sizes: int) -> Evidence:
    """Estimates the parameters from sentences that are mutual nearest neighbours."""
    rows = np.unique(np.linspace(0, len(source) - 1, min(len(source), SAMPLE)).astype(np.int64))
    columns, random_spread = _nearest(source, target, rows)
    back, _ = _nearest(target, source, columns)
    mutual = back == rows
    if not mutual.any():
        mutual[:] = True
    return _estimate(source, target, rows[mutual], columns[mutual], random_spread, sizes)


def _nearest(source: Blocks, target: Blocks, rows: np.ndarray) -> tuple[np.ndarray, float]:
    """Returns the nearest target of each row, and the standard deviation of all cosines."""
    targets = target.vectors(0, len(target), 1)[0]
    nearest, squares = [], 0.0
    for k in range(0, len(rows), _CHUNK):
        vectors = np.concatenate([source.vectors(i, i + 1, 1)[0] for i in rows[k : k + _CHUNK]])
        cosines = vectors @ targets.T
        nearest.append(cosines.argmax(1))
        squares += float(np.square(cosines).sum(dtype=np.float64))
    return np.concatenate(nearest), math.sqrt(squares / (len(rows) * len(target)))


def _estimate(
    source: Blocks, target: Blocks, i: np.ndarray, j: np.ndarray, random_spread: float, sizes: int
) -> Evidence:
    """Estimates the parameters from pairs of sentences."""
    cosines = _cosines(source, target, i, j)
    similar = float(np.median(cosines))
    ratios = np.log(target.lengths[j]) - np.log(source.lengths[i])
    log_ratio = float(np.median(ratios))
    inverse = (1 / source.lengths[i] + math.exp(log_ratio) / target.lengths[j]) / 2
    variance, noise = _variances(ratios - log_ratio, inverse)
    random_variance = sum(float(np.log(side.lengths).var()) for side in (source, target))
    return Evidence(
        similar,
        max(1e-3, _MAD * float(np.median(abs(cosines - similar)))),
        max(1e-3, random_spread),
        log_ratio,
        variance,
        noise,
        random_variance + variance + noise * float(np.median(inverse)),
        first_kinds(sizes),
    )


def _variances(ratios: np.ndarray, inverse: np.ndarray) -> tuple[float, float]:
    """Fits the variance of ratios to `variance + noise * inverse`, at the median of the longer and
    of the shorter half of the pairs."""
    is_short: np.ndarray = np.asarray(inverse >= np.median(inverse))
    is_long = is_short if is_short.all() else np.logical_not(is_short)
    (short, at_short), (long, at_long) = (
        ((_MAD * float(np.median(abs(ratios[half])))) ** 2, float(np.median(inverse[half])))
        for half in (is_short, is_long)
    )
    noise = max(0.0, short - long) / max(at_short - at_long, 1e-9)
    noise = min(noise, long / at_long)  # the variance of long pairs is at least 0
    return max(1e-3, long - noise * at_long), noise


def _cosines(source: Blocks, target: Blocks, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    sides = [
        side.weighted[at] / np.linalg.norm(side.weighted[at], axis=1, keepdims=True).clip(1e-9)
        for side, at in ((source, i), (target, j))
    ]
    return np.einsum("nd,nd->n", *sides)


def estimate_again(evidence: Evidence, source: Blocks, target: Blocks, path: Path) -> Evidence:
    """Estimates the parameters from a path. Kinds and gaps that a path lacks remain possible."""
    steps = path.sizes
    is_pair: np.ndarray = np.asarray((steps > 0).all(1))
    single = (steps == 1).all(1)
    if not single.any():
        return evidence
    i, j = path.cells[1:][single].T - 1
    sizes = len(evidence.kinds)
    new = _estimate(source, target, i, j, evidence.random_spread, sizes)
    counts = np.zeros((sizes, sizes))
    np.add.at(counts, tuple(steps[is_pair].T - 1), 1)
    kinds = (counts + _KINDS_WEIGHT * new.kinds) / (counts.sum() + _KINDS_WEIGHT)
    pairs, skips = int(is_pair.sum()), int((~is_pair).sum())
    follows_pair = np.concatenate([[True], is_pair])[:-1]
    gaps = int((~is_pair & follows_pair).sum())
    gap = (gaps + 1) / (pairs + _KINDS_WEIGHT)
    stay = (skips - gaps + 1.2) / (skips + 2)
    return dataclasses.replace(new, kinds=kinds, gap=min(gap, 0.5), stay=stay)


class Scorer:
    """Scores pairs of blocks.

    Args:
      with_lengths: whether lengths count.
    """

    def __init__(
        self, evidence: Evidence, source: Blocks, target: Blocks, with_lengths: bool = True
    ):
        self._evidence, self._sides, self._with_lengths = evidence, (source, target), with_lengths
        self._sizes = len(evidence.kinds)
        lengths = [side.block_lengths(self._sizes) for side in self._sides]
        self._is_broken = [np.isinf(side) for side in lengths]
        log_lengths = (np.log(np.where(np.isinf(side), 1, side)) for side in lengths)
        self._log_lengths = [side.astype(np.float32) for side in log_lengths]
        self._log_lengths[0] += np.float32(evidence.log_ratio)
        noise = evidence.ratio_noise / 2
        of_source = evidence.ratio_variance + noise / lengths[0]
        of_target = noise * math.exp(evidence.log_ratio) / lengths[1]
        self._variances = [of_source.astype(np.float32), of_target.astype(np.float32)]
        prior = np.log(evidence.kinds) + math.log(1 - evidence.gap)
        self._prior = prior.astype(np.float32)[None, :, :, None]

    @property
    def scores(self) -> Scores:
        """The function for `programme.best_path`: likelihood ratios and the shares of kinds."""
        return self._scores

    def _scores(self, i: int, k: int, lo: int, hi: int) -> np.ndarray:
        ratios = self.ratios(i, k, lo, hi)
        ratios += self._prior
        return ratios

    def ratios(self, i: int, k: int, lo: int, hi: int) -> np.ndarray:
        """Returns log-likelihood ratios, float32 [k - i, sizes, sizes, hi - lo]; `-inf` for blocks
        with breaks. The arguments are the arguments of `programme.Scores`."""
        evidence, sizes = self._evidence, self._sizes
        x = self._sides[0].vectors(i - 1, k - 1, sizes).transpose(1, 0, 2)
        y = self._sides[1].vectors(lo - 1, hi - 1, sizes)
        result = x.reshape(-1, x.shape[2]) @ y.reshape(-1, y.shape[2]).T
        result = result.reshape(k - i, sizes, sizes, hi - lo)  # cosines
        variance = (evidence.spread**2 + evidence.random_spread**2) / 2
        result -= np.float32(evidence.similar / 2)
        slope = _WORTH * max(evidence.similar, evidence.random_spread) / variance
        result *= np.float32(slope)
        np.maximum(result, -_FREE, out=result)
        rows = np.s_[i - 1 : k - 1, :, None, None]
        columns = np.s_[:, lo - 1 : hi - 1]
        if self._with_lengths:
            wide = np.float32(evidence.random_ratio_variance)
            narrow = self._variances[0].T[rows] + self._variances[1][columns]
            narrow /= wide
            off = self._log_lengths[1][columns] - self._log_lengths[0].T[rows]
            off *= off
            off *= (1 - 1 / narrow) / wide
            off -= np.log(narrow)
            result += np.maximum(off / 2, -_LONGEST)
        is_broken = self._is_broken[0].T[rows], self._is_broken[1][columns]
        if any(side.any() for side in is_broken):
            result[is_broken[0] | is_broken[1]] = -np.inf
        return result
