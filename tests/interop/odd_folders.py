"""Writes folders like those of users, with transformers and sentence-transformers.

This command writes one folder outside of the tests. NAME is minilm or one of `NAMES`.

    python tests/interop/odd_folders.py NAME FOLDER
"""

import json
import sys

import pytest

from xlj import phrasebook
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop import tokenizer_files

LINES = [phrasebook.pair(phrasebook.draw(4, k), "en", "de").source.text for k in range(60)]
_SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4,
          "intermediate_size": 48, "max_position_embeddings": 40}  # fmt: skip
_DISTIL = {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 40}
_MODULES = {
    # Modules like those of LaBSE, distiluse and E5, and rare modules.
    "labse": ("Bert", "cls", [("Tanh", 32, {}), None], {}),
    "pooler": ("Bert", None, [None], {}),
    "distiluse": ("DistilBert", "mean", [("Tanh", 24, {})], {"max_seq_length": 9}),
    "e5": ("Bert", "mean", [None], {"prompts": {"query": "The cat: ", "passage": "a book "},
                                    "default_prompt_name": "passage"}),
    "instructor": ("Bert", ("cls", "max", "mean", "mean_sqrt_len_tokens", "lasttoken"),
                   [("GELU", 40, {"bias": False, "use_residual": True}),
                    ("SiLU", 40, {"use_residual": True})],
                   {"prompts": {"query": "The cat sleeps: "}, "include_prompt": False,
                    "max_seq_length": 21}),
    "weighted": ("Bert", "weightedmean", [], {}),
}  # fmt: skip
NAMES = tuple(_MODULES)


def bert(path, kind="Bert", lowercase=False, head="Model", **changes):
    """Writes a folder of BERT or DistilBERT with a tokenizer and large random weights."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    from tokenizers.implementations import BertWordPieceTokenizer

    word_pieces = BertWordPieceTokenizer(lowercase=lowercase)
    word_pieces.train_from_iterator(LINES, vocab_size=200)
    path.mkdir(parents=True)
    word_pieces.save_model(str(path))
    sizes = _SIZES if kind == "Bert" else _DISTIL
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=word_pieces.get_vocab_size(), initializer_range=0.2, **sizes, **changes
    )
    torch.manual_seed(0)
    getattr(transformers, f"{kind}{head}")(config).eval().save_pretrained(path)
    tokenizer = transformers.BertTokenizer(str(path / "vocab.txt"), do_lower_case=lowercase)
    tokenizer.save_pretrained(path)
    return path


def minilm(path, vocabulary, tokenizer_class="XLMRobertaTokenizer"):
    """Writes a folder like Multilingual-MiniLM's; returns the model.

    The folder has BERT's layout, XLM-R's tokenizer, and seven embedding rows without an id.
    """
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = transformers.BertConfig(
        vocab_size=vocabulary.size + 7, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=48, max_position_embeddings=60, initializer_range=0.3, pad_token_id=1,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.BertModel(config).eval()
    model.save_pretrained(path)
    tokenizer_files.write(vocabulary, path, 60)
    if tokenizer_class:
        file = path / "tokenizer_config.json"
        config = json.loads(file.read_text()) | {"tokenizer_class": tokenizer_class}
        config.pop("model_input_names")
        file.write_text(json.dumps(config))
    return model


def sentence_folder(name, path):
    """Writes one of `NAMES` with release 6 of sentence-transformers."""
    st = pytest.importorskip("sentence_transformers")
    import torch
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    kind, pooling, steps, options = _MODULES[name]
    encoder = bert(path.with_name(f"{path.name}-encoder"), kind)
    outputs = {}
    if pooling is None:
        outputs = {
            "modality_config": {
                "text": {"method": "forward", "method_output_name": "pooler_output"}
            },
            "module_output_name": "sentence_embedding",
        }
    transformer = Transformer(
        str(encoder),
        max_seq_length=options.get("max_seq_length"),
        **outputs,
    )
    modules, width = [transformer], 32
    if pooling:
        modules += [Pooling(32, pooling, include_prompt=options.get("include_prompt", True))]
        width *= 1 if isinstance(pooling, str) else len(pooling)
    torch.manual_seed(1)
    for step in steps:
        if step is None:
            modules.append(Normalize())
            continue
        activation, size, dense_options = step
        modules.append(
            Dense(width, size, activation_function=getattr(torch.nn, activation)(), **dense_options)
        )
        width = size
    model = st.SentenceTransformer(
        modules=modules,
        device="cpu",
        prompts=options.get("prompts"),
        default_prompt_name=options.get("default_prompt_name"),
    )
    model.save(str(path), create_model_card=False)
    return path


def as_release_5(path, lowercase=False):
    """Rewrites the folder as release 5 writes it, with other types of modules and other keys."""

    def change(file, edit):
        content = json.loads(file.read_text())
        changed = edit(content)
        file.write_text(json.dumps(content if changed is None else changed))

    def set_types(modules):
        for module in modules:
            name = module["type"].rpartition(".")[2]
            module["type"] = f"sentence_transformers.models.{name}"

    def set_pooling_flags(config):
        modes = config.pop("pooling_mode")
        modes = [modes] if isinstance(modes, str) else modes
        names = {"cls": "cls_token", "max": "max_tokens", "mean": "mean_tokens",
                 "mean_sqrt_len_tokens": "mean_sqrt_len_tokens", "weightedmean":
                 "weightedmean_tokens", "lasttoken": "lasttoken"}  # fmt: skip
        for mode, key in names.items():
            config[f"pooling_mode_{key}"] = mode in modes
        config["word_embedding_dimension"] = config.pop("embedding_dimension")

    length = json.loads((path / "tokenizer_config.json").read_text())["model_max_length"]
    config = {"max_seq_length": min(length, 40), "do_lower_case": lowercase}
    change(path / "modules.json", set_types)
    change(path / "sentence_bert_config.json", lambda content: config)
    change(path / "1_Pooling" / "config.json", set_pooling_flags)
    return path


if __name__ == "__main__":
    from pathlib import Path

    name, folder = sys.argv[1], Path(sys.argv[2])
    if name == "minilm":
        minilm(folder, Vocabulary(vocabulary_training.train({"en": LINES}, {"en": 1}, 200, 1.0)))
    else:
        sentence_folder(name, folder)
