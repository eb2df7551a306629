"""The libraries that do what xlj does: each is measured where it is installed."""

import contextlib
import gc
import importlib
import io
import logging
import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import ModuleType
from typing import Any

from xlj.benchmarking.measurements import median_seconds
from xlj.config import Model
from xlj.data.tokenizer.layout import PAD
from xlj.interop.architectures import XLM_R, config_of
from xlj.models import pattern
from xlj.models.embeddings import FIRST_POSITION


@cache
def library(name: str) -> ModuleType | None:
    """A library, or None where it is not installed, which is told once."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        told = f"not measured beside {name} ({error}); pip install -e '.[peers]' installs it"
        print(told, file=sys.stderr, flush=True)
        return None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Without the progress bars and notes of peers, on standard error."""
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)


def torch_device() -> str:
    """Where peers run: on a GPU if torch sees one."""
    torch = library("torch")
    return "cuda" if torch and torch.cuda.is_available() else "cpu"


def seconds_of(call: Callable[[], object], repeats: int) -> float | None:
    """As `median_seconds`, of what runs in torch; None if it does not fit into the GPU's memory,
    which is told. What torch held of that is free afterwards."""
    torch = library("torch")
    assert torch is not None
    try:
        return median_seconds(call, repeats)
    except torch.OutOfMemoryError as error:
        told = f"not measured beside torch: {str(error).splitlines()[0]}"
        print(told, file=sys.stderr, flush=True)
        return None
    finally:
        gc.collect()
        torch.cuda.empty_cache()


def masked_lm(model: Model, pieces: int, sparse: bool = False) -> Any:
    """transformers' model of masked prediction of a model's sizes: XLM-R's, or ModernBERT's if that
    is its family; `sparse` asks ModernBERT's to compute logits of predicted tokens only."""
    import transformers

    if model.family == "modernbert":
        config = transformers.ModernBertConfig(
            vocab_size=pieces,
            hidden_size=model.hidden,
            intermediate_size=model.intermediate,
            num_hidden_layers=model.layers,
            num_attention_heads=model.heads,
            max_position_embeddings=model.positions - FIRST_POSITION,
            local_attention=model.local_attention,
            attention_dropout=model.dropout_of("attention"),
            layer_types=["sliding_attention" if is_local else "full_attention"
                         for is_local, _ in pattern.kinds(model, model.layers)],
            sparse_prediction=sparse,
            **dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id", "cls_token_id",
                             "sep_token_id"), PAD),
        )  # fmt: skip
        return transformers.ModernBertForMaskedLM(config)
    return transformers.XLMRobertaForMaskedLM(xlm_r_config(model, pieces))


def xlm_r_config(model: Model, pieces: int) -> object:
    """transformers' config of an XLM-R of a model's sizes."""
    from transformers import XLMRobertaConfig

    return XLMRobertaConfig.from_dict(config_of(XLM_R, model, pieces))
