"""Folders of each family of models are adapted, and transformers loads the result."""

import json

import modern_tokenizers
import numpy as np
import pytest
from tokenizers import ByteLevelBPETokenizer, implementations, processors

import xlj
from xlj import adapt
from xlj.adaptation import stages
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop import tokenizer_files

pytestmark = [pytest.mark.slow, pytest.mark.parity]

SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 66,
    "initializer_range": 0.3,
}
SENTENCE = "Wapishi wanafungua mlango."  # Swahili


@pytest.fixture(scope="module")
def lines(corpus):
    """English and German lines, the training text of the tokenizers."""
    return [
        line
        for name in ("en", "de")
        for line in (corpus / f"mono/{name}.txt").read_text("utf-8").splitlines()[:1000]
    ]


def unigram(lines, path):
    vocabulary = Vocabulary(vocabulary_training.train({"en": lines}, {"en": 1}, 300, 1.0))
    tokenizer_files.write(vocabulary, path, 64)
    return {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}


def roberta(lines, path):
    tokenizer = ByteLevelBPETokenizer()
    special_tokens = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    tokenizer.train_from_iterator(lines, vocab_size=400, special_tokens=special_tokens)
    tokenizer._tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer.save(str(path / "tokenizer.json"))
    return {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}


def word_piece(lines, path):
    tokenizer = implementations.BertWordPieceTokenizer()
    tokenizer.train_from_iterator(lines, vocab_size=400)
    tokenizer.save_model(str(path))
    return {"pad_token_id": 0}


def modern(kind, *names):
    def write(lines, path):
        tokenizer = modern_tokenizers.MODERN[kind](lines, 400)
        modern_tokenizers.write_folder(path, kind, tokenizer)
        return {key: tokenizer.token_to_id(name) for key, name in zip(_IDS, names, strict=True)}

    return write


_IDS = ("pad_token_id", "bos_token_id", "eos_token_id")
FAMILIES = {
    "XLMRoberta": unigram,
    "Roberta": roberta,
    "Bert": word_piece,
    "Gte": unigram,
    "ModernBert": modern("modernbert", "[PAD]", "[CLS]", "[SEP]"),
    "EuroBert": modern("eurobert", *["<|end_of_text|>"] * 2, "<|begin_of_text|>"),
}


def write_model(family, lines, path):
    """Writes the folder of a model with random weights, with transformers."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    path.mkdir()
    specials = FAMILIES[family](lines, path)
    torch.manual_seed(0)
    size = len(transformers.AutoTokenizer.from_pretrained(path)) if family != "Bert" else 400
    config = getattr(transformers, f"{family}Config")(vocab_size=size, **SIZES, **specials)
    getattr(transformers, f"{family}ForMaskedLM")(config).save_pretrained(path)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_is_adapted_and_loads_in_transformers(
    family, lines, corpus, rows_folder, call, tmp_path, monkeypatch
):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    monkeypatch.setattr(stages, "_HELD_OUT", 8)  # few lengths, so few compiled programs
    write_model(family, lines, tmp_path / "source")
    pieces = 0 if family == "Bert" else 30
    printed = call(
        adapt.main, f"--from={tmp_path}/source", "--languages=sw", "--replay=en",
        f"--mono={corpus}/mono/{{language}}.txt", "--steps=3", f"--pieces={pieces}",
        f"--config.data.cache={rows_folder}", "--config.data.length=32",
        "--config.objectives.mmlm.batch_size=8", f"--output={tmp_path}/out",
    ).out  # fmt: skip
    model = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "out/model").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out/model")
    source = transformers.AutoTokenizer.from_pretrained(tmp_path / "source")
    assert len(tokenizer) == len(source) + pieces and "model:" in printed
    shorter = len(source(SENTENCE)["input_ids"]) - len(tokenizer(SENTENCE)["input_ids"])
    assert shorter > 0 if pieces else shorter == 0
    masked = SENTENCE.replace("mlango", "<mask>")
    with torch.no_grad():
        ids = tokenizer(masked.replace("<mask>", tokenizer.mask_token), return_tensors="pt")
        row = int((ids["input_ids"][0] == tokenizer.mask_token_id).nonzero()[0, 0])
        best = model(**ids).logits[0, row].softmax(-1).sort(descending=True)
    fillings = xlj.load(tmp_path / "out/model").fill(masked, top_k=4)[0]
    np.testing.assert_allclose([p for _, p in fillings], best.values[:4].numpy(), rtol=1e-3)
    record = json.loads((tmp_path / "out/adaptation.json").read_text())
    assert set(record["after"]["nats_per_character"]) == {"sw", "en"}
