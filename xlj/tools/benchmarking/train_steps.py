"""Measures speed and memory of train steps: of xlj by number type and objective, and of
transformers."""

import dataclasses
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from xlj.config import Config, ConfigError, Objectives
from xlj.data.rows import row_kind
from xlj.data.rows.row_kind import RowKind
from xlj.data.rows.store import Corpus
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.layout import Ragged
from xlj.io.own_process import StepMemory
from xlj.models.embeddings import FIRST_POSITION
from xlj.objectives import operations
from xlj.objectives.objective import build
from xlj.optimizers import Rates
from xlj.sharding import devices, meshes
from xlj.tools.benchmarking import measurements
from xlj.tools.benchmarking.measurements import Measurement, Size, format_number, in_own_process
from xlj.tools.benchmarking.peers import library, masked_lm, torch_device, torch_median_seconds
from xlj.training import state
from xlj.training.step import make_train_step


def check_length(config: Config, size: Size) -> None:
    """Checks that the model has a position for each token of a row.

    No other code checks the length of random rows. Longer rows would read positions out of bounds.

    Raises:
      ConfigError: if rows are too long.
    """
    longest = config.model.positions - FIRST_POSITION
    if size.length > longest:
        raise ConfigError(
            f"--length={size.length} is too long: model.positions={config.model.positions} allows "
            f"{longest} tokens per row; lower --length or raise model.positions"
        )


def step(config: Config, size: Size) -> Iterator[Measurement]:
    """Measures the train step of MMLM in float32 and bfloat16.

    The model of transformers computes logits at all positions. On GPUs it is compiled with
    `torch.compile`. ModernBERT is also measured with `sparse_prediction`, which computes logits of
    predicted tokens only.
    """
    rows, length = size.rows, size.length
    for dtype in ("float32", "bfloat16"):
        step = in_own_process(_measure, config, size, "mmlm", dtype)
        rate = rows * length / step.seconds
        for sparse in (False, True) if config.model.family == "modernbert" else (False,):
            peer_step = _measure_peer(config, size, dtype, sparse)
            note = f"{format_number(step.flops / step.seconds / 1e9)} GFLOP/s, {rows} x {length}"
            if step.peak:
                note += f", {step.peak / 2**30:.2f} GiB"
                if peer_step and peer_step.peak:
                    ratio = step.peak / peer_step.peak
                    note += f" for {peer_step.peak / 2**30:.2f}: {ratio:.2f} times the memory"
            peer_rate = peer_step and rows * length / peer_step.seconds
            peer = "transformers, sparse_prediction" if sparse else "transformers"
            yield Measurement("step", f"mmlm {dtype}", rate, "tokens/s", peer, peer_rate, note)


def measure_objectives(config: Config, size: Size, names: Sequence[str]) -> Iterator[Measurement]:
    """Measures the train step of each objective alone, in tokens of text per second.

    The notes contain time and memory per token, each divided by the value of the first objective.
    Memory is the memory of the program without the training state.

    Args:
      names: the names of the objectives.
    """
    first_per_token: tuple[float, float] | None = None
    for name in names:
        step = in_own_process(_measure, config, size, name, config.model.dtype)
        per_token = step.seconds / step.tokens, step.memory / step.tokens
        first_per_token = first_per_token or per_token
        full = step.tokens / size.rows / size.length
        note = (
            f"time {per_token[0] / first_per_token[0]:.2f}, memory "
            f"{per_token[1] / first_per_token[1]:.2f} "
            f"({step.memory / 2**20:.0f} MiB), rows {full:.0%} full, "
            f"{format_number(step.flops / step.seconds / 1e9)} GFLOP/s"
        )
        rate = step.tokens / step.seconds
        yield Measurement("objectives", name, rate, "tokens/s", note=note)


class _Step(NamedTuple):
    """Measurements of a train step.

    Attributes:
      seconds: the median time of a step.
      tokens: the number of tokens of text, without padding.
      memory: the memory of the program in bytes, without the training state.
      flops: the operations of a step.
      peak: the peak memory of the process in bytes; None if unknown.
    """

    seconds: float
    tokens: int
    memory: int
    flops: float
    peak: int | None


class _PeerStep(NamedTuple):
    """Measurements of a train step of transformers: the median time, and the peak memory of the
    process in bytes (None if unknown)."""

    seconds: float
    peak: int | None


class TrainStep:
    """The compiled train step of one objective, with its state and a batch of random rows.

    Args:
      size: the rows and the length of the batch.
      name: the name of the objective.
      dtype: the number type of the computation, float32 or bfloat16.

    Attributes:
      program: the compiled program.
      tokens: the number of tokens of text in the batch, without padding.
      flops: the operations of a step.
    """

    def __init__(self, config: Config, size: Size, name: str, dtype: str):
        devices.compute_in_the_calling_thread()
        rows, length = size.rows, size.length
        pieces = vocabulary_training.requested_size(config.data)
        options = dataclasses.replace(config.objectives.options[name], batch_size=rows)
        config = dataclasses.replace(
            config,
            objectives=Objectives(options={name: options}),
            train=dataclasses.replace(config.train, gradient_accumulation_steps=1),
            model=dataclasses.replace(config.model, dtype=dtype),
            phases={},
        )
        self._mesh = mesh = meshes.make_mesh(config)
        self._seed = np.uint32(config.train.seed)
        rates = config.optimizer.learning_rate, config.optimizer.weight_decay
        self._rates = Rates(*map(np.float32, rates))
        corpus = Corpus(pieces, ("en", "de"), (1, 1))
        of_kind, self.tokens = _random_rows(options.row_kind, rows, length, pieces)
        sides = jnp.tile(jnp.array([[0, 1]], jnp.int32), (rows, 1))
        self._batch = {name: {**jax.tree.map(jnp.asarray, of_kind), "languages": sides}}
        built = build({name: options}, config.model, corpus)
        shardings = state.sharding(config, corpus, mesh)
        self._state = state.jitted_init(config, corpus, mesh, shardings)(self._seed)
        step = make_train_step(config, built, mesh)
        compiler = meshes.compiler_options(mesh)
        jitted = jax.jit(step, donate_argnums=0, out_shardings=shardings, compiler_options=compiler)
        self.program = jitted.lower(*self._arguments()).compile()
        fields = options.row_kind.batch_fields(length, "<i4")
        self.flops = operations.of_step(name, options, config.model, corpus, rows, fields)

    def run(self) -> None:
        """Runs one step."""
        self._state = jax.block_until_ready(self.program(*self._arguments()))

    def _arguments(self) -> tuple[Any, ...]:
        return self._state, self._batch, self._seed, self._rates

    def seconds(self, repeats: int) -> float:
        """Returns the median time of a step in seconds."""
        memory = StepMemory(self._mesh.devices.flat[0].platform == "cpu")
        with memory.retain():
            seconds = measurements.median_seconds(self.run, repeats)
        memory.release()
        return seconds


def _measure(config: Config, size: Size, name: str, dtype: str) -> _Step:
    """Measures the train step of one objective."""
    step = TrainStep(config, size, name, dtype)
    analysis: Any = step.program.memory_analysis()
    seconds = step.seconds(size.repeats)
    peak = measurements.peak_memory()
    return _Step(seconds, step.tokens, analysis.temp_size_in_bytes, step.flops, peak)


def _measure_peer(config: Config, size: Size, dtype: str, sparse: bool) -> _PeerStep | None:
    """Measures the train step of a model of transformers with the same sizes.

    Returns:
      The measurements; None if transformers or PyTorch is not installed, or if GPU memory is too
      small.
    """
    if library("torch") is None or library("transformers") is None:
        return None
    return in_own_process(_measure_transformers, config, size, dtype, sparse)


def _measure_transformers(config: Config, size: Size, dtype: str, sparse: bool) -> _PeerStep | None:
    """Measures the forward pass, the backward pass and AdamW of a model of transformers."""
    torch: Any = library("torch")
    pieces, device = vocabulary_training.requested_size(config.data), torch_device()
    model = masked_lm(config.model, pieces, sparse).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    forward = torch.compile(model) if device == "cuda" else model
    shape = size.rows, size.length
    tokens = torch.randint(4, pieces - 1, shape, device=device)
    labels = torch.where(torch.rand(shape, device=device) < 0.15, tokens, -100)
    is_float32 = dtype == "float32"
    autocast = partial(torch.autocast, device, torch.bfloat16, enabled=not is_float32)

    def call() -> None:
        with autocast():
            loss = forward(tokens, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()

    seconds = torch_median_seconds(call, size.repeats)
    return None if seconds is None else _PeerStep(seconds, measurements.peak_memory())


def _random_rows(kind: RowKind, rows: int, length: int, size: int) -> tuple[row_kind.Rows, int]:
    """Packs random sentences into rows; returns the rows and their number of tokens.

    A sentence has 8 to 24 tokens, and at most a quarter of a row.

    Args:
      kind: the kind of rows.
      rows, length: the number of rows, and the tokens per row.
      size: the size of the vocabulary.
    """
    rng, count, dtype = np.random.default_rng(0), 2 * rows * length // 8, np.dtype(np.uint32)

    def lines() -> Ragged:
        lengths = rng.integers(8, min(24, length // 4) + 1, count)
        return Ragged(rng.integers(4, size - 1, lengths.sum()).astype(np.int32), lengths)

    columns, documents = [lines() for _ in kind.columns], np.zeros(count, np.int64)
    packed = kind.pack(columns, length, dtype, documents=documents, mask=size - 1)
    few = {name: array[:rows].astype(np.int32) for name, array in packed.rows.items()}
    return few, row_kind.count_tokens(few, kind.fields(length, dtype.str))
