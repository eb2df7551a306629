"""Other libraries for the same work, which are measured if they are installed."""

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
from xlj.interop.architectures import XLM_R, make_config
from xlj.interop.architectures.modernbert import MODERNBERT


@cache
def library(name: str) -> ModuleType | None:
    """Returns a library; prints a message once and returns None if it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        message = f"{name} is not measured ({error}); install it with pip install -e '.[peers]'"
        print(message, file=sys.stderr, flush=True)
        return None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppresses the progress bars and messages of other libraries on standard error."""
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)


def torch_device() -> str:
    """Returns the device for other libraries: a GPU if torch has one."""
    torch = library("torch")
    return "cuda" if torch and torch.cuda.is_available() else "cpu"


def seconds_of(call: Callable[[], object], repeats: int) -> float | None:
    """Returns the median time of a call that uses torch, as `median_seconds`.

    If the call does not fit in the GPU's memory, it prints a message and returns None. Torch's
    cached memory is freed afterwards.
    """
    torch = library("torch")
    assert torch is not None
    try:
        return median_seconds(call, repeats)
    except torch.OutOfMemoryError as error:
        print(f"torch is not measured: {str(error).splitlines()[0]}", file=sys.stderr, flush=True)
        return None
    finally:
        gc.collect()
        torch.cuda.empty_cache()


def masked_lm(model: Model, pieces: int, sparse: bool = False) -> Any:
    """Returns transformers' masked language model of the same sizes: ModernBERT if that is the
    family, otherwise XLM-R.

    Args:
      sparse: ModernBERT computes logits of predicted tokens only.
    """
    import transformers

    if model.family == "modernbert":
        specials = dict.fromkeys((f"{name}_token_id" for name in MODERNBERT.specials), PAD)
        settings = {
            **make_config(MODERNBERT, model, pieces),
            **specials,
            "sparse_prediction": sparse,
        }
        config = transformers.ModernBertConfig.from_dict(settings)
        return transformers.ModernBertForMaskedLM(config)
    return transformers.XLMRobertaForMaskedLM(xlm_r_config(model, pieces))


def xlm_r_config(model: Model, pieces: int) -> object:
    """Returns transformers' config of XLM-R with a model's sizes."""
    from transformers import XLMRobertaConfig

    return XLMRobertaConfig.from_dict(make_config(XLM_R, model, pieces))
