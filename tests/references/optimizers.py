"""Reference implementation of optimizers in NumPy float64, one tensor at a time."""

import numpy as np


class StableAdamW:
    """StableAdamW of one tensor; `damping` is the divisor of the rate in the latest update."""

    def __init__(self, beta1, beta2, epsilon):
        self.betas, self.epsilon = (beta1, beta2), epsilon
        self.time, self.m, self.v, self.damping = 0, 0.0, 0.0, 1.0

    def update(self, param, gradient, rate, decay, share=1.0):
        """Returns the updated parameter. Weight decay subtracts rate * share * decay of the
        parameter."""
        self.time += 1
        beta1, beta2 = (
            beta * (1 - beta ** (self.time - 1)) / (1 - beta**self.time) for beta in self.betas
        )
        self.m = beta1 * self.m + (1 - beta1) * gradient
        self.v = beta2 * self.v + (1 - beta2) * gradient**2
        rms = np.sqrt(np.mean(gradient**2 / np.maximum(self.v, self.epsilon**2)))
        self.damping = max(1, rms)
        rate = rate / self.damping
        param = param * (1 - rate * share * decay)
        return param - rate * self.m / (np.sqrt(self.v) + self.epsilon)


def orthogonalised(matrix, steps=5):
    """Muon's Newton-Schulz iteration (Jordan, 2024): approximately U V' of a matrix U S V'."""
    a, b, c = 3.4445, -4.7750, 2.0315
    x = matrix / np.linalg.norm(matrix)
    if x.shape[0] > x.shape[1]:
        return orthogonalised(matrix.T, steps).T
    for _ in range(steps):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x
