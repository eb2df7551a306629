"""Fixtures for runs on fewer devices."""

import jax
import pytest


@pytest.fixture
def devices(monkeypatch):
    """A function that sets the number of devices that later runs of this process use."""
    all_devices = jax.devices()

    def set_count(count):
        monkeypatch.setattr(jax, "devices", lambda *_: all_devices[:count])

    return set_count
