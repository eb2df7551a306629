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
from xlj.interop.architectures.modernbert import MODERNBERT


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
        specials = dict.fromkeys((f"{name}_token_id" for name in MODERNBERT.specials), PAD)
        settings = {**config_of(MODERNBERT, model, pieces), **specials, "sparse_prediction": sparse}
        config = transformers.ModernBertConfig.from_dict(settings)
        return transformers.ModernBertForMaskedLM(config)
    return transformers.XLMRobertaForMaskedLM(xlm_r_config(model, pieces))


def xlm_r_config(model: Model, pieces: int) -> object:
    """transformers' config of an XLM-R of a model's sizes."""
    from transformers import XLMRobertaConfig

    return XLMRobertaConfig.from_dict(config_of(XLM_R, model, pieces))
