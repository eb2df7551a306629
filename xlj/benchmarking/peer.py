"""The same model in transformers."""

from typing import Any

from xlj.benchmarking.machine import Size, median_seconds
from xlj.config import Config, ConfigError


def peer(config: Config, size: Size) -> None:
    """transformers' XLM-R of the same sizes: forward, backward, AdamW; logits at all positions."""
    try:
        import torch
        from transformers import XLMRobertaConfig, XLMRobertaForMaskedLM
    except ImportError as error:
        raise ConfigError(f"--what=peer needs torch and transformers ({error.name})") from None
    model, rows, length = config.model, size.rows, size.length
    device = "cuda" if torch.cuda.is_available() else "cpu"
    theirs: Any = XLMRobertaForMaskedLM(
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
    theirs.to(device).train()
    optimizer = torch.optim.AdamW(theirs.parameters(), lr=1e-5)
    tokens = torch.randint(4, config.data.vocabulary_size - 1, (rows, length), device=device)
    labels = torch.where(torch.rand(rows, length, device=device) < 0.15, tokens, -100)
    for dtype in (torch.float32, torch.bfloat16):

        def call(dtype: Any = dtype) -> None:
            with torch.autocast(device, dtype, enabled=dtype != torch.float32):
                loss = theirs(tokens, labels=labels).loss
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            loss.item()

        seconds = median_seconds(call, size.repeats)
        name = str(dtype).partition(".")[2]
        print(f"peer {name}: {rows * length / seconds:.0f} tokens/s (transformers)", flush=True)
