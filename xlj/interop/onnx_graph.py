"""Builds ONNX graphs, and writes them as one file, or as a file with external data.

Weights are read when the file is written. The values of a parameter are read once, even if each
layer is a separate tensor of the graph.
"""

import contextlib
import dataclasses
import importlib.util
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from xlj.config import ConfigError

OPSET = 20
"""The version of the standard operators, which onnxruntime reads since release 1.17 (2024). It is
the first version with GELU."""

MAX_INLINE = 2_000_000_000
"""The largest size of weights, in bytes, that a file of a graph contains. Larger graphs have their
weights in a second file, because a protobuf message has at most 2 GiB."""

DATA_SUFFIX = "_data"
"""What the name of the file of external data adds to the name of the graph's file, as in files of
transformers."""

_IR_VERSION = 9  # of opset 20
_ALIGNMENT = 4096  # of a tensor in external data, so that it can be mapped into memory
_SMALL = 1024  # bytes; smaller tensors always are in the file of the graph

Read = Callable[..., np.ndarray]


@dataclasses.dataclass(frozen=True)
class _Weight:
    """A tensor of the graph.

    Attributes:
      sources: objects that NumPy converts to the arrays from which the tensor is computed.
      read: function that takes these arrays and returns the values.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    sources: tuple[Any, ...]
    read: Read

    def bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def values(self, arrays: Sequence[np.ndarray]) -> np.ndarray:
        values = np.asarray(self.read(*arrays), self.dtype, order="C")
        assert values.shape == self.shape, f"{self.name}: {values.shape} is not {self.shape}"
        return values


class Graph:
    """A graph under construction. Values are strings, the names of tensors in the graph."""

    def __init__(self) -> None:
        self._nodes: list[Any] = []
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._weights: dict[str, _Weight] = {}
        self._numbers = itertools.count()

    def op(self, kind: str, *inputs: str, count: int = 1, **attributes: Any) -> Any:
        """Adds an operator.

        Args:
          kind: the name of the operator.
          inputs: the names of its inputs; an empty name omits an optional input.
          count: the number of outputs.
          attributes: the attributes of the operator.

        Returns:
          The name of the output, or a tuple of names if `count` is above 1.
        """
        from onnx import helper

        number = next(self._numbers)
        names = tuple(f"{kind}_{number}" + (f"_{i}" if count > 1 else "") for i in range(count))
        node = helper.make_node(kind, inputs, names, f"node_{number}", **attributes)
        self._nodes.append(node)
        return names if count > 1 else names[0]

    def constant(self, values: Any, dtype: type[np.generic] = np.float32) -> str:
        """Adds a constant; equal small constants are one tensor of the graph."""
        array = np.asarray(values, dtype)
        name = f"constant_{next(self._numbers)}"
        if array.size <= 8:
            text = "_".join(map(str, array.ravel().tolist()))
            name = f"constant_{array.dtype}_{array.ndim}_{text}"
        if name not in self._weights:
            self.weight(name, array.shape, (), lambda: array, dtype)
        return name

    def weight(
        self,
        name: str,
        shape: Sequence[int],
        sources: Sequence[Any],
        read: Read,
        dtype: type[np.generic] = np.float32,
    ) -> str:
        """Adds a weight, which is read when the graph is written.

        Args:
          name: the name of the tensor.
          sources: objects that NumPy converts to arrays. Each is converted once for all weights
            with the same sources.
          read: function that takes the arrays of the sources and returns the values.
        """
        assert name not in self._weights, f"two weights are named {name}"
        weight = _Weight(name, tuple(map(int, shape)), np.dtype(dtype), tuple(sources), read)
        self._weights[name] = weight
        return name

    def has_weight(self, name: str) -> bool:
        """Returns whether the graph has a weight of this name."""
        return name in self._weights

    def input(self, name: str, shape: Sequence[str], default: int | None = None) -> str:
        """Adds an input of integers.

        Args:
          shape: the names of the dimensions.
          default: the value if a caller passes none; None if callers must pass the input.
        """
        from onnx import TensorProto, helper

        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.INT64, shape))
        if default is not None:
            self.weight(name, (), (), lambda: np.asarray(default), np.int64)
        return name

    def output(self, value: str, name: str, shape: Sequence[str | int]) -> None:
        """Adds an output of float32, with the name and the names of the dimensions."""
        from onnx import TensorProto, helper

        self._nodes.append(helper.make_node("Identity", [value], [name], f"output_{name}"))
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def save(self, path: Path, metadata: Mapping[str, str], max_inline: int | None = None) -> None:
        """Writes the graph, and its weights into a second file if they are large.

        Args:
          path: of the file. Its folder must exist.
          metadata: texts to store in the file.
          max_inline: the largest size of weights in the file; None for `MAX_INLINE`.
        """
        from onnx import TensorProto, helper

        graph = helper.make_graph(self._nodes, "xlj", self._inputs, self._outputs)
        opsets = [helper.make_opsetid("", OPSET)]
        model = helper.make_model(
            graph, producer_name="xlj", opset_imports=opsets, ir_version=_IR_VERSION
        )
        helper.set_model_props(model, dict(metadata))
        size = sum(weight.bytes() for weight in self._weights.values())
        is_external = size > (MAX_INLINE if max_inline is None else max_inline)
        data, end = path.with_name(path.name + DATA_SUFFIX), 0
        with data.open("wb") if is_external else contextlib.nullcontext() as file:
            for weight, values in self._values():
                tensor = model.graph.initializer.add(name=weight.name, dims=weight.shape)
                tensor.data_type = helper.np_dtype_to_tensor_dtype(weight.dtype)
                if file is None or weight.bytes() <= _SMALL:
                    tensor.raw_data = values.tobytes()
                    continue
                start = end + -end % _ALIGNMENT
                end = start + weight.bytes()
                file.seek(start)
                file.write(values.data)
                tensor.data_location = TensorProto.EXTERNAL
                place = {"location": data.name, "offset": start, "length": weight.bytes()}
                for key, value in place.items():
                    tensor.external_data.add(key=key, value=str(value))
        path.write_bytes(model.SerializeToString())

    def _values(self) -> Iterator[tuple[_Weight, np.ndarray]]:
        """Yields all weights with their values. The arrays of a source are in memory only while
        its weights are read."""
        groups: dict[tuple[int, ...], list[_Weight]] = {}
        for weight in self._weights.values():
            groups.setdefault(tuple(map(id, weight.sources)), []).append(weight)
        for group in groups.values():
            arrays = [np.asarray(source) for source in group[0].sources]
            for weight in group:
                yield weight, weight.values(arrays)


def require() -> None:
    """Raises a `ConfigError` if the library onnx is not installed."""
    if importlib.util.find_spec("onnx") is None:
        raise ConfigError(
            "--format=onnx needs the library onnx; install it with: pip install -e '.[onnx]'"
        )
