"""Speeds of this machine: matrix products, the train step, reading rows; and a peer beside them.

    python -m xlj.bench --config=configs/xlm_r_base.py [--rows=8] [--length=128] [--what=peak,step]

Everything is measured in one run, so that ratios hold even on a busy machine. `peer` is XLM-R's
masked language model as transformers ships it, of the same sizes and with the same optimizer; it
needs `pip install -e '.[parity]'`. `read` makes the config's rows if they are not there.
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
_WHAT = flags.DEFINE_list("what", ["peak", "step"], "what to measure: peak, step, read, peer")
_REPEATS = flags.DEFINE_integer("repeats", 5, "measurements; the median is printed", lower_bound=1)


def run(config: Config) -> None:
    """Prints a line for each measurement."""
    measurements = {"peak": _peak, "step": _step, "read": _read, "peer": _peer}
    unknown = set(_WHAT.value) - set(measurements)
    if unknown:
        raise ConfigError(f"--what={','.join(_WHAT.value)}: there are {', '.join(measurements)}")
    if not {"step", "peer"}.isdisjoint(_WHAT.value):
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
    """MMLM's train step on random tokens, in each type."""
    import dataclasses

    import jax
    import numpy as np

    from xlj import objectives
    from xlj.models.flops import training_flops
    from xlj.objectives.corruption import capacity
    from xlj.training import partitioning, state
    from xlj.training.step import make_train_step

    rows, length, size = _ROWS.value, _LENGTH.value, config.data.vocabulary_size
    off = dataclasses.replace(config.objectives.tlm, batch_rows=0)
    mmlm = dataclasses.replace(config.objectives.mmlm, batch_rows=rows)
    config = dataclasses.replace(
        config,
        objectives=dataclasses.replace(config.objectives, mmlm=mmlm, tlm=off),
        train=dataclasses.replace(config.train, accumulation=1),
    )
    mesh = partitioning.make_mesh(config)
    tokens = np.random.default_rng(0).integers(4, size - 1, (rows, length)).astype(np.int32)
    tokens[:, 0], tokens[:, -1] = 0, 2
    flops = training_flops(config.model, size, rows, length, capacity(length, mmlm.mask_rate))
    for dtype in ("float32", "bfloat16"):
        typed = dataclasses.replace(config, model=dataclasses.replace(config.model, dtype=dtype))
        where = state.sharding(typed, size, mesh)
        current = jax.jit(lambda c=typed: state.init(c, size), out_shardings=where)()
        made = make_train_step(typed, objectives.build(typed, size), mesh)
        step = jax.jit(made, donate_argnums=0, out_shardings=where)

        def call(step: Any = step) -> None:
            nonlocal current
            current = jax.block_until_ready(step(current, {"mmlm": tokens}))

        seconds = _median_seconds(call)
        print(
            f"step {dtype}: {rows * length / seconds:.0f} tokens/s, "
            f"{flops / seconds / 1e9:.0f} GFLOP/s ({rows} x {length}, {seconds:.3f} s)",
            flush=True,
        )
        del current


def _read(config: Config) -> None:
    """Batches of made rows, their checks included."""
    import numpy as np

    from xlj.data.batches import Batches
    from xlj.data.making import ensure_rows

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
