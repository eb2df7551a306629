"""Runs on fewer devices."""

import jax
import pytest


@pytest.fixture
def devices(monkeypatch):
    """Says how many devices runs of this process see from then on."""
    every = jax.devices()

    def see(count):
        monkeypatch.setattr(jax, "devices", lambda *_: every[:count])

    return see
