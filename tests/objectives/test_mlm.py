"""MMLM and TLM against NumPy, from rows to losses."""

import dataclasses

import numpy as np
import pytest
from random_rows import CORPUS, rows_of
from references.encoder import float64
from references.mlm import mlm as reference

from xlj.config.objectives.mlm import Masking
from xlj.objectives import mlm

OPTIONS = Masking(mask_rate=0.3, mask_share=0.5, random_share=0.35, weight=3.0)


@pytest.mark.parametrize("kind, norm, bias", [("text", "pre", "t5"), ("pairs", "post", "gated")])
def test_all_of_it_equals_numpy(
    kind, norm, bias, full_model, params_of, keys_of, step_of, assert_sums, assert_masked
):
    absolute = norm == "post"
    model = dataclasses.replace(
        full_model, norm=norm, position_bias=bias, absolute_positions=absolute
    )
    objective = mlm.objective("tlm", OPTIONS, model, CORPUS)
    params, rows = params_of(model, objective), rows_of(kind)
    _, masked, losses, counts, _ = step_of(objective, params, rows, keys_of(rows))
    assert_masked(rows.tokens, masked, OPTIONS)
    np.testing.assert_array_equal(masked.languages, rows.languages)
    assert_sums(losses["tlm"], counts["tlm"], reference(float64(params), model, masked))
    assert objective.losses["tlm"].weight == 3 and objective.losses["tlm"].over_vocabulary
