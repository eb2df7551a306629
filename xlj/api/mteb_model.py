"""What mteb 2.26 asks of a model, so that `mteb.evaluate(xlj.load(path), tasks)` works.

mteb is imported inside functions, which only mteb calls; install it with `.[mteb]`.
Source: mteb's protocol `EncoderProtocol`, and its wrapper of sentence-transformers' models.
"""

from pathlib import Path
from typing import Any

from xlj.config import ConfigError
from xlj.interop.sentence_modules import SentenceModules


def texts_of(batches: Any, task: str) -> list[str]:
    """Returns the texts of all batches.

    Args:
      batches: a `DataLoader` of mappings; each has a list of texts under the key `text`.
      task: the name of the task, for the error.

    Raises:
      ConfigError: if the inputs are not text.
    """
    texts: list[str] = []
    for batch in batches:
        if "text" not in batch:
            raise ConfigError(f"the task {task} has {', '.join(batch)}, but xlj encodes text only")
        texts += batch["text"]
    return texts


def prompt(sentence: SentenceModules | None, task_metadata: Any, prompt_type: Any) -> str | None:
    """Returns the prompt for the texts of a task, as mteb and sentence-transformers choose it.

    mteb looks for a prompt with the name of the task or of its type, with and without the type of
    prompt, then for a prompt named `query` or `document`. If the folder has no prompt of these
    names, sentence-transformers adds empty ones.

    Args:
      prompt_type: mteb's `PromptType`; None for tasks whose texts are all alike.

    Returns:
      A text; None for the default prompt of the folder.
    """
    from mteb.models.abs_encoder import get_prompt_name

    settings = sentence.settings if sentence else {}
    prompts = {"query": "", "document": "", **(settings.get("prompts") or {})}
    name = get_prompt_name(prompts, task_metadata, prompt_type)
    return prompts[name] if name else None


def metadata(
    sentence: SentenceModules | None,
    source: str,
    digest: str,
    width: int,
    parameters: int | None,
    max_tokens: int,
    framework: str,
) -> Any:
    """Returns mteb's `ModelMeta` of an encoder.

    Args:
      sentence: the sentence modules; None if the model has none.
      source: the path that the encoder was loaded from, which gives the name; may be empty.
      digest: the revision, since mteb stores results by name and revision.
      width: the size of a sentence vector.
      parameters: the number of parameters; None if unknown.
      max_tokens: the maximum number of tokens of a text.
      framework: mteb's name of what runs the model.

    Raises:
      ConfigError: if the model was trained for another similarity than the cosine.
    """
    from mteb.models import ModelMeta

    if sentence and sentence.similarity != "cosine":
        raise ConfigError(
            f"the folder names the similarity {sentence.similarity!r}, but xlj computes "
            "cosines; give mteb the SentenceTransformer of the folder"
        )
    return ModelMeta.create_empty(
        {
            "name": f"xlj/{Path(source).resolve().name if source else 'encoder'}",
            "revision": digest,
            "n_parameters": parameters,
            "max_tokens": max_tokens,
            "embed_dim": width,
            "framework": [framework],
        }
    )
