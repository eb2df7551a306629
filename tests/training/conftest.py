"""Fixtures for runs on fewer devices."""

import jax
import pytest


@pytest.fixture
def devices(monkeypatch):
    """A function that sets how many devices the runs of this process see from then on."""
    every = jax.devices()

    def see(count):
        monkeypatch.setattr(jax, "devices", lambda *_: every[:count])

    return see
