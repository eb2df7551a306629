"""Exported folders have what text-embeddings-inference, vLLM and llama.cpp require."""

import dataclasses
import itertools
import json

import pytest
from tokenizer_folders import folder_with_tokenizer

from xlj import convert
from xlj.config import Model, families
from xlj.interop import servers, to_hugging_face
from xlj.interop.folder import open_folder
from xlj.io import atomic
from xlj.sharding.trees import named_leaves

LABELS = ("no", "perhaps", "yes")
TOKENIZERS = {"roberta": "Roberta", "modernbert": "Roberta", "eurobert": "Roberta", "bert": "Bert"}
MASKED, CLASSES, TAGS = "prediction", "classification", "tagging"
ALL = {"TEI", "vLLM", "llama.cpp"}
SERVED = {
    ("xlm_r", ""): ALL,
    ("xlm_r", MASKED): {"TEI"},
    ("xlm_r", CLASSES): ALL,
    ("xlm_r", "regression"): ALL,
    ("xlm_r", TAGS): set(),
    ("roberta", ""): ALL,
    ("roberta", MASKED): {"TEI", "vLLM"},
    ("bert", ""): ALL,
    ("bert", MASKED): {"TEI", "llama.cpp"},
    ("bert", CLASSES): ALL,
    ("bert", TAGS): {"vLLM"},
    ("gte", ""): {"TEI", "vLLM"},
    ("gte", MASKED): {"TEI"},
    ("gte", CLASSES): {"TEI"},
    ("modernbert", ""): ALL,
    ("modernbert", MASKED): {"TEI", "llama.cpp"},
    ("modernbert", CLASSES): ALL,
    ("modernbert", "regression"): ALL,
    ("modernbert", TAGS): {"vLLM"},
    ("modernbert", "question_answering"): set(),
    ("eurobert", ""): {"llama.cpp"},
    ("eurobert", MASKED): set(),
    ("eurobert", CLASSES): set(),
}
"""The servers that read an export, by family and head."""


@pytest.fixture
def export(tmp_path, vocabulary, params_of):
    """A function that exports a random model of a family, as trained (pairs as in xlj's rows) or
    as imported. Further arguments are options of the model. It returns the folder."""

    def make(kind, head="", trained=False, **options):
        tokens = vocabulary
        if kind in TOKENIZERS:
            tokens = folder_with_tokenizer(TOKENIZERS[kind], tmp_path / "tokenizer", vocabulary)
        family = families.options_of(kind) if kind in families.registered_families() else {}
        sizes = {"layers": 4, "hidden": 32, "heads": 4, "intermediate": 24, "positions": 42}
        model = Model(**sizes | family | options)
        task = head if head != MASKED else ""
        labels = LABELS if head in (CLASSES, TAGS) else ()
        leaves = named_leaves(params_of(model, tokens.size, head == MASKED, task, labels))
        plan = to_hugging_face.plan(leaves, model, tokens, False, labels)
        with atomic.new_folder(tmp_path / "exported") as folder:
            to_hugging_face.write(folder, plan, leaves, model, tokens, trained)
        return open_folder(tmp_path / "exported")

    return make


@pytest.mark.parametrize("kind, head", SERVED)
def test_exports_fulfil_the_contracts_and_a_missing_key_or_tensor_is_named(kind, head, export):
    folder = export(kind, head, trained=head not in ("", MASKED))
    reasons = {server: servers.why_not(server, folder) for server in servers.CONTRACTS}
    assert {server for server, reason in reasons.items() if not reason} == SERVED[kind, head]
    name = folder.config["architectures"][0]
    for server in SERVED[kind, head]:
        contract = servers.CONTRACTS[server][folder.config["model_type"]]
        needs = contract.classes[name]
        for key in {*contract.keys, *needs.keys} - {"num_hidden_layers"}:
            without = {k: v for k, v in folder.config.items() if k not in key.split("|")}
            red = servers.why_not(server, dataclasses.replace(folder, config=without))
            assert red == "config.json lacks " + key or key in ("hidden_act", "hidden_activation",
                "global_attn_every_n_layers")  # fmt: skip
            assert red
            null = folder.config | dict.fromkeys(key.split("|"))
            assert servers.why_not(server, dataclasses.replace(folder, config=null)) == red
        for pattern in (*contract.tensors, *needs.tensors):
            tensor = pattern.format(layer=3, later=3)
            removed = {tensor, f"{contract.prefix}.{tensor}"} & folder.shapes.keys()
            assert len(removed) == 1, tensor
            shapes = {n: s for n, s in folder.shapes.items() if n not in removed}
            red = servers.why_not(server, dataclasses.replace(folder, shapes=shapes))
            assert red == f"the weights lack {tensor}"


IRREGULAR = {"full_layers": ("0", "1"), "local_attention": 8}
BIASED = {"biases": ("attention", "output", "inner", "outer", "prediction", "vocabulary")}


@pytest.mark.parametrize(
    "kind, options, reasons",
    [
        ("modernbert", IRREGULAR,
         {"TEI": "every n-th has full attention", "llama.cpp": "every n-th has full attention"}),
        ("modernbert", {"rotary_factor": 2.0},
         {"TEI": "scaled rotary positions", "llama.cpp": "scaled rotary positions"}),
        ("modernbert", {"norm_type": "layer"},
         {"TEI": "biases such as head.norm.bias", "llama.cpp": "head.norm.bias"}),
        ("modernbert", {"biases": ("prediction", "vocabulary")},
         {"TEI": "biases such as head.dense.bias", "llama.cpp": "head.dense.bias"}),
        ("modernbert", {"biases": ("attention", "output")},
         {"llama.cpp": "biases such as model.layers.0.attn.Wo.bias"}),
        ("modernbert", {"feed_forward": "swiglu"},
         {"vLLM": "it applies GELU, but hidden_activation is silu"}),
        ("gte", {"rotary_factor": 2.0}, {"TEI": "scaled", "vLLM": "lacks rope_theta"}),
        ("eurobert", {}, {"TEI": "no model_type eurobert", "vLLM": "no model_type eurobert"}),
        ("eurobert", {"rotary_factor": 2.0}, {"llama.cpp": "scaled rotary positions"}),
        ("eurobert", {"biases": ("attention", "output")},
         {"llama.cpp": "biases such as layers.0.self_attn.k_proj.bias"}),
        ("xlm_r", {"norm": "pre"}, {"TEI": "no model_type xlm-roberta-xl"}),
    ],
)  # fmt: skip
def test_what_a_server_cannot_express_is_named(kind, options, reasons, export):
    head = CLASSES if kind == "modernbert" else ""
    folder = export(kind, head, **options)
    for server in ALL:
        reason = servers.why_not(server, folder)
        if server in reasons:
            assert reasons[server] in reason
        else:
            assert bool(reason) == (server not in SERVED[kind, head] or kind == "xlm_r")


def test_llama_cpp_needs_a_charsmap_that_it_finds(export):
    folder = export("xlm_r")
    (folder.path / "sentencepiece.bpe.model").unlink()
    assert not servers.hash_note(folder)
    file, charsmap = folder.path / "tokenizer.json", {"precompiled_charsmap": "AA=="}
    content = json.loads(file.read_text())
    for normalizer, is_read in (
        (charsmap, True), ({"type": "Sequence", "normalizers": [charsmap]}, False), (None, False)
    ):  # fmt: skip
        file.write_text(json.dumps(content | {"normalizer": normalizer}))
        reason = servers.why_not("llama.cpp", folder)
        assert ("precompiled_charsmap at the top" in reason) != is_read


def test_an_export_prints_the_servers_that_cannot_serve_it(export, tmp_path, capsys):
    folder = export("eurobert", "classification")
    arguments = [f"--checkpoint={folder.path}", f"--output={tmp_path}/again"]
    assert convert.main(["export", *arguments]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "not for TEI: it has no model_type eurobert" in lines
    llama = "it reads EuroBertModel, not EuroBertForSequenceClassification"
    assert f"not for llama.cpp: {llama}" in lines
    assert servers.hash_note(folder).startswith("llama.cpp knows a BPE tokenizer by a hash")


@pytest.mark.slow
@pytest.mark.parametrize("change", ["extend", "trim"])
@pytest.mark.parametrize("kind, head", [*itertools.product(("xlm_r", "gte"), ("", MASKED))])
def test_extended_and_trimmed_models_fulfil_the_contracts(kind, head, change, export, tmp_path):
    folder = export(kind, head)
    size = folder.config["vocab_size"]
    pieces = 8 if change == "extend" else size - 8
    text = tmp_path / "new.txt"
    text.write_text("".join(f"qwertz{n % 7} zxcvb{n % 5} asdfgh{n % 3}\n" for n in range(400)))
    convert.main([
        change, f"--checkpoint={folder.path}", f"--text={text}", f"--pieces={pieces}",
        f"--output={tmp_path}/changed",
    ])  # fmt: skip
    arguments = [f"--checkpoint={tmp_path}/changed", f"--output={tmp_path}/again"]
    assert convert.main(["export", *arguments]) == 0
    again = open_folder(tmp_path / "again")
    assert (again.config["vocab_size"] > size) == (change == "extend")
    assert again.config["vocab_size"] != size
    served = {server for server in ALL if not servers.why_not(server, again)}
    assert served == SERVED[kind, head]
