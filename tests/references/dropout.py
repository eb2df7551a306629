"""Reference implementation of dropout masks: hashes of a row's key, layer, site and position."""

import numpy as np


def mixed(x):
    """The hash lowbias32 (Wellons) of uint32 numbers."""
    x = x ^ (x >> np.uint32(16))
    x = x * np.uint32(0x7FEB352D)
    x = x ^ (x >> np.uint32(15))
    x = x * np.uint32(0x846CA68B)
    return x ^ (x >> np.uint32(16))


def kept(words, layer, site, shape, rate):
    """Which components dropout keeps, bool [rows, *shape]; `words` [rows, 2] is each row's key as
    two uint32 words."""
    seed = np.full(len(words), 0x1E3779B9, np.uint32)
    for number in (words[:, 0], words[:, 1], np.uint32(layer), np.uint32(site)):
        seed = mixed(seed ^ number)
    for size in shape:
        seed = mixed(seed[..., None] ^ np.arange(size, dtype=np.uint32))
    return seed // 256 >= round(rate * 2**24)
