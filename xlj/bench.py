"""Speeds of this machine: matrix products, the train step, reading rows; and a peer beside them.

    python -m xlj.bench --config=configs/xlm_r_base.py [--rows=8] [--length=128] [--what=peak,step]

Everything is measured in one run, so that ratios hold even on a busy machine. `peer` is XLM-R's
masked language model as transformers ships it, of the same sizes and with the same optimizer; it
needs `pip install -e '.[parity]'`. `read` makes the config's rows if they are not there.
`objectives` is the cost of each objective beside MMLM's, in time and memory.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from absl import flags

from xlj import cli
from xlj.config import Config, ConfigError

_ROWS = flags.DEFINE_integer("rows", 8, "rows of a step", lower_bound=1)
_LENGTH = flags.DEFINE_integer("length", 128, "tokens in a row", lower_bound=8)
_WHAT = flags.DEFINE_list(
    "what", ["peak", "step"], "what to measure: peak, step, objectives, read, peer"
)
_REPEATS = flags.DEFINE_integer("repeats", 5, "measurements; the median is printed", lower_bound=1)


def run(config: Config) -> None:
    """Prints a line for each measurement."""
    measurements = {
        "peak": _peak,
        "step": _step,
        "objectives": _objectives,
        "read": _read,
        "peer": _peer,
    }
    unknown = set(_WHAT.value) - set(measurements)
    if unknown:
        raise ConfigError(f"--what={','.join(_WHAT.value)}: there are {', '.join(measurements)}")
    if not {"step", "objectives", "peer"}.isdisjoint(_WHAT.value):
        _check_length(config)
    for name in _WHAT.value:
        measurements[name](config)


def _check_length(config: Config) -> None:
    """Refuses rows beyond the model's positions: their embeddings would be read out of bounds."""
    from xlj.models.encoder import FIRST_POSITION

    longest = config.model.positions - FIRST_POSITION
    if _LENGTH.value > longest:
        raise ConfigError(
            f"--length={_LENGTH.value} is beyond the model's positions: "
            f"model.positions={config.model.positions} allows {longest} tokens a row"
        )


def _median_seconds(call: Callable[[], Any]) -> float:
    call()
    times = []
    for _ in range(_REPEATS.value):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return sorted(times)[len(times) // 2]


def _finished(function: Callable[..., Any], *arguments: Any) -> Any:
    import jax

    return jax.block_until_ready(function(*arguments))


def _peak(config: Config) -> None:
    """The rate of a large matrix product, in each type."""
    import jax
    import jax.numpy as jnp

    from xlj.models.dense import product

    size = 2048 if jax.default_backend() == "cpu" else 8192
    for dtype in map(jnp.dtype, ("float32", "bfloat16")):
        x = jax.random.normal(jax.random.key(0), (size, size)).astype(dtype)
        square = jax.jit(partial(product, dtype=dtype))
        seconds = _median_seconds(partial(_finished, square, x, x))
        print(f"peak {dtype.name}: {2 * size**3 / seconds / 1e9:.0f} GFLOP/s", flush=True)


def _step(config: Config) -> None:
    """MMLM's train step, in each type."""
    for dtype in ("float32", "bfloat16"):
        seconds, _, _, flops = _train_step(config, "mmlm", dtype)
        tokens = _ROWS.value * _LENGTH.value
        print(
            f"step {dtype}: {tokens / seconds:.0f} tokens/s, {flops / seconds / 1e9:.0f} GFLOP/s "
            f"({_ROWS.value} x {_LENGTH.value}, {seconds:.3f} s)",
            flush=True,
        )


def _objectives(config: Config) -> None:
    """The train step of each objective alone, a token of text, as a multiple of MMLM's; memory is
    what the program needs beside its state."""
    base: tuple[float, float] | None = None
    for name in config.objectives.options:
        seconds, tokens, memory, _ = _train_step(config, name, config.model.dtype)
        base = base or (seconds / tokens, memory / tokens)
        time_ratio, memory_ratio = seconds / tokens / base[0], memory / tokens / base[1]
        print(
            f"objective {name}: {tokens / seconds:.0f} tokens/s, time {time_ratio:.2f}, memory "
            f"{memory_ratio:.2f} ({memory / 2**20:.0f} MiB, rows "
            f"{tokens / _ROWS.value / _LENGTH.value:.0%} full)",
            flush=True,
        )


def _train_step(config: Config, name: str, dtype: str) -> tuple[float, int, int, float]:
    """Seconds of a step of one objective, its tokens of text, bytes of its temporary memory, and
    its floating-point operations."""
    import dataclasses

    import jax
    import numpy as np

    from xlj import objectives
    from xlj.config import Objectives
    from xlj.data.rows.corpus import Corpus
    from xlj.data.tokenizer.layout import PAD
    from xlj.objectives.rows import Rows
    from xlj.training import partitioning, state
    from xlj.training.step import make_train_step

    rows, length, size = _ROWS.value, _LENGTH.value, config.data.vocabulary_size
    options = dataclasses.replace(config.objectives.options[name], batch_rows=rows)
    config = dataclasses.replace(
        config,
        objectives=Objectives(options={name: options}),
        train=dataclasses.replace(config.train, accumulation=1),
        model=dataclasses.replace(config.model, dtype=dtype),
        phases={},
    )
    mesh = partitioning.make_mesh(config)
    corpus = Corpus(size, ("en", "de"), (1, 1))
    tokens = _random_rows(options.rows, rows, length, size)
    batch = {name: Rows(tokens, np.tile(np.array([[0, 1]], np.int32), (rows, 1)))}
    built = objectives.build({name: options}, config.model, corpus)
    where = state.sharding(config, corpus, mesh)
    current = jax.jit(lambda: state.init(config, corpus), out_shardings=where)()
    made = make_train_step(config, built, mesh)
    step = jax.jit(made, donate_argnums=0, out_shardings=where).lower(current, batch).compile()

    def call() -> None:
        nonlocal current
        current = jax.block_until_ready(step(current, batch))

    analysis: Any = step.memory_analysis()
    text = int(np.count_nonzero(tokens != PAD))
    return _median_seconds(call), text, analysis.temp_size_in_bytes, built[name].flops(rows, length)


def _random_rows(kind: str, rows: int, length: int, size: int) -> Any:
    """Rows of a kind, packed from random sentences of 8 to 24 tokens, int32 [rows, length]."""
    import numpy as np

    from xlj.data.rows import packing

    rng, count, dtype = np.random.default_rng(0), 2 * rows * length // 8, np.dtype(np.uint32)

    def lines() -> packing.Ragged:
        lengths = rng.integers(8, min(24, length // 4) + 1, count)
        return packing.Ragged(rng.integers(4, size - 1, lengths.sum()).astype(np.int32), lengths)

    if kind == "text":
        packed = packing.text(lines(), np.zeros(count, np.int64), length, dtype)
    elif kind == "sentences":
        packed = packing.sentences(lines(), length, dtype, mask=size - 1)
    elif kind == "bitext":
        packed = packing.bitext(lines(), lines(), length, dtype)
    else:
        packed = packing.pairs(lines(), lines(), length, dtype)
    return packed.rows[:rows].astype(np.int32)


def _read(config: Config) -> None:
    """Batches of made rows, their checks included."""
    import numpy as np

    from xlj.data.rows.batches import Batches
    from xlj.data.rows.making import ensure_rows

    batches = Batches(ensure_rows(config), config)
    steps = 50
    for name, (_, length) in batches.shapes(0).items():
        slots = np.arange(4096)  # slots beyond a batch are the next steps' rows

        def call(name: str = name, slots: Any = slots) -> None:
            for step in range(steps):
                batches.read(name, step, slots)

        seconds = _median_seconds(call)
        rate = steps * len(slots) * length / seconds / 1e6
        print(f"read {name}: {rate:.0f} million tokens/s", flush=True)


def _peer(config: Config) -> None:
    """transformers' XLM-R of the same sizes: forward, backward, AdamW; logits at all positions."""
    try:
        import torch
        from transformers import XLMRobertaConfig, XLMRobertaForMaskedLM
    except ImportError as error:
        raise ConfigError(f"--what=peer needs torch and transformers ({error.name})") from None
    model, rows, length = config.model, _ROWS.value, _LENGTH.value
    device = "cuda" if torch.cuda.is_available() else "cpu"
    peer: Any = XLMRobertaForMaskedLM(
        XLMRobertaConfig(
            vocab_size=config.data.vocabulary_size,
            hidden_size=model.hidden,
            num_hidden_layers=model.layers,
            num_attention_heads=model.heads,
            intermediate_size=model.intermediate,
            max_position_embeddings=model.positions,
            type_vocab_size=1,
            hidden_dropout_prob=model.dropout,
            attention_probs_dropout_prob=model.attention_dropout,
        )
    )
    peer.to(device).train()
    optimizer = torch.optim.AdamW(peer.parameters(), lr=1e-5)
    tokens = torch.randint(4, config.data.vocabulary_size - 1, (rows, length), device=device)
    labels = torch.where(torch.rand(rows, length, device=device) < 0.15, tokens, -100)
    for dtype in (torch.float32, torch.bfloat16):

        def call(dtype: Any = dtype) -> None:
            with torch.autocast(device, dtype, enabled=dtype != torch.float32):
                loss = peer(tokens, labels=labels).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            loss.item()

        seconds = _median_seconds(call)
        name = str(dtype).partition(".")[2]
        print(f"peer {name}: {rows * length / seconds:.0f} tokens/s (transformers)", flush=True)


if __name__ == "__main__":
    cli.main(run, __doc__)
