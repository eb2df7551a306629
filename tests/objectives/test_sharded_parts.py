"""All parameters and states of objectives match a sharding rule, and large arrays are sharded."""

import jax
import numpy as np
import pytest
from every_objective import OBJECTIVES, objective_and_rows
from jax.sharding import AxisType, Mesh
from random_rows import CORPUS, SIZE

from xlj.models import encoder
from xlj.sharding.devices import AXES, RULES
from xlj.sharding.trees import shardings


@pytest.mark.parametrize("name", OBJECTIVES)
def test_every_kernel_and_table_is_sharded(name, full_model):
    """The kernels of gates are excluded, since they are tiny and have their own rule."""
    objective, _ = objective_and_rows(name, full_model)
    mesh = Mesh(np.array(jax.devices()[:4]).reshape(1, 4), AXES, axis_types=(AxisType.Auto,) * 2)

    def params_and_state():
        params = encoder.init(jax.random.key(0), full_model, SIZE, len(CORPUS.languages))
        params |= {part: make(jax.random.key(1)) for part, make in objective.parts.items()}
        return {"params": params, "objective": objective.init_state(params)}

    places = jax.tree_util.tree_leaves_with_path(
        shardings(jax.eval_shape(params_and_state), mesh, RULES + objective.rules)
    )
    split = {jax.tree_util.keystr(path) for path, place in places if "fsdp" in place.spec}
    names = [jax.tree_util.keystr(path) for path, _ in places]
    large = {
        name
        for name in names
        if ("kernel" in name or "embeddings" in name and "norm" not in name) and "gates" not in name
    }
    assert large <= split and len(large) > 8, large - split
    assert not any("bias" in name or "scale" in name for name in split)
