"""Reads and writes sentence-transformers' modules, which turn hidden vectors into sentence vectors.

Sources: sentence-transformers 5 and 6. The two releases have different module paths.
"""

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from xlj.config import ConfigError
from xlj.config.choices import ACTIVATIONS
from xlj.interop.folder import CONFIG, MODULES, WEIGHTS, Folder, inside, refuse_pickles
from xlj.io import atomic, json_file
from xlj.io.json_file import Record
from xlj.io.quoting import quoted, shortened

SENTENCE = "sentence/"
"""Prefix of the names of the parameters of Dense modules."""
POOLINGS = ("cls", "max", "mean", "mean_sqrt_len_tokens", "lasttoken")
"""The supported pooling modes. If a model has several, their results are concatenated in this
order."""

_SETTINGS = "config_sentence_transformers.json"
_TRANSFORMER_FILES = tuple(
    f"sentence_{name}_config.json"
    for name in ("bert", "roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")
)
_TOKENIZER = "tokenizer_config.json"
_OLD_POOLINGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
MIN_NORM = 1e-12
"""The smallest divisor of a Normalize module, as in PyTorch."""

_VECTOR, _TOKENS = "sentence_embedding", "token_embeddings"
_POOLER = "pooler.dense"
_USE_ENCODER_ONLY = "; remove modules.json to use the encoder without sentence modules"


@dataclasses.dataclass(frozen=True)
class Dense:
    """A linear layer with an activation and an optional residual connection."""

    inputs: int
    outputs: int
    activation: str  # one of `choices.ACTIVATIONS`
    bias: bool = True
    residual: bool = False


@dataclasses.dataclass(frozen=True)
class SentenceModules:
    """The sentence-transformers modules after an encoder.

    Attributes:
      pooling: the pooling modes for the hidden vectors of the last layer. The results of several
        modes are concatenated.
      include_prompt: whether pooling includes the tokens of the prompt.
      steps: the modules after pooling, in order. None means L2 normalisation.
      length: the maximum number of tokens, including `<s>` and `</s>`; 0 means the maximum of the
        encoder.
      lowercase: whether to lowercase text before it is tokenized.
      settings: the content of `config_sentence_transformers.json`. xlj uses the keys `prompts`,
        `default_prompt_name`, `similarity_fn_name` and `truncate_dim`, the number of dimensions to
        keep of a vector.
    """

    pooling: tuple[str, ...] = ("mean",)
    include_prompt: bool = True
    steps: tuple[Dense | None, ...] = ()
    length: int = 0
    lowercase: bool = False
    settings: Record = dataclasses.field(default_factory=dict)

    def width(self, hidden: int) -> int:
        """Returns the size of a sentence vector.

        Args:
          hidden: the size of the encoder's hidden vectors.
        """
        sizes = [step.outputs for step in self.steps if step]
        return sizes[-1] if sizes else hidden * len(self.pooling)

    def prompt(self, name: str | None) -> str:
        """Returns the text of a prompt.

        Args:
          name: the name of the prompt; None for the default prompt. Without a default prompt, the
            text is empty.

        Raises:
          ConfigError: if the model has no prompt with this name.
        """
        prompts = self.settings.get("prompts") or {}
        if name is None:
            return prompts.get(self.settings.get("default_prompt_name"), "")
        if name not in prompts:
            names = ", ".join(sorted(prompts)) or "no prompts"
            raise ConfigError(
                f"unknown prompt {quoted(name)}; expected a prompt of the model ({names})"
            )
        return prompts[name]

    def role_prompt(self, role: str) -> str:
        """Returns the prompt for `query` or `document`; empty if the model has no such prompt.

        A prompt for documents may be named `document`, `passage` or `corpus`.
        """
        prompts = self.settings.get("prompts") or {}
        names = ("query",) if role == "query" else ("document", "passage", "corpus")
        return next((prompts[name] for name in names if prompts.get(name)), "")

    @property
    def similarity(self) -> str:
        """The similarity for which the model was trained: cosine, dot, euclidean or manhattan.

        The dot product of normalised vectors is their cosine.
        """
        name = str(self.settings.get("similarity_fn_name") or "cosine")
        return "cosine" if name == "dot" and self.steps[-1:] == (None,) else name

    def record(self) -> Record:
        """Returns the modules as a JSON object, which `from_record` reads."""
        return dataclasses.asdict(self)

    def report(self) -> str:
        """Returns one printable line that lists the modules."""
        steps = [
            f"Dense {s.inputs} to {s.outputs} ({s.activation})" if s else "Normalize"
            for s in self.steps
        ]
        return ", ".join([f"pooling {' and '.join(self.pooling)}", *steps])


def from_record(record: Record | None) -> SentenceModules | None:
    """Returns the modules from a JSON object of `SentenceModules.record`; None for None."""
    if record is None:
        return None
    steps = tuple(Dense(**step) if step else None for step in record["steps"])
    return SentenceModules(**record | {"steps": steps, "pooling": tuple(record["pooling"])})


Weights = dict[str, np.ndarray]
"""The parameters of Dense modules by name, float32.

A Dense module at index 0 of `steps` has `sentence/0/kernel` [inputs, outputs], and optionally
`sentence/0/bias` [outputs] and `sentence/0/residual` [inputs, outputs]."""


def encoder_folder(folder: Path) -> Path:
    """Returns the folder of the encoder: `folder`, or a folder inside it that modules.json
    names."""
    if not (folder / MODULES).is_file():
        return folder
    return folder / _read_module_list(folder)[0][1]


def read(folder: Path, model: Folder, hidden: int) -> tuple[SentenceModules | None, Weights]:
    """Reads the sentence modules of a folder and their weights; (None, {}) without modules.json.

    Args:
      model: the folder of the encoder.
      hidden: the size of the encoder's hidden vectors.

    Raises:
      ConfigError: if a file is damaged, or a module or an option is not supported.
    """
    if not (folder / MODULES).is_file():
        return None, {}
    module_list = _read_module_list(folder)
    settings = _read_optional(folder, _SETTINGS)
    kind = settings.get("model_type", "SentenceTransformer")
    if kind != "SentenceTransformer":
        raise ConfigError(
            f"{folder / _SETTINGS}: model_type is {quoted(kind)}; xlj supports SentenceTransformer "
            "only"
        )
    _check_settings(settings, folder / _SETTINGS)
    length, lowercase, output = _read_transformer(model)
    pooling: tuple[str, ...] = ("cls",)
    include_prompt = True
    modules: list[Dense | None] = []
    weights: Weights = {}
    remaining = module_list[1:]
    if output == "pooler_output":
        dense, arrays = _read_pooler(model)
        weights |= _add_prefix(0, arrays)
        modules.append(dense)
    elif not remaining or remaining[0][0] != "Pooling":
        raise ConfigError(f"{folder / MODULES}: expected a Pooling module after the Transformer")
    else:
        pooling, include_prompt = _read_pooling(folder / remaining.pop(0)[1], hidden)
    width = hidden * len(pooling)
    for name, path in remaining:
        if name == "Normalize":
            _check_names(_read_optional(folder / path, CONFIG), folder / path / CONFIG)
            modules.append(None)
        elif name == "Dense":
            dense, arrays = _read_dense(folder / path, width)
            weights |= _add_prefix(len(modules), arrays)
            modules.append(dense)
            width = dense.outputs
        else:
            raise ConfigError(
                f"{folder / MODULES}: the module {path} is a {name} module, but only Dense and "
                "Normalize may follow the Pooling"
            )
    result = SentenceModules(pooling, include_prompt, tuple(modules), length, lowercase, settings)
    return result, weights


def digest(model: Folder, modules: SentenceModules, weights: Weights) -> str:
    """Returns the SHA-256 of the encoder, the modules and their weights."""
    total = hashlib.sha256(model.digest().encode())
    total.update(json.dumps(modules.record(), sort_keys=True).encode())
    for name in sorted(weights):
        total.update(weights[name].tobytes())
    return total.hexdigest()


def write(folder: Path, modules: SentenceModules, weights: Mapping[str, Any], hidden: int) -> None:
    """Adds sentence-transformers' files to a folder, for releases 5 and 6.

    sentence-transformers then computes the same vectors as `retrieval.embedder`.

    Args:
      weights: the weights of Dense modules (`Weights`), as arrays or as objects that NumPy converts
        to arrays.
      hidden: the size of the encoder's hidden vectors.
    """
    kinds = [
        "Transformer",
        "Pooling",
        *("Dense" if step else "Normalize" for step in modules.steps),
    ]
    paths = ["", *(f"{number}_{kind}" for number, kind in enumerate(kinds) if number)]
    for path in filter(None, paths):
        (folder / path).mkdir()
    module_list = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (kind, path) in enumerate(zip(kinds, paths, strict=True))
    ]
    _write(folder / MODULES, module_list)
    limits = {"max_seq_length": modules.length or None, "do_lower_case": modules.lowercase}
    _write(folder / _TRANSFORMER_FILES[0], limits)
    if modules.settings:
        _write(folder / _SETTINGS, modules.settings)
    pooling = {
        "word_embedding_dimension": hidden,
        **{key: mode in modules.pooling for key, mode in _OLD_POOLINGS.items()},
        "include_prompt": modules.include_prompt,
    }
    _write(folder / paths[1] / CONFIG, pooling)
    for number, (step, path) in enumerate(zip(modules.steps, paths[2:], strict=True)):
        if step is None:
            continue
        dense = {
            "in_features": step.inputs,
            "out_features": step.outputs,
            "bias": step.bias,
            "activation_function": _class_of(step.activation),
            **({"use_residual": True} if step.residual else {}),
        }
        _write(folder / path / CONFIG, dense)
        arrays = {
            name: np.asarray(weights[f"{SENTENCE}{number}/{name}"])
            for name in ("kernel", "bias", "residual")
            if f"{SENTENCE}{number}/{name}" in weights
        }
        in_torch = {"linear.weight": arrays["kernel"].T}
        if step.bias:
            in_torch["linear.bias"] = arrays["bias"]
        if "residual" in arrays:
            in_torch["residual.weight"] = arrays["residual"].T
        tensors = {name: np.ascontiguousarray(array, "<f4") for name, array in in_torch.items()}
        atomic.write(folder / path / WEIGHTS, save(tensors, {"format": "pt"}))


def _class_of(activation: str) -> str:
    """Returns the class of an activation, as sentence-transformers writes it."""
    module = "linear" if activation == "Identity" else "activation"
    return f"torch.nn.modules.{module}.{activation}"


def pooling_only(length: int, pooling: str) -> SentenceModules:
    """Returns modules with pooling only.

    Args:
      length: the maximum number of tokens.
      pooling: `mean` (of all tokens, including special tokens) or `first` (the first token's
        vector), as in `retrieval.embedder`.
    """
    mode = "cls" if pooling == "first" else pooling
    return SentenceModules((mode,), length=length)


def trained(
    pooling: SentenceModules,
    width: int,
    dense: Dense | None,
    prompts: Mapping[str, str],
    sizes: Sequence[int],
) -> SentenceModules:
    """Returns the modules of vectors that an objective has trained.

    Args:
      pooling: the pooling.
      width: of the encoder.
      dense: the linear layer after the pooling; None for no such layer.
      prompts: the prompts `query` and `document`; empty for none.
      sizes: the numbers of first dimensions that were trained too (Matryoshka).
    """
    steps = (dense, None) if dense else (None,)
    settings: Record = {"similarity_fn_name": "cosine"}
    if prompts:
        settings |= {"prompts": dict(prompts), "default_prompt_name": None}
    if sizes:
        settings["matryoshka_dimensions"] = sorted([*sizes, dense.outputs if dense else width])
    return dataclasses.replace(pooling, steps=steps, settings=settings)


def _write(file: Path, content: list | dict) -> None:
    text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
    atomic.write(file, text.encode())


def _read_module_list(folder: Path) -> list[tuple[str, str]]:
    """Returns (class name, path) of each module in modules.json. The first is a Transformer."""
    where = inside(folder, MODULES)
    content = json_file.read(where)
    module_list = []
    for number, entry in enumerate(content if isinstance(content, list) else []):
        kind, path = (
            (entry.get("type"), entry.get("path", "")) if isinstance(entry, dict) else (None, None)
        )
        if not isinstance(kind, str) or not isinstance(path, str):
            raise ConfigError(f"{where}: module {number} must have a type and a path, both strings")
        if path and (PurePath(path).name != path or path in (".", "..")):
            raise ConfigError(
                f"{where}: module {number} has the path {quoted(path)}; expected the "
                f"name of a folder next to {MODULES}"
            )
        package, _, name = kind.rpartition(".")
        is_builtin = package.partition(".")[0] == "sentence_transformers"
        if not is_builtin or name not in ("Transformer", "Pooling", "Dense", "Normalize"):
            raise ConfigError(
                f"{where}: module {number} is {quoted(kind)}; xlj supports sentence-transformers' "
                f"Transformer, Pooling, Dense and Normalize{_USE_ENCODER_ONLY}"
            )
        module_list.append((name, path))
    names = [name for name, _ in module_list]
    if names[:1] != ["Transformer"] or "Transformer" in names[1:] or "Pooling" in names[2:]:
        raise ConfigError(
            f"{where}: the modules are {', '.join(names) or 'missing'}; expected a Transformer, a "
            "Pooling, then any number of Dense and Normalize modules"
        )
    return module_list


def _read_optional(folder: Path, name: str) -> Record:
    """Reads a JSON object from a file; empty if the file does not exist."""
    return json_file.read_object(inside(folder, name)) if (folder / name).is_file() else {}


def _check_settings(settings: Record, where: Path) -> None:
    prompts = settings.get("prompts") or {}
    default = settings.get("default_prompt_name")
    if not isinstance(prompts, dict) or not all(isinstance(p, str) for p in prompts.values()):
        raise ConfigError(f"{where}: prompts must be an object that maps names to texts")
    if default is not None and default not in prompts:
        raise ConfigError(
            f"{where}: default_prompt_name is {quoted(default)}; expected a name in prompts"
        )
    size = settings.get("truncate_dim")
    if size is not None and (type(size) is not int or size < 1):
        raise ConfigError(f"{where}: truncate_dim is {quoted(size)}; expected a positive number")


def _read_transformer(model: Folder) -> tuple[int, bool, str]:
    """Reads the options of the Transformer module.

    Returns:
      The maximum number of tokens (0 if unknown), whether text is lowercased, and the encoder's
      output: last_hidden_state or pooler_output.
    """
    file = next(
        (name for name in _TRANSFORMER_FILES if (model.path / name).is_file()),
        _TRANSFORMER_FILES[0],
    )
    where, content = model.path / file, _read_optional(model.path, file)
    supported_values: Record = {"transformer_task": "feature-extraction", "processing_kwargs": {}}
    options = ("model", "tokenizer", "config", "processor")
    supported_values |= {f"{name}_{kind}": {} for name in options
              for kind in ("args", "kwargs")}  # fmt: skip
    supported_values |= dict.fromkeys(("query_length", "document_length", "query_expansion"))
    for key, supported in supported_values.items():
        if content.get(key, supported) not in (supported, None):
            raise ConfigError(
                f"{where}: {key} is {quoted(content[key])}, which xlj does not "
                f"support{_USE_ENCODER_ONLY}"
            )
    output: str | None = "last_hidden_state"
    if (modalities := content.get("modality_config")) is not None:
        text = modalities.get("text") if isinstance(modalities, dict) else None
        output = text.get("method_output_name") if isinstance(text, dict) else None
        name = content.get("module_output_name")
        pairs = {"last_hidden_state": _TOKENS, "pooler_output": _VECTOR}
        is_forward = isinstance(text, dict) and text.get("method") == "forward"
        if not is_forward or output not in pairs or name != pairs[output]:
            raise ConfigError(
                f"{where}: modality_config or module_output_name is not supported; expected the "
                "modality text with method forward, and either method_output_name "
                "last_hidden_state with module_output_name token_embeddings, or pooler_output with "
                "sentence_embedding"
            )
    length = content.get("max_seq_length")
    if length is None:
        length = _read_optional(model.path, _TOKENIZER).get("model_max_length")
        length = int(length) if isinstance(length, int | float) and length < 1 << 31 else 0
    elif isinstance(length, bool) or not isinstance(length, int) or length < 3:
        raise ConfigError(f"{where}: max_seq_length is {quoted(length)}; expected 3 or more")
    return length, bool(content.get("do_lower_case", False)), str(output)


def _read_pooling(path: Path, hidden: int) -> tuple[tuple[str, ...], bool]:
    config = json_file.read_object(inside(path, CONFIG))
    if "pooling_mode" in config:
        value = config["pooling_mode"]
        modes = value if isinstance(value, list) else [value]
    else:
        modes = [mode for key, mode in _OLD_POOLINGS.items() if config.get(key)] or ["mean"]
    for mode in modes:
        if mode not in POOLINGS:
            raise ConfigError(
                f"{path / CONFIG}: the pooling mode is {quoted(mode)}; xlj supports "
                f"{', '.join(POOLINGS)}{_USE_ENCODER_ONLY}"
            )
    if len({*modes}) < len(modes) or modes != sorted(modes, key=POOLINGS.index):
        raise ConfigError(
            f"{path / CONFIG}: the pooling modes are {', '.join(modes)}; expected each mode once, "
            f"in the order {', '.join(POOLINGS)}"
        )
    size = config.get("embedding_dimension", config.get("word_embedding_dimension"))
    if size != hidden:
        raise ConfigError(
            f"{path / CONFIG}: embedding_dimension is {quoted(size)}, but the encoder's hidden "
            f"vectors have {hidden} dimensions"
        )
    return tuple(modes), bool(config.get("include_prompt", True))


def _check_names(config: Record, where: Path) -> None:
    for key in ("module_input_name", "module_output_name"):
        if config.get(key) not in (None, _VECTOR):
            raise ConfigError(f"{where}: {key} is {quoted(config[key])}; expected {_VECTOR}")


def _read_dense(path: Path, width: int) -> tuple[Dense, dict[str, np.ndarray]]:
    where = path / CONFIG
    config = json_file.read_object(inside(path, CONFIG))
    _check_names(config, where)
    activation = config.get("activation_function", _class_of("Tanh"))
    name = str(activation).rpartition(".")[2]
    if not str(activation).startswith("torch.nn.") or name not in ACTIVATIONS:
        raise ConfigError(
            f"{where}: activation_function is {quoted(activation)}; xlj supports "
            f"{', '.join(ACTIVATIONS)} of torch.nn{_USE_ENCODER_ONLY}"
        )
    if config.get("in_features") != width:
        raise ConfigError(
            f"{where}: in_features is {quoted(config.get('in_features'))}, but the previous module "
            f"has {width} outputs"
        )
    outputs = config.get("out_features")
    if isinstance(outputs, bool) or not isinstance(outputs, int) or outputs < 1:
        raise ConfigError(f"{where}: out_features is {quoted(outputs)}; expected at least 1")
    has_bias, residual = bool(config.get("bias", True)), bool(config.get("use_residual", False))
    if not (path / WEIGHTS).is_file():
        refuse_pickles(path)
        raise ConfigError(f"{path} has no {WEIGHTS}; download the weights of this Dense module")
    shapes: dict[str, tuple[int, ...]] = {"linear.weight": (outputs, width)}
    if has_bias:
        shapes["linear.bias"] = (outputs,)
    if residual and outputs != width:
        shapes["residual.weight"] = (outputs, width)
    tensors = _read_tensors(inside(path, WEIGHTS), shapes)
    dense = Dense(width, outputs, name, has_bias, residual)
    return dense, _from_torch(tensors)


def _add_prefix(number: int, arrays: Mapping[str, np.ndarray]) -> Weights:
    return {f"{SENTENCE}{number}/{name}": array for name, array in arrays.items()}


def _from_torch(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    arrays = {"kernel": tensors["linear.weight"].T}
    if "linear.bias" in tensors:
        arrays["bias"] = tensors["linear.bias"]
    if "residual.weight" in tensors:
        arrays["residual"] = tensors["residual.weight"].T
    return arrays


def _read_tensors(file: Path, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, np.ndarray]:
    try:
        tensors = load_file(file)
    except (OSError, SafetensorError) as error:
        raise ConfigError(f"{file} is damaged: {shortened(str(error))}") from None
    if tensors.keys() != shapes.keys():
        names = ", ".join(sorted(tensors.keys() ^ shapes.keys()))
        raise ConfigError(f"{file}: missing or unexpected tensors: {names}")
    for name, shape in shapes.items():
        if tensors[name].shape != shape:
            raise ConfigError(
                f"{file}: {name} has shape {list(tensors[name].shape)}; {CONFIG} implies "
                f"{list(shape)}"
            )
        if not np.isfinite(tensors[name]).all():
            raise ConfigError(f"{file}: {name} has values that are not finite")
    return {name: array.astype(np.float32) for name, array in tensors.items()}


def _read_pooler(model: Folder) -> tuple[Dense, dict[str, np.ndarray]]:
    """Reads BERT's pooler as a Dense module, which is applied to the vector of `<s>`."""
    names = [n for n in model.shapes if n.endswith(f"{_POOLER}.weight")]
    if model.config.get("model_type") not in ("bert", "xlm-roberta", "roberta") or len(names) != 1:
        raise ConfigError(
            f"{model.path}: modules.json uses pooler_output, but the folder has no tensor "
            f"{_POOLER}.weight of BERT, RoBERTa or XLM-R"
        )
    prefix = names[0].removesuffix("weight")
    arrays = {"kernel": model.read(names[0]).T, "bias": model.read(f"{prefix}bias")}
    inputs, outputs = arrays["kernel"].shape
    return Dense(inputs, outputs, "Tanh"), arrays
