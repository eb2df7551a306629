"""The speed and the memory of train steps, by type and by objective, and of a peer's."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from xlj import objectives
from xlj.benchmarking.machine import Size, median_seconds
from xlj.config import Config, ConfigError, Objectives
from xlj.data.rows import packing
from xlj.data.rows.corpus import Corpus
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.layout import PAD
from xlj.models.encoder import FIRST_POSITION
from xlj.objectives.objective import Rows
from xlj.training import partitioning, state
from xlj.training.step import make_train_step


def check_length(config: Config, size: Size) -> None:
    """Refuses rows beyond the model's positions: their embeddings would be read out of bounds
    (`ConfigError`)."""
    longest = config.model.positions - FIRST_POSITION
    if size.length > longest:
        raise ConfigError(
            f"--length={size.length} is beyond the model's positions: "
            f"model.positions={config.model.positions} allows {longest} tokens a row"
        )


def step(config: Config, size: Size) -> None:
    """MMLM's train step, in each type."""
    for dtype in ("float32", "bfloat16"):
        seconds, _, _, flops = _train_step(config, size, "mmlm", dtype)
        tokens = size.rows * size.length
        print(
            f"step {dtype}: {tokens / seconds:.0f} tokens/s, {flops / seconds / 1e9:.0f} GFLOP/s "
            f"({size.rows} x {size.length}, {seconds:.3f} s)",
            flush=True,
        )


def each_objective(config: Config, size: Size) -> None:
    """The train step of each objective alone, a token of text, as a multiple of MMLM's; memory is
    what the program needs beside its state."""
    base: tuple[float, float] | None = None
    for name in config.objectives.options:
        seconds, tokens, memory, _ = _train_step(config, size, name, config.model.dtype)
        base = base or (seconds / tokens, memory / tokens)
        time_ratio, memory_ratio = seconds / tokens / base[0], memory / tokens / base[1]
        print(
            f"objective {name}: {tokens / seconds:.0f} tokens/s, time {time_ratio:.2f}, memory "
            f"{memory_ratio:.2f} ({memory / 2**20:.0f} MiB, rows "
            f"{tokens / size.rows / size.length:.0%} full)",
            flush=True,
        )


def peer(config: Config, size: Size) -> None:
    """transformers' XLM-R of the same sizes: forward, backward, AdamW; logits at all positions."""
    try:
        import torch
        from transformers import XLMRobertaConfig, XLMRobertaForMaskedLM
    except ImportError as error:
        raise ConfigError(f"--what=peer needs torch and transformers ({error.name})") from None
    model, rows, length = config.model, size.rows, size.length
    pieces = vocabulary_training.ids(config.data)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    theirs: Any = XLMRobertaForMaskedLM(
        XLMRobertaConfig(
            vocab_size=pieces,
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
    theirs.to(device).train()
    optimizer = torch.optim.AdamW(theirs.parameters(), lr=1e-5)
    tokens = torch.randint(4, pieces - 1, (rows, length), device=device)
    labels = torch.where(torch.rand(rows, length, device=device) < 0.15, tokens, -100)
    for dtype in (torch.float32, torch.bfloat16):

        def call(dtype: torch.dtype = dtype) -> None:
            with torch.autocast(device, dtype, enabled=dtype != torch.float32):
                loss = theirs(tokens, labels=labels).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            loss.item()

        seconds = median_seconds(call, size.repeats)
        name = str(dtype).partition(".")[2]
        print(f"peer {name}: {rows * length / seconds:.0f} tokens/s (transformers)", flush=True)


def _train_step(config: Config, size: Size, name: str, dtype: str) -> tuple[float, int, int, float]:
    """Seconds of a step of one objective, its tokens of text, bytes of its temporary memory, and
    its floating-point operations."""
    rows, length, pieces = size.rows, size.length, vocabulary_training.ids(config.data)
    options = dataclasses.replace(config.objectives.options[name], batch_rows=rows)
    config = dataclasses.replace(
        config,
        objectives=Objectives(options={name: options}),
        train=dataclasses.replace(config.train, accumulation=1),
        model=dataclasses.replace(config.model, dtype=dtype),
        phases={},
    )
    mesh = partitioning.make_mesh(config)
    corpus = Corpus(pieces, ("en", "de"), (1, 1))
    tokens = _random_rows(options.rows, rows, length, pieces)
    batch = {name: Rows(jnp.asarray(tokens), jnp.tile(jnp.array([[0, 1]], jnp.int32), (rows, 1)))}
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
    return (
        median_seconds(call, size.repeats),
        text,
        analysis.temp_size_in_bytes,
        built[name].flops(rows, length).total,
    )


def _random_rows(kind: str, rows: int, length: int, size: int) -> np.ndarray:
    """Rows of a kind, packed from random sentences of 8 to 24 tokens, int32 [rows, length]."""
    rng, count, dtype = np.random.default_rng(0), 2 * rows * length // 8, np.dtype(np.uint32)

    def lines() -> packing.Ragged:
        lengths = rng.integers(8, min(24, length // 4) + 1, count)
        return packing.Ragged(rng.integers(4, size - 1, lengths.sum()).astype(np.int32), lengths)

    sides, documents = (lines(), lines()), np.zeros(count, np.int64)
    packed = packing.pack(kind, sides, documents, length, dtype, mask=size - 1)
    return packed.rows[:rows].astype(np.int32)
