"""Folders of ModernBERT, EuroBERT and gte are read exactly and written back unchanged."""

import dataclasses
import functools
import json
import weakref

import jax
import jax.numpy as jnp
import modern_models
import numpy as np
import pytest
from modern_models import assert_close, hf_outputs, in_float64, random_hf_model
from references.encoder import encode
from references.families import MODELS
from references.heads import prediction
from references.layout import of_lengths
from safetensors.numpy import load_file, save_file
from tokenizer_folders import folder_with_tokenizer

from xlj import convert
from xlj.checkpoints import stored_models
from xlj.config import ConfigError, Model, families
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop import from_hugging_face, to_hugging_face
from xlj.io import atomic
from xlj.models import encoder
from xlj.objectives.mlm.head import predict
from xlj.objectives.supervised import loss as supervised
from xlj.sharding import meshes, trees

PACKED = ((300,), (130, 129), (65, 64, 5))
"""The lengths of the examples in each row.

They are below, at and above the edges of the attention window, which has 64 tokens to each side.
"""

LENGTH = 300
TOKENIZERS = {"ModernBert": "Roberta", "EuroBert": "Roberta", "Gte": "XLMRoberta"}
SURPLUS = {"ModernBert": 0, "EuroBert": 0, "Gte": 46}


def run(*arguments):
    """Runs `xlj.convert` in this process."""
    assert convert.main(arguments) == 0


def save_random_model(
    name, path, vocabulary, width=2.4, head="ForMaskedLM", names="native", **changes
):
    """Writes a random model's folder with transformers; returns its vocabulary and the model."""
    kind = name.partition("-")[0]
    hf_vocabulary = folder_with_tokenizer(TOKENIZERS[kind], path, vocabulary)
    rows = hf_vocabulary.size + SURPLUS[kind]
    changes = {"vocab_size": rows, "max_position_embeddings": LENGTH} | changes
    model = random_hf_model(name, width, head, **changes)
    model.save_pretrained(path, save_original_format=names != "native")
    if names == "new, fused":
        file = path / "model.safetensors"
        tensors = {n.replace("gte.", "new."): tensor for n, tensor in load_file(file).items()}
        save_file(tensors, file, {"format": "pt"})
        of_hub = {
            "model_type": "new",
            "architectures": [f"New{head}"],
            "rope_theta": 20000.0,
            "rope_scaling": {"type": "ntk", "factor": 8.0},  # equivalent to `Gte-large`
            "position_embedding_type": "rope",
        }
        rewrite(path, **of_hub, rope_parameters=None)
    return hf_vocabulary, model


def rewrite(folder, **changes):
    """Changes keys of a config.json; None removes a key."""
    config = json.loads((folder / "config.json").read_text()) | changes
    remaining = {key: value for key, value in config.items() if value is not None}
    (folder / "config.json").write_text(json.dumps(remaining))


def import_folder(path, mesh=None):
    mesh = mesh or meshes.one_device()
    imported = from_hugging_face.inspect(path)
    return imported, from_hugging_face.load(imported, lambda tree: trees.shardings(tree, mesh))


def pack_tokens(vocabulary):
    """Draws a packed batch.

    Returns xlj's token ids [rows, length], their layout, the location of each example as
    (row, mask), and the native ids of each example.
    """
    places = of_lengths(PACKED, LENGTH)
    ids = np.random.default_rng(0).integers(4, vocabulary.size - 1, places[0].shape)
    tokens = np.where(places[0], ids, 1)
    locations = [
        (row, places[0][row] == number)
        for row, lengths in enumerate(PACKED)
        for number in range(1, len(lengths) + 1)
    ]
    return (
        tokens,
        places,
        locations,
        [vocabulary.native_ids[tokens[row, at]] for row, at in locations],
    )


def split(hidden, logits, locations):
    return [(hidden[:, row, at], logits[row, at]) for row, at in locations]


@functools.partial(jax.jit, static_argnames="model")
def xlj_outputs(params, inputs, model):
    hidden = encoder.apply(params, model, inputs, all_layers=True)
    vectors, table, bias = predict(
        params["prediction_head"], params["embeddings"]["word"], model, hidden[-1]
    )
    return hidden, jnp.einsum("rlh,vh->rlv", vectors, table, precision="highest") + bias


def expected_outputs(model, vocabulary, examples):
    """Computes examples with transformers in float64; logits are ordered by xlj's ids."""
    with in_float64():
        exact = type(model)(model.config).double().eval()
        exact.load_state_dict(model.state_dict())
        outputs = hf_outputs(exact, examples)
    return [(states, logits[:, vocabulary.native_ids]) for states, logits in outputs]


SIZES = [
    pytest.param(name, marks=() if name.endswith("small") else pytest.mark.slow) for name in MODELS
]


@pytest.mark.slow
@pytest.mark.parity
@pytest.mark.parametrize("name", MODELS)
def test_the_reference_equals_transformers_on_a_folder(name, tmp_path, vocabulary):
    hf_vocabulary, model = save_random_model(name, tmp_path / "source", vocabulary)
    imported, params = import_folder(tmp_path / "source")
    params = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), params)
    tokens, places, locations, examples = pack_tokens(hf_vocabulary)
    hidden = encode(params, imported.model, tokens, places=places)
    word = params["embeddings"]["word"]
    logits = prediction(params["prediction_head"], word, imported.model, hidden[-1])
    assert_close(
        split(hidden, logits, locations), expected_outputs(model, hf_vocabulary, examples), 1e-10
    )


@pytest.mark.parity
@pytest.mark.parametrize("name", SIZES)
def test_xlj_equals_transformers_on_a_folder(name, tmp_path, vocabulary):
    """Small weights, because large ones amplify float32's rounding to 1e-2 in gte."""
    hf_vocabulary, model = save_random_model(name, tmp_path / "source", vocabulary, width=1.0)
    imported, params = import_folder(tmp_path / "source")
    tokens, places, locations, examples = pack_tokens(hf_vocabulary)
    segment, position, ids = (
        jnp.asarray(array.astype(np.int32)) for array in (places[0], places[2], tokens)
    )
    inputs = encoder.Inputs(ids, position, segment, segment)
    hidden, logits = map(np.asarray, xlj_outputs(params, inputs, imported.model))
    assert_close(
        split(hidden, logits, locations), expected_outputs(model, hf_vocabulary, examples), 1e-5
    )


@pytest.mark.parity
@pytest.mark.parametrize(
    "name, names",
    [(name, "native") for name in MODELS]
    + [("Gte-large", "gte, fused"), ("Gte-large", "new, fused")],
)
def test_parameters_equal_those_of_the_transformers_model(name, names, tmp_path, vocabulary):
    """Compares with the mapping that the tests of the reference encoder use."""
    hf_vocabulary, model = save_random_model(name, tmp_path / "source", vocabulary, names=names)
    state = {part: tensor.numpy() for part, tensor in model.state_dict().items()}
    expected, expected["prediction_head"] = modern_models.convert_state_dict(name, state)
    leaves = trees.named_leaves(expected)
    for leaf in ("embeddings/word", "prediction_head/bias", "prediction_head/word"):
        if leaf in leaves:
            leaves[leaf] = leaves[leaf][hf_vocabulary.native_ids]
    imported, params = import_folder(tmp_path / "source")
    assert bool(params.pop("surplus", None)) == (hf_vocabulary.size < model.config.vocab_size)
    assert_leaves(params, leaves)
    options = {field: getattr(imported.model, field) for field in MODELS[name]}
    different = {field for field in options if options[field] != MODELS[name][field]}
    assert different <= {"dropout", "dropout_parts", "attention_dropout", "biases"}


@pytest.mark.parity
@pytest.mark.parametrize(
    "name, names, exported_from",
    [
        ("ModernBert-large", "native", "checkpoint"),
        ("EuroBert-medium", "native", "checkpoint"),
        ("Gte-medium", "native", "checkpoint"),
        ("Gte-small", "gte, fused", "folder"),
        ("Gte-large", "new, fused", "checkpoint"),
    ],
)
def test_a_folder_is_written_back_bit_for_bit(name, names, exported_from, tmp_path, vocabulary):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    path, out = tmp_path / "source", tmp_path / "again"
    hf_vocabulary, model = save_random_model(name, path, vocabulary, names=names)
    if exported_from == "checkpoint":
        run("import", f"--source={path}", f"--output={tmp_path}/checkpoint")
        run("export", f"--checkpoint={tmp_path}/checkpoint", f"--output={out}")
    else:
        run("export", f"--checkpoint={path}", f"--output={out}")
    before, after = (load_file(p / "model.safetensors") for p in (path, out))
    if name.startswith("Gte"):
        assert "new.encoder.layer.0.attention.qkv_proj.weight" in after
        before, after = modern_models.separate(before), modern_models.separate(after)
    assert before.keys() == after.keys()
    for tensor in before:
        assert before[tensor].tobytes() == after[tensor].tobytes(), tensor
    again, report = transformers.AutoModelForMaskedLM.from_pretrained(out, output_loading_info=True)
    assert type(again) is type(model)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ids = torch.tensor(hf_vocabulary.native_ids[np.arange(3, 203).reshape(2, 100)])
    with torch.no_grad():
        assert torch.equal(again.eval()(ids).logits, model(ids).logits)
    config = json.loads((path / "config.json").read_text())
    if names != "new, fused":
        written_config = json.loads((out / "config.json").read_text())
        differ = {
            key for key in written_config if key in config and written_config[key] != config[key]
        }
        assert differ <= {
            f"{name}_token_id" for name in ("bos", "eos", "pad", "cls", "sep", "mask")
        }


POOLED, TOKENS = "ForSequenceClassification", "ForTokenClassification"
HEADS = [
    ("Gte-large", POOLED, "classification", "new, fused", {}),
    ("Gte-small", POOLED, "regression", "native", {}),
    ("Gte-small", TOKENS, "tagging", "native", {}),
    ("EuroBert-small", TOKENS, "tagging", "native", {}),
    ("EuroBert-small", POOLED, "classification", "native", {"classifier_pooling": "bos"}),
    ("EuroBert-small", POOLED, "classification", "native", {"classifier_pooling": "mean"}),
    ("EuroBert-small", POOLED, "regression", "native", {"classifier_pooling": "late"}),
    ("ModernBert-small", POOLED, "classification", "native", {"classifier_pooling": "cls"}),
    ("ModernBert-large", POOLED, "classification", "native", {"classifier_pooling": "mean"}),
    ("ModernBert-small", POOLED, "regression", "native", {"classifier_pooling": "mean"}),
    ("ModernBert-small", TOKENS, "tagging", "native", {}),
    ("ModernBert-large", "ForQuestionAnswering", "question_answering", "native", {}),
    ("ModernBert-small", "ForMultipleChoice", "multiple_choice", "native", {}),
    ("ModernBert-large", "ForMultipleChoice", "multiple_choice", "native",
     {"classifier_pooling": "mean"}),
]  # fmt: skip
LABELS = {0: "no", 1: "perhaps", 2: "yes"}
TEXTS = ((30, 7, 16), (11, 29, 8))
"""The lengths of the texts. A row of multiple choice has three texts, other rows have one."""


def hf_task_logits(model, kind, texts):
    """Returns the logits that transformers computes of padded texts, which are native ids."""
    import torch

    longest = max(map(len, texts))
    ids = torch.tensor(np.stack([np.pad(text, (0, longest - len(text))) for text in texts]))
    mask = torch.tensor([[place < len(text) for place in range(longest)] for text in texts]).long()
    if kind == "multiple_choice":
        ids, mask = ids.view(len(TEXTS), -1, longest), mask.view(len(TEXTS), -1, longest)
    with torch.no_grad():
        output = model(input_ids=ids, attention_mask=mask)
    if kind == "question_answering":
        return np.stack([output.start_logits.numpy(), output.end_logits.numpy()], -1)
    return output.logits.numpy()


@pytest.mark.parity
@pytest.mark.parametrize("name, head, kind, names, changes", HEADS)
def test_task_heads_are_imported_and_exported(
    name, head, kind, names, changes, tmp_path, vocabulary
):
    transformers = pytest.importorskip("transformers")
    path, out = tmp_path / "source", tmp_path / "again"
    labels = {"regression": {0: "LABEL_0"}, "classification": LABELS, "tagging": LABELS}
    named = {"id2label": labels[kind]} if kind in labels else {}
    hf_vocabulary, model = save_random_model(
        name, path, vocabulary, 1.0, head, names, **named, **changes
    )
    source = stored_models.find(path)
    assert source.labels == (tuple(LABELS.values()) if named.get("id2label") == LABELS else ())
    rng = np.random.default_rng(0)
    texts = [
        np.array([0, *rng.integers(4, hf_vocabulary.size - 1, length - 2), 2])
        for lengths in TEXTS
        for length in lengths
    ]
    rows = [np.concatenate(texts[:3]), np.concatenate(texts[3:])]
    rows = rows if kind == "multiple_choice" else texts
    tokens = np.stack([np.pad(row, (0, 60 - len(row)), constant_values=1) for row in rows])
    logits = np.asarray(
        supervised.logits(
            kind,
            source.params(meshes.one_device()),
            source.model,
            jnp.asarray(tokens.astype(np.int32)),
            jnp.zeros((len(tokens), 2), jnp.int32),
        )
    )
    native = [hf_vocabulary.native_ids[text] for text in texts]
    expected = hf_task_logits(model, kind, native)
    if kind in ("tagging", "question_answering"):
        for row, text in enumerate(texts):
            here = slice(len(text))
            np.testing.assert_allclose(logits[row, here], expected[row, here], atol=1e-5, rtol=0)
    else:
        assert (logits[:, expected.shape[1] :] == -np.inf).all()
        np.testing.assert_allclose(logits[:, : expected.shape[1]], expected, atol=1e-5, rtol=0)
    run("export", f"--checkpoint={path}", f"--output={out}")
    auto = getattr(transformers, f"AutoModel{head}")
    again, report = auto.from_pretrained(out, output_loading_info=True)
    assert type(again) is type(model)
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    assert again.config.id2label == model.config.id2label
    np.testing.assert_allclose(hf_task_logits(again.eval(), kind, native), expected, atol=1e-6)
    before, after = (
        modern_models.separate(load_file(p / "model.safetensors")) for p in (path, out)
    )
    assert before.keys() == after.keys()
    assert all(before[tensor].tobytes() == after[tensor].tobytes() for tensor in before)


MODERN = {
    "modernbert": {
        **families.options_of("modernbert"), "rotary_local_base": 100.0, "local_attention": 8,
    },
    "eurobert": {**families.options_of("eurobert"), "key_value_heads": 2},
    "untied": {**families.options_of("modernbert"), "tied": False, "local_attention": 8},
    "gte": families.options_of("gte"),
}  # fmt: skip
TIED = {
    "modernbert": ("model.embeddings.tok_embeddings.weight", "decoder.weight"),
    "gte": ("new.embeddings.word_embeddings.weight", "lm_head.decoder.weight"),
}
"""The names of the word embeddings and of their copy in the head, which xlj does not write."""

SPECIALS = {
    "modernbert": {"bos": 0, "cls": 0, "eos": 2, "sep": 2, "pad": 1},
    "eurobert": {"bos": 0, "eos": 2, "pad": 1, "mask": -1},
    "gte": {"bos": 0, "eos": 2, "pad": 1},
}
"""The special tokens whose ids config.json has, with their ids in xlj."""

LABELLED = ("classification", "tagging")
WRITTEN = [
    *((kind, "") for kind in MODERN if kind != "gte"),
    *(("gte", names) for names in ("new, fused", "gte, fused", "separate")),
]


@pytest.fixture
def write_folder(tmp_path, vocabulary, params_of):
    """A function that writes the folder of a random model with xlj.

    Its arguments are the options, the set of tensor names (xlj exports only the first), the number
    of surplus rows, and the kind of task of a head with two labels. It returns the folder, its
    model and its leaves.
    """

    def make(kind, names="", surplus=0, task=""):
        model = Model(layers=3, hidden=32, heads=4, intermediate=24, positions=42, **MODERN[kind])
        labels = ("no", "yes") if task in LABELLED else ()
        params = params_of(model, vocabulary.size, not task, task, labels)
        leaves = trees.named_leaves(params)
        rng = np.random.default_rng(3)
        for name in [name for name in leaves if name.split("/")[-1] in ("word", "bias")]:
            leaf = leaves[name]
            if surplus and len(leaf) == vocabulary.size:
                rows = rng.normal(size=(surplus, *leaf.shape[1:])).astype(np.float32)
                leaves[f"surplus/{name}"] = rows
        plan = to_hugging_face.plan(leaves, model, vocabulary, False, labels)
        plan = dataclasses.replace(plan, architecture=plan.architecture.with_names(names))
        with atomic.new_folder(tmp_path / "written") as folder:
            to_hugging_face.write(folder, plan, leaves, model, vocabulary)
        return tmp_path / "written", model, leaves

    return make


def assert_leaves(params, leaves):
    actual = trees.named_leaves(params)
    assert actual.keys() == leaves.keys()
    for name in leaves:
        np.testing.assert_array_equal(actual[name], leaves[name], err_msg=name)


@pytest.mark.parametrize("kind, names", WRITTEN)
def test_import_of_an_export_gives_the_same_parameters_on_any_mesh(
    kind, names, write_folder, monkeypatch
):
    monkeypatch.setattr(to_hugging_face, "_SHARD_BYTES", 20_000)
    folder, model, leaves = write_folder(kind, names)
    assert len(list(folder.glob("model-*-of-*.safetensors"))) > 2
    imported, params = import_folder(folder)
    assert imported.model == dataclasses.replace(
        model, dropout=imported.model.dropout, dropout_parts=imported.model.dropout_parts
    )
    assert imported.architecture.names == names and not imported.ignored
    assert_leaves(params, leaves)
    mesh = jax.make_mesh((2, 4), ("replica", "fsdp"), (jax.sharding.AxisType.Auto,) * 2)
    assert_leaves(import_folder(folder, mesh)[1], leaves)

    def shard_outputs(leaf):  # each device reads a part of the outputs
        axes = [None] * (leaf.ndim - 1) + ["fsdp" if leaf.shape[-1] % 4 == 0 else None]
        return jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec(*axes))

    params = from_hugging_face.load(imported, lambda tree: jax.tree.map(shard_outputs, tree))
    inner = params["layers"]["feed_forward"]["inner"]["kernel"]
    assert inner.addressable_shards[0].data.shape == (3, 32, 12)
    assert_leaves(params, leaves)


@pytest.mark.parametrize("kind, names", [case for case in WRITTEN if case[0] != "untied"])
def test_written_files_have_the_names_rows_and_ids_of_transformers(
    kind, names, write_folder, vocabulary
):
    """Compares with the mapping that the tests of the reference encoder use, without transformers.

    An import alone does not notice two halves of a tensor that are swapped in the mapping.
    """
    folder, model, leaves = write_folder(kind, names)
    state = load_file(folder / "model.safetensors")
    if "fused" in names:
        state = modern_models.separate(state)
    if kind in TIED:
        table, decoder = TIED[kind]
        state[decoder] = state[table.replace("new.", "gte.")]
    name = {"modernbert": "ModernBert", "eurobert": "EuroBert", "gte": "Gte"}[kind]
    params, params["prediction_head"] = modern_models.convert_state_dict(name, state, model)
    for leaf in ("embeddings/word", "prediction_head/bias", "prediction_head/word"):
        if leaf in leaves:
            part, _, last = leaf.partition("/")
            params[part][last] = params[part][last][vocabulary.native_ids]
    assert_leaves(params, leaves)
    config = json.loads((folder / "config.json").read_text())
    ids = {name.removesuffix("_token_id"): config[name] for name in config if "token_id" in name}
    assert ids == {name: vocabulary.native_ids[number] for name, number in SPECIALS[kind].items()}


@pytest.mark.parametrize(
    "kind, names, task, head",
    [
        ("gte", "separate", "classification", ["gte.pooler.dense", "classifier"]),
        ("gte", "new, fused", "classification", ["new.pooler.dense", "classifier"]),
        ("gte", "gte, fused", "tagging", ["classifier"]),
        ("gte", "new, fused", "regression", ["new.pooler.dense", "classifier"]),
        ("eurobert", "", "classification", ["dense", "classifier"]),
        ("eurobert", "", "regression", ["dense", "classifier"]),
        ("eurobert", "", "tagging", ["classifier"]),
        *(("modernbert", "", task, ["head.dense", "head.norm", "classifier"])
          for task in (*LABELLED, "question_answering", "multiple_choice", "regression")),
    ],
)  # fmt: skip
def test_tensors_of_task_heads_have_the_names_of_transformers(
    kind, names, task, head, write_folder
):
    folder, _, leaves = write_folder(kind, names, task=task)
    tensors = load_file(folder / "model.safetensors")
    in_head = {
        name
        for name in tensors
        if "pooler" in name or name.partition(".")[0] not in ("model", "gte", "new")
    }
    names = {f"{name}.{part}" for name in head for part in ("weight", "bias")}
    assert in_head == names - {"head.dense.bias", "head.norm.bias"}
    output = leaves[f"{task}_head/output/kernel"]
    np.testing.assert_array_equal(tensors["classifier.weight"], output.T)
    imported, params = import_folder(folder)
    assert imported.head == f"{task}_head"
    assert imported.labels == (("no", "yes") if task in LABELLED else ())
    assert_leaves(params, leaves)


@pytest.mark.parametrize("pooling", ["first", "mean", "late"])
@pytest.mark.parametrize("kind", ["modernbert", "eurobert"])
def test_the_pooling_of_a_task_head_is_written_and_read(kind, pooling, write_folder, monkeypatch):
    monkeypatch.setitem(MODERN[kind], "task_pooling", pooling)
    folder, model, _ = write_folder(kind, task="classification")
    written = json.loads((folder / "config.json").read_text())["classifier_pooling"]
    first = "cls" if kind == "modernbert" else "bos"
    if kind == "modernbert" and pooling == "late":  # transformers lacks it
        assert written == "cls" and not import_folder(folder)[0].head
        return
    assert written == {"first": first}.get(pooling, pooling)
    imported, _ = import_folder(folder)
    assert imported.head and imported.model.task_pooling == pooling
    assert imported.model.task_head == model.task_head
    if kind == "eurobert":  # the key of older files
        rewrite(folder, classifier_pooling=None, clf_pooling=written)
        assert import_folder(folder)[0].model == imported.model


def test_a_task_head_of_the_code_on_the_hub_is_read(write_folder):
    folder, model, leaves = write_folder("gte", "new, fused", task="classification")
    ntk = {"rope_theta": 20000, "rope_scaling": {"type": "ntk", "factor": 8}, "model_type": "new"}
    rewrite(folder, architectures=["NewForSequenceClassification"], rope_parameters=None, **ntk)
    imported, params = import_folder(folder)
    assert imported.head == "classification_head" and imported.labels == ("no", "yes")
    assert imported.model == dataclasses.replace(model, rotary_factor=8**0.25)  # heads of size 8
    assert_leaves(params, leaves)


@pytest.mark.parametrize("kind", [*TIED, "eurobert"])
def test_a_copy_of_the_tied_table_is_compared_and_not_read(kind, write_folder, monkeypatch):
    tied = {"tied": True, "biases": ("inner", "outer", "vocabulary")}
    monkeypatch.setitem(MODERN, "eurobert", MODERN["eurobert"] | tied)
    folder, _, leaves = write_folder(kind)
    file = folder / "model.safetensors"
    table, decoder = TIED.get(kind, ("model.embed_tokens.weight", "lm_head.weight"))
    tensors = load_file(file)
    save_file(tensors | {decoder: tensors[table]}, file)
    imported, params = import_folder(folder)
    assert imported.ignored == {decoder: "tied to embeddings/word"}
    assert_leaves(params, leaves)
    save_file(tensors | {decoder: -tensors[table]}, file)
    with pytest.raises(ConfigError, match=f"{decoder} differs from {table}; they must be equal"):
        from_hugging_face.inspect(folder)


@pytest.mark.parametrize("names", ["separate", "new, fused"])
def test_one_parameter_at_a_time_is_in_memory(names, write_folder, tmp_path, vocabulary):
    _, model, leaves = write_folder("gte", names)
    references = []

    class OnDisk:
        def __init__(self, array):
            self.array, self.shape = array, array.shape

        def __array__(self, dtype=None, copy=None):
            assert all(reference() is None for reference in references)
            loaded_array = self.array.copy()
            references.append(weakref.ref(loaded_array))
            return loaded_array

    on_disk = {name: OnDisk(leaf) for name, leaf in leaves.items()}
    plan = to_hugging_face.plan(on_disk, model, vocabulary, False)
    plan = dataclasses.replace(plan, architecture=plan.architecture.with_names(names))
    to_hugging_face.write(tmp_path, plan, on_disk, model, vocabulary)
    assert len(references) == len(leaves)
    assert (tmp_path / "model.safetensors").read_bytes() == (
        tmp_path / "written/model.safetensors"
    ).read_bytes()


def test_lower_precision_is_read_as_float32(write_folder):
    """In bfloat16, the type of EuroBERT's released weights."""
    folder, _, leaves = write_folder("eurobert")
    bfloat16 = jnp.dtype("bfloat16")
    file = folder / "model.safetensors"
    save_file({name: leaf.astype(bfloat16) for name, leaf in load_file(file).items()}, file)
    rounded = {name: leaf.astype(bfloat16).astype(np.float32) for name, leaf in leaves.items()}
    assert_leaves(import_folder(folder)[1], rounded)


@pytest.mark.parametrize("kind, names", WRITTEN)
def test_a_tensor_with_a_wrong_shape_is_named(kind, names, write_folder):
    folder, _, _ = write_folder(kind, names)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    name = next(n for n in tensors if "qkv" in n or "Wqkv" in n or "up_proj" in n)
    save_file(tensors | {name: np.concatenate([tensors[name]] * 2)}, file)
    with pytest.raises(ConfigError, match=f"{name} has shape .*imply"):
        from_hugging_face.inspect(folder)


@pytest.mark.parametrize("kind", ["gte", "untied", "xlm_r"])
def test_surplus_rows_are_restored_unless_the_model_was_trained(
    kind, write_folder, tmp_path, vocabulary, monkeypatch, capsys
):
    monkeypatch.setitem(MODERN, "xlm_r", {"norm": "pre"})  # XLM-R XL, whose table has 250,880 rows
    monkeypatch.setattr(from_hugging_face, "_CHUNK", 1000)
    monkeypatch.setattr(to_hugging_face, "_BLOCK", 1000)
    folder, _, leaves = write_folder(kind, surplus=46)
    imported, params = import_folder(folder)
    assert len(params["embeddings"]["word"]) == vocabulary.size
    assert "46 embedding rows have no id in the tokenizer" in imported.report()
    assert_leaves(params, leaves)
    run("import", f"--source={folder}", f"--output={tmp_path}/checkpoint")
    run("export", f"--checkpoint={tmp_path}/checkpoint", f"--output={tmp_path}/again")
    assert "446 (46 more than the tokenizer has ids)" in capsys.readouterr().out
    for file in ("model.safetensors", "config.json"):
        assert (tmp_path / "again" / file).read_bytes() == (folder / file).read_bytes()

    trained = {name: leaf for name, leaf in leaves.items() if not name.startswith("surplus/")}
    plan = to_hugging_face.plan(trained, imported.model, vocabulary, False)
    to_hugging_face.write(tmp_path, plan, trained, imported.model, vocabulary)
    assert json.loads((tmp_path / "config.json").read_text())["vocab_size"] == vocabulary.size
    assert_leaves(import_folder(tmp_path)[1], trained)


@pytest.mark.parametrize(
    "kind, names", [("modernbert", ""), ("eurobert", ""), ("gte", "new, fused")]
)
def test_a_folder_without_a_head_is_written_back_without_a_head(
    kind, names, write_folder, tmp_path
):
    folder, _, _ = write_folder(kind, names, surplus=46)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    prefix = next(name for name in tensors if "embed" in name).partition(".")[0] + "."
    bare = {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
    assert len(bare) < len(tensors)
    save_file(bare, file)
    run("import", f"--source={folder}", f"--output={tmp_path}/checkpoint")
    for number, source in enumerate([folder, tmp_path / "checkpoint"]):
        run("export", f"--checkpoint={source}", f"--output={tmp_path}/{number}")
        again = load_file(tmp_path / f"{number}/model.safetensors")
        assert again.keys() == bare.keys()
        assert all(again[name].tobytes() == bare[name].tobytes() for name in bare)


def test_a_tied_head_without_a_bias_is_refused(write_folder):
    folder, _, _ = write_folder("eurobert")
    rewrite(folder, tie_word_embeddings=True)
    with pytest.raises(ConfigError, match=r"config\.json: tie_word_embeddings is true and the"):
        from_hugging_face.inspect(folder)


@pytest.mark.parametrize("rows", [399, True, None, 10**9])
def test_an_impossible_number_of_rows_is_named(rows, write_folder):
    folder, _, _ = write_folder("gte")
    rewrite(folder, vocab_size=rows)
    with pytest.raises(ConfigError, match=f"vocab_size is {rows}, "):
        from_hugging_face.inspect(folder)


def test_ids_without_a_row_in_the_folder_have_zeros_and_are_not_written(
    write_folder, tmp_path, vocabulary
):
    """These ids are special tokens that the model lacks; their entries in `native_ids` are -1."""
    folder, model, leaves = write_folder("eurobert", surplus=5)
    lacking = Vocabulary(vocabulary.model)
    lacking.native_ids = np.concatenate([[0, -1, 1, -1], np.arange(2, 398)]).astype(np.int32)
    lacking.native_special_ids = (0, None, 1, None, 397)
    imported = dataclasses.replace(from_hugging_face.inspect(folder), vocabulary=lacking)
    params = from_hugging_face.load(
        imported, lambda tree: trees.shardings(tree, meshes.one_device())
    )
    for name in ("embeddings/word", "prediction_head/word"):
        expected = leaves[name][lacking.native_ids]
        expected[[1, 3]] = 0
        np.testing.assert_array_equal(trees.named_leaves(params)[name], expected)
    trained = {name: leaf for name, leaf in leaves.items() if not name.startswith("surplus/")}
    plan = to_hugging_face.plan(trained, model, lacking, False)
    to_hugging_face.write(tmp_path, plan, trained, model, lacking)
    config = json.loads((tmp_path / "config.json").read_text())
    assert (config["vocab_size"], config["pad_token_id"], config["eos_token_id"]) == (398, 1, 1)
    table = load_file(tmp_path / "model.safetensors")["lm_head.weight"]
    np.testing.assert_array_equal(table, leaves["prediction_head/word"][[0, 2, *range(4, 400)]])


def test_a_task_head_is_not_read_as_the_head_for_masked_tokens(write_folder):
    """ModernBERT's task heads share tensors with the head for masked tokens."""
    folder, _, leaves = write_folder("modernbert")
    rewrite(folder, architectures=["ModernBertForSequenceClassification"])
    file = folder / "model.safetensors"
    tensors = load_file(file)
    tensors.pop("decoder.bias")
    save_file(tensors | {"classifier.bias": np.zeros(3, np.float32)}, file)
    imported, params = import_folder(folder)
    assert imported.missing == ("prediction_head/dense/kernel", "prediction_head/norm/scale",
                             "prediction_head/bias")  # fmt: skip
    assert imported.ignored["head.dense.weight"] == "part of a task head that xlj does not support"
    assert_leaves(params, {n: leaf for n, leaf in leaves.items() if "prediction" not in n})


def test_a_task_head_of_eurobert_that_xlj_lacks_is_not_read(write_folder):
    folder, _, leaves = write_folder("eurobert")
    rewrite(folder, architectures=["EuroBertForSequenceClassification"])
    file, head = folder / "model.safetensors", {"dense.weight", "classifier.weight"}
    save_file(load_file(file) | {name: np.zeros((3, 32), np.float32) for name in head}, file)
    imported, params = import_folder(folder)
    reason = "part of a task head that xlj does not support"
    assert imported.ignored == dict.fromkeys(head, reason)
    assert_leaves(params, leaves)
