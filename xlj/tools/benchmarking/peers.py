"""Other libraries (peers) that do the same work as xlj; they are measured if they are installed."""

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

from xlj.config import Model
from xlj.data.tokenizer.layout import PAD
from xlj.families.modernbert import MODERNBERT
from xlj.families.xlm_r import XLM_R
from xlj.interop.model_config import make_config
from xlj.tools.benchmarking.measurements import median_seconds


@cache
def library(name: str) -> ModuleType | None:
    """Returns a library as a module, or None if it cannot be imported.

    For each library that cannot be imported, this function prints one message.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        message = f"{name} is not measured ({error}); install it with pip install -e '.[peers]'"
        print(message, file=sys.stderr, flush=True)
        return None


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Context manager that suppresses progress bars and messages of other libraries."""
    logging.disable(logging.WARNING)
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)


def torch_device() -> str:
    """Returns the device on which other libraries run: "cuda" if PyTorch can use a GPU, else
    "cpu"."""
    torch = library("torch")
    return "cuda" if torch and torch.cuda.is_available() else "cpu"


def torch_median_seconds(call: Callable[[], object], repeats: int) -> float | None:
    """Returns the median time of `call` in seconds, and then frees PyTorch's cached memory.

    If `call` runs out of GPU memory, a message is printed and the result is None.
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
    """Returns a masked language model of transformers with random weights.

    It is a ModernBERT if `model.family` is modernbert, otherwise an XLM-R.

    Args:
      model: the sizes and the family.
      pieces: the size of the vocabulary.
      sparse: whether ModernBERT computes logits of predicted tokens only.
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
    """Returns transformers' config of XLM-R with the sizes of a model.

    Args:
      pieces: the size of the vocabulary.
    """
    from transformers import XLMRobertaConfig

    return XLMRobertaConfig.from_dict(make_config(XLM_R, model, pieces))
