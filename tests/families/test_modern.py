"""The options of a model determine which layers have local attention."""

import pytest

from xlj.config import Model
from xlj.families.modern import is_local


@pytest.mark.parametrize(
    "options, full",
    [
        ({"full_attention_every": 3}, [0, 3, 6, 9, 12, 15, 18, 21]),
        ({"full_attention_every": 5}, [0, 5, 10, 15, 20]),
        ({"full_layers": ("1", "21")}, [1, 21]),
        ({"local_attention": 0}, list(range(22))),
    ],
)
def test_layers_with_full_attention(options, full):
    model = Model(**{"local_attention": 16} | options)
    assert [layer for layer in range(22) if not is_local(model, layer)] == full
