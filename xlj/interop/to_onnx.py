"""Writes an encoder as an ONNX graph, with sentence modules or a task head.

The graph computes what the exported class of transformers computes. Its inputs are the ids of the
exported tokenizer. The graph of an encoder is built from the options of `Model`, so each
architecture of an export has one. Masks, rotary positions and position biases are computed once for
all layers.

int8 weights (`Weights`) are symmetric. The matrices of the encoder have a scale for each output,
the word embeddings a scale for each row. Vectors are quantized when the graph runs: the inner
vectors of feed-forward layers with a scale for each token, since those of a few tokens are far
larger than all others, and the other vectors with one scale for each batch. Task heads and sentence
modules stay float32: they are small, and are applied to one vector of a text.
"""

import json
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from xlj.config import Model
from xlj.contracts.arrays import PyTree
from xlj.data.tokenizer.layout import PAD
from xlj.data.tokenizer.sentence_tokenizer import describe
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.families.interface import SURPLUS
from xlj.families.modern import is_local
from xlj.interop import task_heads
from xlj.interop.onnx_graph import Graph
from xlj.interop.onnx_names import (
    HIDDEN,
    LOGITS,
    METADATA,
    METADATA_VERSION,
    PROMPT_LENGTH,
    VECTOR,
    WEIGHTS,
)
from xlj.interop.sentence_modules import MIN_NORM, SENTENCE, Dense, SentenceModules
from xlj.interop.to_hugging_face import ExportPlan, vocabulary_rows
from xlj.models.embeddings import FIRST_POSITION
from xlj.models.encoder import middle_layer
from xlj.models.positions import buckets, rotary_frequencies

_ROWS, _LENGTH = "batch_size", "sequence_length"
_BOOL, _FLOAT, _INT64 = 9, 1, 7  # `onnx.TensorProto.DataType`
_LEAST_GELU = -0.17  # GELU is larger everywhere
_ZERO_OF_BOUNDED = 32  # the integer of 0 for values that are bounded below
_HIDES = -1e30  # the score of a key that a query does not see, as in `attention.reference`


class _Masks(NamedTuple):
    """What all layers of a kind add to their scores, and the rotations of queries and keys."""

    scores: str
    cosines: str
    sines: str


class _Quantized(NamedTuple):
    """Vectors: the integers, uint8, minus `zero` and times the scale."""

    integers: str
    zero: str
    scale: str = ""
    """The scale of all vectors, []; empty if each token has its own."""
    token_scales: str = ""
    """The scales of tokens, [rows, length, 1]; empty if all have one."""


def write(
    path: Path,
    exported: ExportPlan,
    params: Mapping[str, PyTree],
    model: Model,
    vocabulary: Vocabulary,
    sentence: SentenceModules | None = None,
    weights: str = "float32",
    max_inline: int | None = None,
) -> None:
    """Writes the graph of an export (`to_hugging_face.plan`) to a file.

    Args:
      path: of the file, in an existing folder.
      params: the parameters by name, with the weights of sentence modules. Each is read while the
        file is written.
      sentence: the sentence modules, which add the output `sentence_embedding`; None for none.
      weights: one of `WEIGHTS`.
      max_inline: an argument of `Graph.save`.
    """
    _Writer(exported, params, model, vocabulary, weights).write(path, sentence, max_inline)


class _Writer:
    """Adds the parts of a model to a graph. Values [...] are names of tensors in the graph."""

    def __init__(
        self,
        exported: ExportPlan,
        params: Mapping[str, PyTree],
        model: Model,
        vocabulary: Vocabulary,
        weights: str,
    ):
        self._exported, self._params, self._model = exported, params, model
        self._vocabulary, self._weights = vocabulary, weights
        self._graph = Graph()
        self._op, self._constant = self._graph.op, self._graph.constant

    def write(self, path: Path, sentence: SentenceModules | None, max_inline: int | None) -> None:
        """Writes the graph: inputs, encoder, then the sentence modules or the head."""
        op, graph, head = self._op, self._graph, self._head()
        has_choices = head == "multiple_choice_head"
        dims = (_ROWS, "choices", _LENGTH) if has_choices else (_ROWS, _LENGTH)
        types = self._exported.architecture.type_rows(self._model)
        names = ("input_ids", "attention_mask", *(("token_type_ids",) if types > 1 else ()))
        inputs = [graph.input(name, dims) for name in names]
        rows_shape = ""
        if has_choices:
            rows_shape = op("Shape", inputs[0], end=2)
            one_row = op("Concat", self._ints(-1), op("Shape", inputs[0], start=2), axis=0)
            inputs = [op("Reshape", x, one_row) for x in inputs]
        ids, mask, *token_types = inputs
        hidden = self._encoder(ids, mask, *token_types)
        if head == "prediction_head":
            graph.output(self._token_logits(hidden), LOGITS, (*dims, len(self._exported.rows)))
        elif head:
            self._task_head(head, hidden, mask, rows_shape)
        else:
            graph.output(hidden, HIDDEN, (*dims, self._model.hidden))
            if sentence:
                vectors, width = self._sentence_vectors(hidden, mask, sentence)
                graph.output(vectors, VECTOR, (_ROWS, width))
        graph.save(path, {METADATA: json.dumps(self._record(sentence))}, max_inline)

    def _record(self, sentence: SentenceModules | None) -> dict[str, Any]:
        model = self._model
        return {
            "version": METADATA_VERSION,
            "layers": model.layers,
            "default_layer": middle_layer(model.layers),
            "hidden": model.hidden,
            "max_tokens": model.positions - FIRST_POSITION,
            "tokenizer": describe(self._vocabulary),
            "weights": self._weights,
            "sentence": sentence.record() if sentence else None,
        }

    def _head(self) -> str:
        """Returns the head, or the head of xlj that has the same tensors; empty without a head."""
        hf_task = task_heads.hf_task_of(self._exported.head, self._exported.own)
        return (hf_task and hf_task.like) or self._exported.head

    def _pad(self) -> int:
        return max(int(self._vocabulary.native_ids[PAD]), 0)

    # Parameters.

    def _ints(self, *values: int) -> str:
        return self._constant(values, np.int64)

    def _parameter(
        self, name: str, layer: int | None = None, change: Callable = lambda values: values
    ) -> str:
        """Adds a parameter to the graph, or one layer of it, after a change of its values that
        preserves their shape."""
        parameter = self._params[name]
        in_graph = name if layer is None else f"{name}/{layer}"
        if self._graph.has_weight(in_graph):
            return in_graph
        if layer is None:
            return self._graph.weight(in_graph, parameter.shape, [parameter], change)
        row = layer - self._lacks_first(name)
        return self._graph.weight(
            in_graph, parameter.shape[1:], [parameter], lambda values: change(values[row])
        )

    def _lacks_first(self, name: str) -> bool:
        """Returns whether the first layer has no parameter `name`, as in ModernBERT."""
        return self._model.norm == "embeddings" and name.startswith("layers/attention_norm")

    def _of_vocabulary(self, name: str) -> tuple[tuple[int, ...], list[Any], Callable]:
        """Returns the shape, the sources and the function to read a parameter with a row for each
        row of the exported word embeddings."""
        table, surplus = self._params[name], self._params.get(SURPLUS + name)
        sources = [table] if surplus is None else [table, surplus]

        def read(table: np.ndarray, surplus: np.ndarray | None = None) -> np.ndarray:
            return np.concatenate([*vocabulary_rows(table, self._exported.rows, surplus)])

        return (len(self._exported.rows), *table.shape[1:]), sources, read

    def _quantized(self, name: str, shape: Sequence[int], sources: Sequence[Any],
                   read: Callable, axis: int) -> tuple[str, str]:  # fmt: skip
        """Adds a matrix as integers, and the scales along the other axis than `axis`."""
        dtype, zero = WEIGHTS[self._weights], 128 if self._weights == "uint8" else 0

        def scales_of(values: np.ndarray) -> np.ndarray:
            largest = abs(values).max(axis, keepdims=True)
            return np.where(largest > 0, largest, 1) / np.float32(127)

        def integers(*arrays: np.ndarray) -> np.ndarray:
            values = read(*arrays)
            return np.rint(values / scales_of(values)) + zero

        def scales(*arrays: np.ndarray) -> np.ndarray:
            return scales_of(read(*arrays)).reshape(scales_shape)

        scales_shape = (shape[0], 1) if axis == 1 else (shape[1],)
        matrix = self._graph.weight(f"{name}/integers", shape, sources, integers, dtype)
        return matrix, self._graph.weight(f"{name}/scales", scales_shape, sources, scales)

    # Layers of a network.

    def _linear(self, x: str, name: str, layer: int | None = None) -> str:
        """Computes x @ kernel + bias in float32, for the parameters `name`."""
        y = self._op("MatMul", x, self._parameter(f"{name}/kernel", layer))
        if f"{name}/bias" not in self._params:
            return y
        return self._op("Add", y, self._parameter(f"{name}/bias", layer))

    def _wide_linear(
        self,
        x: str,
        names: Sequence[str],
        layer: int,
        factors: Sequence[float] = (1.0,),
        quantize: Callable[[str], _Quantized] | None = None,
    ) -> str:
        """Computes linear layers of the same input as one product, in the type of the weights.

        Args:
          names: of the linear layers. Their outputs are concatenated.
          factors: by which the outputs of each layer are multiplied.
          quantize: adds the operators that quantize the input, for integer weights; None for one
            scale for each batch.
        """
        kernels = [self._params[f"{name}/kernel"] for name in names]
        shape = kernels[0].shape[1], sum(kernel.shape[2] for kernel in kernels)

        def read(*arrays: np.ndarray) -> np.ndarray:
            scaled = [a[layer] * np.float32(f) for a, f in zip(arrays, factors, strict=True)]
            return np.concatenate(scaled, axis=-1)

        name = f"{'+'.join(names)}/kernel/{layer}"
        y = self._product(x, name, shape, kernels, read, quantize or self._by_batch)
        if f"{names[0]}/bias" not in self._params:
            return y
        biases = [self._params[f"{name}/bias"] for name in names]
        name = f"{'+'.join(names)}/bias/{layer}"
        return self._op("Add", y, self._graph.weight(name, shape[1:], biases, read))

    def _product(self, x: str, name: str, shape: tuple[int, int], sources: Sequence[Any],
                 read: Callable, quantize: Callable[[str], _Quantized]) -> str:  # fmt: skip
        """Computes x [..., inputs] @ matrix [inputs, outputs], in the type of the weights."""
        op = self._op
        if self._weights == "float32":
            return op("MatMul", x, self._graph.weight(name, shape, sources, read))
        matrix, scales = self._quantized(name, shape, sources, read, axis=0)
        zero = self._constant(128 if self._weights == "uint8" else 0, WEIGHTS[self._weights])
        of_x = quantize(x)
        y = op("Cast", op("MatMulInteger", of_x.integers, matrix, of_x.zero, zero), to=_FLOAT)
        # If the scales of tokens were multiplied with those of outputs first, onnxruntime (1.32)
        # would replace the products and the following bias by one operator, with wrong results.
        y = op("Mul", y, op("Mul", of_x.scale, scales) if of_x.scale else scales)
        return op("Mul", y, of_x.token_scales) if of_x.token_scales else y

    def _by_batch(self, x: str) -> _Quantized:
        """Quantizes vectors with one scale for all."""
        integers, scale, zero = self._op("DynamicQuantizeLinear", x, count=3)
        return _Quantized(integers, zero, scale=scale)

    def _by_token(self, x: str, width: int, least: float | None = None) -> _Quantized:
        """Quantizes vectors [rows, length, width] with a scale for each token.

        onnxruntime takes one zero for all tokens. Without `least`, the integers are symmetric to
        128. With `least`, they are symmetric to `_ZERO_OF_BOUNDED`, so more of them are positive.

        Args:
          least: no value is smaller than this negative number; None if values have no bound.
        """
        op, last = self._op, self._ints(-1)
        if least is None:
            zero = 128
            largest = op("ReduceMax", op("Abs", x), last)
            scales = op("Div", largest, self._constant(127.0))
        else:
            zero = _ZERO_OF_BOUNDED
            scales = op("Div", op("ReduceMax", x, last), self._constant(255.0 - zero))
            scales = op("Max", scales, self._constant(-least / zero))
        flat = op("Reshape", scales, last)
        zeros = op("Expand", self._constant(zero, np.uint8), op("Shape", flat))
        vectors = op("Reshape", x, self._ints(-1, width))
        integers = op("QuantizeLinear", vectors, flat, zeros, axis=0)
        integers = op("Reshape", integers, op("Shape", x))
        return _Quantized(integers, self._constant(zero, np.uint8), token_scales=scales)

    def _norm(self, x: str, name: str, layer: int | None = None) -> str:
        op, model = self._op, self._model
        scale = self._parameter(f"{name}/scale", layer)
        if model.norm_type != "rms":
            has_bias = f"{name}/bias" in self._params
            bias = [self._parameter(f"{name}/bias", layer)] if has_bias else []
            epsilon = model.layer_norm_epsilon
            return op("LayerNormalization", x, scale, *bias, axis=-1, epsilon=epsilon)
        mean = op("ReduceMean", op("Pow", x, self._constant(2.0)), self._ints(-1))
        root = op("Sqrt", op("Add", mean, self._constant(model.layer_norm_epsilon)))
        return op("Mul", op("Div", x, root), scale)

    # The encoder.

    def _encoder(self, ids: str, mask: str, token_types: str = "") -> str:
        """Returns the hidden vectors of the last layer, [rows, length, hidden]."""
        op, model = self._op, self._model
        x = self._embeddings(ids, token_types)
        kinds = [is_local(model, layer) for layer in range(model.layers)]
        masks = self._masks(ids, mask, {*kinds})
        bias = self._position_bias(ids) if model.position_bias != "none" else ""
        # The operator Sum adds a residual. onnxruntime would fuse Add and a norm to one operator
        # (SkipLayerNormalization), which takes eight times as long on CPUs (release 1.32).
        for layer, kind in enumerate(kinds):
            for part, function in (
                ("attention", partial(self._attention, masks=masks[kind], bias=bias)),
                ("feed_forward", self._feed_forward),
            ):
                norm = f"layers/{part}_norm"
                if model.norm == "post":
                    x = self._norm(op("Sum", x, function(x, layer)), norm, layer)
                    continue
                has_norm = layer > 0 or not self._lacks_first(norm)
                y = self._norm(x, norm, layer) if has_norm else x
                x = op("Sum", x, function(y, layer))
        return x if model.norm == "post" else self._norm(x, "final_norm")

    def _embeddings(self, ids: str, token_types: str) -> str:
        op, model = self._op, self._model
        shape, sources, read = self._of_vocabulary("embeddings/word")
        name = "embeddings/word"
        if self._weights == "float32":
            parts = [op("Gather", self._graph.weight(name, shape, sources, read), ids)]
        else:
            table, scales = self._quantized(name, shape, sources, read, axis=1)
            x = op("Cast", op("Gather", table, ids), to=_FLOAT)
            if self._weights == "uint8":
                x = op("Sub", x, self._constant(128.0))
            parts = [op("Mul", x, op("Gather", scales, ids))]
        if model.absolute_positions:
            parts.append(self._positions(ids))
        if token_types and model.token_types:
            rows = self._exported.architecture.type_rows(model)
            table = self._params["embeddings/token_type"]
            # In training all tokens had token type 0, so its row is repeated, as in the tensors.
            types = self._graph.weight(
                "embeddings/token_type",
                (rows, model.hidden),
                [table],
                lambda v: np.concatenate([v, np.repeat(v[:1], rows - len(v), 0)]),
            )
            parts.append(op("Gather", types, token_types))
        elif model.token_types:
            table = self._params["embeddings/token_type"]
            types = self._graph.weight(
                "embeddings/token_type", (model.hidden,), [table], lambda v: v[0]
            )
            parts.append(types)
        x = op("Sum", *parts) if len(parts) > 1 else parts[0]
        return x if model.norm == "pre" else self._norm(x, "embeddings/norm")

    def _positions(self, ids: str) -> str:
        """Returns the vectors of the positions, [rows, length, hidden] or [length, hidden].

        In XLM-R and RoBERTa, the first token that is not padding has position 0, and padding is not
        counted. In BERT, positions are indices in the row.
        """
        op = self._op
        table = self._parameter("embeddings/position")
        if not self._exported.architecture.has_pad_rows:
            end = op("Add", op("Shape", ids, start=1), self._ints(FIRST_POSITION))
            return op("Slice", table, self._ints(FIRST_POSITION), end, self._ints(0))
        is_real = op("Not", op("Equal", ids, self._constant(self._pad(), np.int64)))
        real = op("Cast", is_real, to=_INT64)
        counted = op("Mul", op("CumSum", real, self._constant(1, np.int64)), real)
        before = self._constant(FIRST_POSITION - 1, np.int64)
        return op("Gather", table, op("Add", counted, before))

    def _masks(self, ids: str, mask: str, kinds: set[bool]) -> dict[bool, _Masks]:
        """Returns the masks of local layers (key True) and of full layers (key False)."""
        op, model = self._op, self._model
        limit, size = model.positions - FIRST_POSITION, model.hidden // model.heads
        length = op("Shape", ids, start=1)
        is_key = op("Unsqueeze", op("Cast", mask, to=_BOOL), self._ints(1, 2))
        masks = {}
        for is_local_kind in sorted(kinds):
            visible = is_key  # [rows, 1, 1, length]
            if is_local_kind:
                count = op("Squeeze", length)
                places = op("Range", self._constant(0, np.int64), count,
                            self._constant(1, np.int64))  # fmt: skip
                distance = op("Abs", op("Sub", op("Unsqueeze", places, self._ints(1)), places))
                window = self._constant(model.local_attention // 2, np.int64)
                visible = op("And", visible, op("LessOrEqual", distance, window))
            scores = op("Where", visible, self._constant(0.0), self._constant(_HIDES))
            tables = ["", ""]
            if model.rotary_base:
                base = model.rotary_base
                if is_local_kind:
                    base = model.rotary_local_base or base
                angles = np.arange(limit, dtype=np.float32)[:, None] * rotary_frequencies(
                    size, base, model.rotary_factor
                )
                names = [f"rotary/{name}/{base:g}" for name in ("cosines", "sines")]
                for at, (name, function) in enumerate(zip(names, (np.cos, np.sin), strict=True)):
                    if not self._graph.has_weight(name):
                        self._graph.weight(name, angles.shape, (), partial(function, angles))
                    tables[at] = op("Slice", name, self._ints(0), length, self._ints(0))
            masks[is_local_kind] = _Masks(scores, *tables)
        return masks

    def _position_bias(self, ids: str) -> str:
        """Returns the bias of each pair of tokens, [heads, length, length]."""
        op, model = self._op, self._model
        limit = model.positions - FIRST_POSITION
        of_distance = buckets(
            np.arange(1 - limit, limit), model.position_buckets, model.position_distance
        )
        table = self._params["position_bias/table"]
        by_distance = self._graph.weight(
            "position_bias/distances",
            (model.heads, len(of_distance)),
            [table],
            lambda v: v[of_distance].T,
        )
        one, count = self._constant(1, np.int64), op("Squeeze", op("Shape", ids, start=1))
        places = op("Range", self._constant(0, np.int64), count, one)
        queries = op("Sub", op("Unsqueeze", places, self._ints(1)), self._ints(limit - 1))
        return op("Gather", by_distance, op("Sub", places, queries), axis=1)

    def _attention(self, x: str, layer: int, masks: _Masks, bias: str) -> str:
        op, model = self._op, self._model
        heads, groups, size = model.heads, model.groups, model.hidden // model.heads
        names = [f"layers/attention/{name}" for name in ("query", "key", "value")]
        factor = size**-0.5  # of the scores
        merged = self._wide_linear(x, names, layer, (factor, 1.0, 1.0))
        if groups == heads:
            parts = op("Reshape", merged, self._ints(0, 0, 3, heads, size))
            stacked = op("Split", op("Transpose", parts, perm=(2, 0, 3, 1, 4)),
                         count=3, num_outputs=3)  # fmt: skip
            query, key, value = (op("Squeeze", part, self._ints(0)) for part in stacked)
        else:
            sizes = self._ints(heads * size, groups * size, groups * size)
            split = op("Split", merged, sizes, count=3, axis=-1)
            query, key, value = (
                op("Transpose", op("Reshape", part, self._ints(0, 0, count, size)),
                   perm=(0, 2, 1, 3))
                for part, count in zip(split, (heads, groups, groups), strict=True)
            )  # fmt: skip
        gated = self._gated(query, bias, layer) if model.position_bias == "gated" else bias
        if model.rotary_base:
            query, key = (self._rotated(side, masks) for side in (query, key))
        if groups < heads:  # neighbouring heads of queries share a head of keys and values
            key, value = (self._repeated(side, heads // groups) for side in (key, value))
        scores = op("MatMul", query, op("Transpose", key, perm=(0, 1, 3, 2)))
        if gated:
            scores = op("Add", scores, gated)
        weights = op("Softmax", op("Add", scores, masks.scores), axis=-1)
        output = op("Transpose", op("MatMul", weights, value), perm=(0, 2, 1, 3))
        output = op("Reshape", output, self._ints(0, 0, model.hidden))
        return self._wide_linear(output, ["layers/attention/output"], layer)

    def _gated(self, query: str, bias: str, layer: int) -> str:
        """Returns the bias times the gate of each query (`positions.Gates`).

        The queries were multiplied by the factor of the scores, by which the kernel is divided.
        """
        op, model, name = self._op, self._model, "layers/attention/gates"
        factor = np.float32((model.hidden // model.heads) ** 0.5)
        kernel = self._parameter(f"{name}/kernel", layer, lambda v: v * factor)
        update, reset = op(
            "Split", op("Sigmoid", op("MatMul", query, kernel)), count=2, axis=-1, num_outputs=2
        )  # [rows, heads, length, 1] each
        scale = op(
            "Unsqueeze", self._parameter(f"{name}/scale", layer), self._ints(1, 2)
        )  # [heads, 1, 1]
        one = self._constant(1.0)
        rest = op("Mul", op("Mul", op("Sub", one, update), scale), reset)
        return op("Mul", bias, op("Add", op("Add", one, update), rest))

    def _rotated(self, x: str, masks: _Masks) -> str:
        """Rotates queries or keys, [rows, heads, length, size] (`positions.rotate`)."""
        op, (_, cosines, sines) = self._op, masks
        first, second = op("Split", x, count=2, axis=-1, num_outputs=2)
        turned = (
            op("Sub", op("Mul", first, cosines), op("Mul", second, sines)),
            op("Add", op("Mul", second, cosines), op("Mul", first, sines)),
        )
        return op("Concat", *turned, axis=-1)

    def _repeated(self, x: str, times: int) -> str:
        """Repeats each head: [rows, groups, length, size] -> [rows, heads, length, size]."""
        op, model = self._op, self._model
        copies = op("Expand", op("Unsqueeze", x, self._ints(2)), self._ints(1, 1, times, 1, 1))
        size = model.hidden // model.heads
        return op("Reshape", copies, self._ints(0, model.heads, -1, size))

    def _feed_forward(self, x: str, layer: int) -> str:
        op, model = self._op, self._model
        x = self._wide_linear(x, ["layers/feed_forward/inner"], layer)
        if model.feed_forward == "gelu":
            x = op("Gelu", x)
        else:  # the half with the activation comes first
            active, factor = op("Split", x, count=2, axis=-1, num_outputs=2)
            if model.feed_forward == "geglu":
                active = op("Gelu", active)
            else:
                active = op("Mul", active, op("Sigmoid", active))
            x = op("Mul", active, factor)
        # The products of gated layers have no bound.
        least = _LEAST_GELU if model.feed_forward == "gelu" else None
        name = "layers/feed_forward/outer"
        width = self._params[f"{name}/kernel"].shape[1]
        quantize = partial(self._by_token, width=width, least=least)
        return self._wide_linear(x, [name], layer, quantize=quantize)

    # Heads and sentence modules.

    def _transform(self, x: str, head: str) -> str:
        """Computes the layers of ModernBERT's heads (`Prediction.transform`)."""
        return self._norm(self._op("Gelu", self._linear(x, f"{head}/dense")), f"{head}/norm")

    def _token_logits(self, hidden: str) -> str:
        """Returns the logits of the head for masked tokens, [rows, length, vocabulary]."""
        op, head = self._op, "prediction_head"
        x = self._transform(hidden, head) if self._model.prediction == "dense" else hidden
        name = "embeddings/word" if self._model.tied else f"{head}/word"
        shape, sources, read = self._of_vocabulary(name)
        if self._weights == "float32":
            if not self._graph.has_weight(name):
                self._graph.weight(name, shape, sources, read)
            # Gemm reads the table transposed, so the graph needs no second table.
            flat = op("Reshape", x, self._ints(-1, self._model.hidden))
            y = op("Gemm", flat, name, transB=1)
            ends = op("Shape", hidden, end=2), self._ints(shape[0])
            y = op("Reshape", y, op("Concat", *ends, axis=0))
        else:
            y = self._product(
                x,
                f"{name}/transposed",
                (shape[1], shape[0]),
                sources,
                lambda *arrays: read(*arrays).T,
                self._by_batch,
            )
        if f"{head}/bias" not in self._params:
            return y
        shape, sources, read = self._of_vocabulary(f"{head}/bias")
        return op("Add", y, self._graph.weight(f"{head}/bias", shape, sources, read))

    def _task_head(self, head: str, hidden: str, mask: str, rows_shape: str) -> None:
        """Adds the head of a task and its outputs.

        Args:
          head: the head, or the head of xlj with the same tensors.
          rows_shape: the shape of the logits of multiple choice.
        """
        op, model, name = self._op, self._model, self._exported.head
        classes = self._params[f"{name}/output/bias"].shape[0]
        if head in ("tagging_head", "question_answering_head"):
            x = self._transform(hidden, name) if model.task_head == "gelu_norm" else hidden
            logits = self._linear(x, f"{name}/output")
            if head == "tagging_head":
                self._graph.output(logits, LOGITS, (_ROWS, _LENGTH, classes))
                return
            for side, part in zip(
                ("start", "end"), op("Split", logits, count=2, axis=-1, num_outputs=2), strict=True
            ):
                logits = op("Squeeze", part, self._ints(-1))
                self._graph.output(logits, f"{side}_{LOGITS}", (_ROWS, _LENGTH))
            return
        is_late = model.task_pooling == "late"
        x = hidden if is_late else self._pooled(hidden, mask, model.task_pooling)
        if model.task_head == "gelu_norm":
            x = self._transform(x, name)
        else:
            x = op(
                "Tanh" if model.task_head == "tanh" else "Gelu", self._linear(x, f"{name}/dense")
            )
        logits = self._linear(x, f"{name}/output")
        if is_late:
            logits = self._pooled(logits, mask, "mean")
        if rows_shape:
            logits = op("Reshape", logits, rows_shape)
        self._graph.output(logits, LOGITS, (_ROWS, "choices" if rows_shape else classes))

    def _pooled(self, hidden: str, mask: str, mode: str) -> str:
        """Pools vectors [rows, length, n] to [rows, n].

        Args:
          mask: 1 for tokens that are pooled, else 0, int64 [rows, length].
          mode: `first` for the first vector of a row, or one of `sentence_modules.POOLINGS`.
        """
        op = self._op
        if mode == "first":
            return op("Gather", hidden, self._constant(0, np.int64), axis=1)
        if mode in ("cls", "lasttoken"):
            # The first or the last token that is pooled.
            last = int(mode == "lasttoken")
            place = op("ArgMax", mask, axis=1, keepdims=1, select_last_index=last)
            vectors = op("GatherND", hidden, place, batch_dims=1)
            if mode == "cls":
                return vectors
            any_pooled = op("ReduceMax", mask, self._ints(1))
            return op("Mul", vectors, op("Cast", any_pooled, to=_FLOAT))
        columns = op("Unsqueeze", mask, self._ints(-1))
        if mode == "max":
            visible = op("Cast", columns, to=_BOOL)
            hidden = op("Where", visible, hidden, self._constant(-math.inf))
            return op("ReduceMax", hidden, self._ints(1), keepdims=0)
        real = op("Cast", mask, to=_FLOAT)
        product = op("MatMul", op("Unsqueeze", real, self._ints(1)), hidden)
        total = op("Squeeze", product, self._ints(1))
        count = op("Max", op("ReduceSum", real, self._ints(1)), self._constant(1.0))
        return op("Div", total, op("Sqrt", count) if mode == "mean_sqrt_len_tokens" else count)

    def _sentence_vectors(
        self, hidden: str, mask: str, sentence: SentenceModules
    ) -> tuple[str, int]:
        """Returns the sentence vectors [rows, width], and their width."""
        op = self._op
        if not sentence.include_prompt:
            # Callers may pass the number of tokens of the prompt, which are not pooled.
            length = self._graph.input(PROMPT_LENGTH, (), default=0)
            count = op("Squeeze", op("Shape", mask, start=1))
            one = self._constant(1, np.int64)
            places = op("Range", self._constant(0, np.int64), count, one)
            behind = op("Cast", op("GreaterOrEqual", places, length), to=_INT64)
            mask = op("Mul", mask, behind)
        pooled = [self._pooled(hidden, mask, mode) for mode in sentence.pooling]
        x = pooled[0] if len(pooled) == 1 else op("Concat", *pooled, axis=-1)
        for number, step in enumerate(sentence.steps):
            x = self._dense(x, number, step) if step else self._normalized(x)
        width = sentence.width(self._model.hidden)
        size = min(sentence.settings.get("truncate_dim") or width, width)
        if size < width:
            x = op("Slice", x, self._ints(0), self._ints(size), self._ints(1))
        return x, size

    def _dense(self, x: str, number: int, step: Dense) -> str:
        """Applies a Dense module."""
        op, name = self._op, f"{SENTENCE}{number}"
        y = self._linear(x, name)
        if step.activation == "SiLU":
            y = op("Mul", y, op("Sigmoid", y))
        elif step.activation != "Identity":
            kinds = {"Tanh": "Tanh", "ReLU": "Relu", "GELU": "Gelu", "Sigmoid": "Sigmoid"}
            y = op(kinds[step.activation], y)
        if not step.residual:
            return y
        if f"{name}/residual" in self._params:
            x = op("MatMul", x, self._parameter(f"{name}/residual"))
        return op("Add", y, x)

    def _normalized(self, x: str) -> str:
        """Divides vectors by their L2 norms."""
        norm = self._op("ReduceL2", x, self._ints(-1))
        return self._op("Div", x, self._op("Max", norm, self._constant(MIN_NORM)))
