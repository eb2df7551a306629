"""Codes of the links between the tokens of a pair, for training on word links."""

import numpy as np

LINK, HALF, EXCLUDED = 1, 2, 3
"""Codes of two tokens: a link; a link with half the weight; and a link that is neither trained nor
used as a negative. On the diagonal, `EXCLUDED` marks a token whose counterparts are unknown."""

POSITIVES = {"sure": 0, "both": LINK, "weighted": HALF, "ignored": EXCLUDED}
"""Values of `task.positives`, and the code of a link that is possible but not sure."""


def pack(codes: np.ndarray) -> np.ndarray:
    """Packs codes, uint8 [..., length, length], to two bits each: uint8 [..., 2, length, bytes]."""
    return np.stack([np.packbits(codes >> bit & 1, axis=-1) for bit in (0, 1)], axis=-3)
