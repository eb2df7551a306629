"""MMLM and TLM against NumPy, from rows to losses."""

import dataclasses

import jax
import numpy as np
import pytest
from random_rows import CORPUS, rows_of
from references.encoder import float64
from references.mlm import mlm as reference

from xlj.objectives.masking.options import Masking
from xlj.objectives.mlm import loss as mlm
from xlj.objectives.mlm.head import predict
from xlj.objectives.mlm.options import TranslationLM

OPTIONS = TranslationLM(masking=Masking(rate=0.3, mask_share=0.5, random_share=0.35), weight=3.0)


@pytest.mark.parametrize("kind, norm, bias", [("text", "pre", "t5"), ("pairs", "post", "gated")])
def test_the_whole_step_equals_numpy(
    kind, norm, bias, full_model, params_of, keys_of, step_of, assert_sums, assert_masked
):
    absolute = norm == "post"
    model = dataclasses.replace(
        full_model, norm=norm, position_bias=bias, absolute_positions=absolute
    )
    objective = mlm.objective("tlm", OPTIONS, model, CORPUS)
    params, rows = params_of(model, objective), rows_of(kind)
    _, masked, losses, counts, _ = step_of(objective, params, rows, keys_of(rows))
    assert_masked(rows["tokens"], masked, OPTIONS)
    np.testing.assert_array_equal(masked.languages, rows["languages"])
    assert_sums(losses["tlm"], counts["tlm"], reference(float64(params), model, masked))
    assert objective.losses["tlm"].weight == 3 and objective.losses["tlm"].over_vocabulary
    assert not objective.evolves and objective.update("kept", params, masked) == "kept"


def test_logits_are_products_in_the_dtype_of_the_model(full_model, params_of, keys_of):
    """Factors are rounded once. Sums and the softmax are in float32."""
    model = dataclasses.replace(full_model, dtype="bfloat16")
    objective = mlm.objective("mmlm", OPTIONS, model, CORPUS)
    params, rows = params_of(model, objective), rows_of("text")
    masked, head = objective.corrupt(rows, keys_of(rows)), params["prediction_head"]
    hidden = jax.random.normal(jax.random.key(1), (*rows["tokens"].shape, model.hidden))
    factors = predict(
        head, params["embeddings"]["word"], model, mlm.gather(hidden, masked.positions)
    )

    def losses(*dtypes):
        vectors, table, bias = (
            np.asarray(x.astype(dtype), np.float64)
            for x, dtype in zip(factors, dtypes, strict=True)
        )
        logits = vectors @ table.T + bias
        picked = np.take_along_axis(logits, np.asarray(masked.labels)[..., None], -1)[..., 0]
        return ((np.log(np.exp(logits).sum(-1)) - picked) * masked.weights).sum(1)

    actual = mlm.prediction_loss(params, head, model, hidden, masked).sum
    np.testing.assert_allclose(actual, losses("bfloat16", "bfloat16", "float32"), rtol=1e-5)
    assert np.abs(losses(*["float32"] * 3) / np.asarray(actual) - 1).max() > 1e-4
