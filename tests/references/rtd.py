"""Reference implementation of replaced token detection (XLM-E section 3.1, after ELECTRA)."""

import numpy as np

from references.encoder import encode
from references.heads import detection, prediction
from references.layout import PAD
from references.losses import of_masked, softplus
from references.mlm import selected


def losses(params, model, original, masked, noise, temperature):
    """Sums, counts and correct predictions, [rows] each, of the generator and the discriminator.

    Args:
      original: tokens before corruption, [rows, length].
      noise: Gumbel noise of each token's sample, [rows, length, vocabulary].
    """
    generator = {"embeddings": params["embeddings"]} | params["generator"]
    hidden = encode(generator, model, masked.tokens, masked.languages)[-1]
    logits = prediction(generator["head"], generator["embeddings"]["word"], model, hidden)
    samples = (logits / temperature + noise).argmax(-1)
    replaced = np.where(selected(masked), samples, original)
    # A sample may be a special token; it must not start an example.
    hidden = encode(params, model, replaced, masked.languages, shape=original)[-1]
    scores = detection(params["detection_head"], hidden)
    real, changed = original != PAD, replaced != original
    loss = softplus(np.where(changed, -scores, scores))
    correct = (scores > 0) == changed
    return of_masked(logits, masked), np.stack([(x * real).sum(1) for x in (loss, real, correct)])
