"""Attention by cuDNN, through `jax.nn.dot_product_attention`.

cuDNN reads segment ids and windows as a mask of all token pairs, so memory is quadratic in the
length of a row. `model.attention=auto` does not use it: no GPU has compared it with the kernels on
packed rows.
"""

import jax
import jax.numpy as jnp

from xlj.models.attention import interface
from xlj.models.attention.interface import Costs, Mask, Operands, Request


class CuDnn(interface.Implementation):
    """Attention of 16-bit types by cuDNN, without bias and dropout."""

    def why_not(self, request: Request) -> str | None:
        """Returns why cuDNN cannot compute a request; None if it can.

        JAX checks dtype, head size, length and the version of cuDNN when it traces cuDNN's
        attention. So this function traces a forward and a backward pass.
        """
        if request.platform != "gpu":
            return "runs on GPUs"
        if request.has_bias:
            return "takes no position bias together with a mask"
        if request.has_dropout:
            return "has no dropout in JAX (model.attention_dropout)"
        shape = (1, request.length, request.heads, request.size)
        ids = jax.ShapeDtypeStruct(shape[:2], jnp.int32)

        def total(heads: jax.Array, ids: jax.Array) -> jax.Array:
            mask = Mask(ids, ids, request.window)
            return self.attend(Operands(heads, heads, heads, mask)).astype(jnp.float32).sum()

        try:
            jax.eval_shape(jax.grad(total), jax.ShapeDtypeStruct(shape, request.dtype), ids)
        except (NotImplementedError, RuntimeError, ValueError) as error:
            return str(error).splitlines()[0]
        return None

    def why_slower(self, request: Request) -> str | None:
        """Returns why `auto` does not use cuDNN on GPUs; elsewhere, `why_not` refuses it."""
        return "not measured on packed rows" if request.platform == "gpu" else None

    def costs(self, request: Request) -> Costs:
        """Returns operations and bytes, without the mask."""
        return interface.costs_of(request, (2, 5), request.length)

    def attend(self, operands: Operands) -> jax.Array:
        """Computes attention without bias and dropout (`Implementation.attend`)."""
        operands.check(operands.query.shape[1])
        assert operands.bias is None and not operands.rate, "refused by why_not"
        visible = operands.mask.of_queries(operands.mask.query_segment_ids)
        heads = operands.query, operands.key, operands.value
        output = jax.nn.dot_product_attention(*heads, mask=visible[:, None], implementation="cudnn")
        # For a query that sees no key, cuDNN returns the mean of all values.
        return jnp.where(visible.any(-1)[:, :, None, None], output, 0)
