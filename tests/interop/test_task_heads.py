"""Task heads have equal outputs in xlj and transformers, after import and export."""

import dataclasses
import itertools
import json

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references.families
from tokenizer_folders import folder_with_tokenizer

from xlj import convert
from xlj.checkpoints import stored_models
from xlj.config import ConfigError, Model
from xlj.data.labelled import features, windows
from xlj.data.labelled.examples import Question, Sentences, Words
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop import from_hugging_face, model_card, task_heads, to_hugging_face, tokenizer_files
from xlj.io import atomic
from xlj.models.segments import segments
from xlj.objectives.supervised import loss as supervised
from xlj.sharding import meshes, trees
from xlj.sharding.trees import named_leaves
from xlj.tasks import question_answering

KINDS = ("XLMRoberta", "XLMRobertaXL", "Roberta", "Bert")
LABELS = ("no", "perhaps", "yes")
UNNAMED = ("question_answering", "multiple_choice", "regression")
LATER = ("multiple_choice", "regression")
"""Kinds that are tested with one or two families only."""
FIRST = tuple(kind for kind in task_heads.TASKS.values() if kind not in LATER)


def run(*arguments):
    """Runs `xlj.convert` in this process."""
    assert convert.main(arguments) == 0


def random_hf_model(kind, head, vocabulary_size):
    """Returns a model of transformers with random weights, including norms and biases."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(3)
    bert = kind == "Bert"
    labels = {label: number for number, label in enumerate(LABELS)}
    names = {"id2label": dict(enumerate(LABELS)), "label2id": labels}
    config = getattr(transformers, f"{kind}Config")(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        vocab_size=vocabulary_size,
        intermediate_size=80,
        max_position_embeddings=64 if bert else 66,
        type_vocab_size=2 if bert else 1,
        layer_norm_eps=1e-12 if bert else 1e-5,
        pad_token_id=0 if bert else 1,
        **({} if head.removesuffix("_head") in UNNAMED else names),
        **({"num_labels": 1, "problem_type": "regression"} if "regression" in head else {}),
    )
    name = task_heads.auto_class(head).removeprefix("AutoModel")
    model = getattr(transformers, kind + name)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def token_rows(vocabulary, width):
    """Returns rows of one sentence or a pair, full and padded, int32 [6, width]."""
    rng = np.random.default_rng(0)
    rows = np.full((6, width), 1, np.int32)
    for row, length in enumerate((width, width, width // 2, 11, 3, 2)):
        rows[row, :length] = rng.integers(4, vocabulary.size - 1, length)
        rows[row, 0], rows[row, length - 1] = 0, 2
        if row in (1, 3):
            rows[row, length // 3] = 2  # a pair
    return rows


def assert_logits_are_equal(kind, params, model, vocabulary, hf_model):
    """Compares the logits of xlj and transformers, for all rows and all real tokens."""
    import torch

    tokens = token_rows(vocabulary, model.positions - 2)
    xlj_logits = supervised.logits(
        kind, params, model, jnp.asarray(tokens), jnp.zeros((len(tokens), 2), jnp.int32)
    )
    inputs = {"input_ids": vocabulary.native_ids[tokens], "attention_mask": tokens != 1}
    if "types" in model.pair_marks:
        inputs["token_type_ids"] = np.array(segments(jnp.asarray(tokens)).side)
    tensors = {name: torch.tensor(value).long() for name, value in inputs.items()}
    if kind == "multiple_choice":  # each row is a separate choice
        tensors = {name: value[:, None] for name, value in tensors.items()}
    with torch.no_grad():
        output = hf_model(**tensors)
    if kind == "question_answering":
        hf_logits = torch.stack([output.start_logits, output.end_logits], -1).numpy()
    else:
        hf_logits = output.logits.numpy()
    xlj_logits = np.asarray(xlj_logits)
    if kind == "multiple_choice":
        assert (xlj_logits[:, 1:] == -np.inf).all()
        xlj_logits = xlj_logits[:, :1]
    if kind not in ("classification", *LATER):
        hf_logits, xlj_logits = hf_logits[tokens != 1], xlj_logits[tokens != 1]
    assert xlj_logits.std() > (0.005 if kind in LATER else 0.1)  # heads with one output vary less
    np.testing.assert_allclose(hf_logits, xlj_logits, atol=1e-4, rtol=0)
    assert np.linalg.norm(hf_logits - xlj_logits) <= 1e-5 * np.linalg.norm(xlj_logits)


def load_hf_model(auto, folder, **options):
    transformers = pytest.importorskip("transformers")
    model, report = getattr(transformers, auto).from_pretrained(
        folder, output_loading_info=True, **options
    )
    assert not any(report[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    return model.eval()


@pytest.mark.parity
@pytest.mark.parametrize(
    "kind, task",
    [
        *itertools.product(KINDS, FIRST),
        ("XLMRoberta", "regression"),
        ("Bert", "regression"),
        ("XLMRoberta", "multiple_choice"),
        ("Bert", "multiple_choice"),
    ],
)
def test_a_model_of_transformers_is_imported_and_exported_with_its_head(
    kind, task, tmp_path, vocabulary
):
    torch = pytest.importorskip("torch")
    from safetensors.numpy import load_file

    path, head = tmp_path / "source", supervised.head_of(task)
    hf_vocabulary = folder_with_tokenizer(kind, path, vocabulary)
    hf_model = random_hf_model(kind, head, hf_vocabulary.size)
    hf_model.save_pretrained(path)
    source = stored_models.find(path)
    labels = () if task in UNNAMED else LABELS
    assert source.labels == labels and f"{head} with " in source.report
    params = source.params(meshes.one_device())
    assert_logits_are_equal(task, params, source.model, hf_vocabulary, hf_model)

    # An export through a checkpoint of xlj has the same bits as a direct export.
    run("import", f"--source={path}", f"--output={tmp_path}/checkpoint")
    assert stored_models.find(tmp_path / "checkpoint").labels == labels
    for checkpoint in ("source", "checkpoint"):
        out = tmp_path / f"{checkpoint}_again"
        run("export", f"--checkpoint={tmp_path / checkpoint}", f"--output={out}")
        before, after = (load_file(p / "model.safetensors") for p in (path, out))
        assert before.keys() == after.keys()
        for name, tensor in before.items():
            assert tensor.tobytes() == after[name].tobytes(), name
        again = load_hf_model(task_heads.auto_class(head), out)
        assert type(again) is type(hf_model)
        assert again.config.id2label == hf_model.config.id2label
        assert again.config.label2id == hf_model.config.label2id
        ids = torch.tensor(hf_vocabulary.native_ids[token_rows(hf_vocabulary, 64)[:1]])
        ids = ids[:, None] if task == "multiple_choice" else ids
        with torch.no_grad():
            for actual, expected in zip(
                again(ids).to_tuple(), hf_model(ids).to_tuple(), strict=True
            ):
                torch.testing.assert_close(actual, expected)


LAYERS = "the head of {}Classification has other layers than model.task_head={}"
BIASED = Model(
    layers=3, hidden=32, heads=4, intermediate=48, positions=42, position_bias="gated",
    position_distance=20, absolute_positions=False,
)  # fmt: skip


@pytest.fixture
def exported(tmp_path, vocabulary, params_of):
    """A function that exports a fine-tuned model with random weights.

    It returns the folder and the parameters.
    """

    def make(kind, model, vocabulary=vocabulary):
        labels = () if kind in UNNAMED else LABELS
        drawn = params_of(model, vocabulary.size, False, kind, labels)
        for name, leaf in named_leaves(drawn).items():
            # Otherwise the outputs of tokens would hardly differ.
            if name.startswith(("layers", "embeddings/norm")):
                leaf *= 6 if name.endswith("norm/scale") else 0.5
        params, leaves = jax.tree.map(jnp.asarray, drawn), named_leaves(drawn)
        plan = to_hugging_face.plan(leaves, model, vocabulary, False, labels)
        with atomic.new_folder(tmp_path / "out") as folder:
            to_hugging_face.write(folder, plan, leaves, model, vocabulary, pairs_as_rows=True)
            text = model_card.card(str(tmp_path / "out"), plan, model, vocabulary)
            (folder / "README.md").write_text(text)
        return tmp_path / "out", params

    return make


@pytest.mark.parity
@pytest.mark.parametrize("kind", [*FIRST, "regression"])
def test_a_model_with_a_position_bias_has_its_head_in_the_remote_code(
    kind, exported, vocabulary, code_cache
):
    folder, params = exported(kind, BIASED)
    auto = task_heads.auto_class(supervised.head_of(kind))
    hf_model = load_hf_model(auto, folder, trust_remote_code=True)
    assert_logits_are_equal(kind, params, BIASED, vocabulary, hf_model)
    assert '"' + str(folder) + '", trust_remote_code=True' in (folder / "README.md").read_text()


@pytest.mark.parametrize("kind", task_heads.TASKS.values())
def test_import_of_an_export_gives_the_same_parameters(kind, exported, model):
    folder, params = exported(kind, model)
    imported = from_hugging_face.inspect(folder)
    assert imported.head == supervised.head_of(kind)
    assert imported.labels == (() if kind in UNNAMED else LABELS)
    assert not any("classifier" in name or "qa_outputs" in name for name in imported.ignored)
    mesh = meshes.one_device()
    again = from_hugging_face.load(imported, lambda tree: trees.shardings(tree, mesh))
    chex.assert_trees_all_equal(again, params)


def change_config(folder, **changes):
    config = json.loads((folder / "config.json").read_text())
    config = {key: value for key, value in (config | changes).items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    "changes",
    [
        {"problem_type": "multi_label_classification"},
        {"architectures": ["XLMRobertaForMultipleChoice"]},
        {"problem_type": "regression"},
        {"architectures": None},
    ],
)
def test_a_head_that_xlj_does_not_have_is_not_read(changes, exported, model):
    folder, _ = exported("classification", model)
    change_config(folder, **changes)
    imported = from_hugging_face.inspect(folder)
    assert not imported.head and not imported.labels
    assert {"classifier.dense.weight", "classifier.out_proj.bias"} <= imported.ignored.keys()


@pytest.mark.parametrize(
    "changes, head",
    [
        ({"problem_type": None}, "regression_head"),  # as in rerankers
        ({"problem_type": None, "id2label": None}, "regression_head"),  # only `num_labels` is 1
        ({"problem_type": "multi_label_classification"}, ""),
        ({"problem_type": None, "id2label": None, "num_labels": None}, ""),  # two labels
    ],
)
def test_a_head_with_one_score_is_read_as_regression(changes, head, exported, model):
    folder, _ = exported("regression", model)
    config = json.loads((folder / "config.json").read_text())
    assert (config["num_labels"], config["id2label"]) == (1, {"0": "LABEL_0"})
    change_config(folder, **changes)
    if changes.get("num_labels", 1):
        imported = from_hugging_face.inspect(folder)
        assert imported.head == head and imported.labels == ()
    else:
        with pytest.raises(ConfigError, match=r"out_proj.* has shape \[1.*imply \[2"):
            from_hugging_face.inspect(folder)


@pytest.mark.parametrize(
    "names, match",
    [
        (
            {"0": "no", "1": "yes", "3": "perhaps"},
            "id2label must map the numbers 0, 1, 2, ... to distinct names",
        ),
        (
            {"0": "no", "1": "yes", "2": "no"},
            "id2label must map the numbers 0, 1, 2, ... to distinct names",
        ),
        (
            {"0": "no", "1": ["yes"], "2": "perhaps"},
            "id2label must map the numbers 0, 1, 2, ... to distinct names",
        ),
        (["no", "yes", "perhaps"], "id2label must map the numbers 0, 1, 2, ... to distinct names"),
        ({"0": "no", "1": "yes"}, r"classifier.*has shape \[3.*imply \[2"),
    ],
)
def test_labels_that_do_not_fit_the_head_are_refused(names, match, exported, model):
    folder, _ = exported("tagging", model)
    change_config(folder, id2label=names)
    with pytest.raises(ConfigError, match=match):
        from_hugging_face.inspect(folder)


def test_positions_that_restart_are_not_exported(model, vocabulary, params_of):
    leaves = named_leaves(params_of(model, vocabulary.size))
    restarts = dataclasses.replace(model, pair_marks=("positions",))
    with pytest.raises(ConfigError, match="model.pair_marks=positions.*cannot be exported"):
        to_hugging_face.plan(leaves, restarts, vocabulary, False, ())


@pytest.mark.parametrize(
    "options, message",
    [
        ({"norm": "embeddings"}, "model.norm=embeddings"),
        ({"norm_type": "rms"}, "model.norm_type=rms"),
        ({"feed_forward": "geglu", "biases": ()}, "model.feed_forward=geglu"),
        ({"rotary_base": 10.0, "absolute_positions": False}, "model.rotary_base=10.0"),
        ({"local_attention": 8}, "model.local_attention=8"),
        ({"key_value_heads": 1}, "model.key_value_heads=1"),
        ({"tied": False}, "model.tied=False"),
        ({"norm": "pre", "middle_norm": True}, "model.middle_norm=True"),
        ({"biases": ("output", "outer")}, "model.biases=output,outer"),
    ],
)
def test_options_that_no_architecture_has_are_not_exported(
    options, message, model, vocabulary, params_of
):
    model = dataclasses.replace(model, **options)
    leaves = named_leaves(params_of(model, vocabulary.size))
    with pytest.raises(ConfigError, match=f"{message}.*cannot be exported"):
        to_hugging_face.plan(leaves, model, vocabulary, False, ())


def test_the_labels_must_match_the_outputs_of_the_head(model, vocabulary, params_of):
    leaves = named_leaves(params_of(model, vocabulary.size, True, "tagging", LABELS))
    with pytest.raises(
        ConfigError, match="tagging_head has 3 outputs, but the checkpoint's config has 2 labels"
    ):
        to_hugging_face.plan(leaves, model, vocabulary, False, ("no", "yes"))
    plan = to_hugging_face.plan(leaves, model, vocabulary, False, LABELS)
    assert plan.head == "tagging_head" and "prediction_head/bias" in plan.left_out
    plan = to_hugging_face.plan(leaves, model, vocabulary, True, LABELS)
    assert not plan.head and "the export ends before" in plan.left_out["tagging_head/output/bias"]


@pytest.mark.parametrize(
    "options, kind, reason",
    [
        (references.families.MODERNBERT, "tagging", LAYERS.format("ModernBertForToken", "tanh")),
        (references.families.MODERNBERT | {"task_head": "gelu"}, "classification",
         LAYERS.format("ModernBertForSequence", "gelu")),
        (references.families.MODERNBERT | {"task_head": "gelu_norm", "task_pooling": "late"},
         "classification",
         "ModernBertForSequenceClassification does not support model.task_pooling=late"),
        (references.families.EUROBERT, "classification",
         LAYERS.format("EuroBertForSequence", "tanh")),
        (references.families.EUROBERT | {"task_head": "gelu"}, "question_answering",
         "transformers has no EuroBertForQuestionAnswering"),
        (references.families.EUROBERT | {"task_head": "gelu"}, "multiple_choice",
         "transformers has no EuroBertForMultipleChoice"),
        (references.families.GTE, "question_answering",
         "transformers has no GteForQuestionAnswering"),
        ({"position_bias": "gated"}, "multiple_choice", "transformers has no XljForMultipleChoice"),
        ({"task_pooling": "mean"}, "regression",
         "XLMRobertaForSequenceClassification does not support model.task_pooling=mean"),
        ({"task_head": "gelu_norm"}, "tagging",
         LAYERS.format("XLMRobertaForToken", "gelu_norm")),
    ],
)  # fmt: skip
def test_a_head_that_the_architecture_lacks_is_reported_and_not_exported(
    options, kind, reason, model, vocabulary, params_of
):
    model = dataclasses.replace(model, **options)
    leaves = named_leaves(params_of(model, vocabulary.size, True, kind, LABELS))
    plan = to_hugging_face.plan(leaves, model, vocabulary, False, LABELS)
    assert plan.head == "prediction_head" and not plan.labels
    reasons = {plan.left_out.get(name) for name in leaves if name.startswith(f"{kind}_head/")}
    assert reasons == {reason}


@pytest.mark.parametrize("options", [{"task_head": "gelu"}, {"task_pooling": "mean"}])
def test_options_of_heads_of_texts_do_not_change_heads_of_tokens(
    options, model, vocabulary, params_of
):
    model = dataclasses.replace(model, **options)
    leaves = named_leaves(params_of(model, vocabulary.size, True, "tagging", LABELS))
    plan = to_hugging_face.plan(leaves, model, vocabulary, False, LABELS)
    assert plan.head == "tagging_head"


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("kind", ["XLMRoberta", "Roberta", "Bert"])
def test_the_exported_tokenizer_builds_the_rows_of_training(
    kind, typed, tmp_path, exported, model, vocabulary
):
    transformers = pytest.importorskip("transformers")
    hf_vocabulary = folder_with_tokenizer(kind, tmp_path / "tokenizer", vocabulary)
    typed_model = dataclasses.replace(model, token_types=2, pair_marks=("types",))
    folder, _ = exported("classification", typed_model if typed else model, hf_vocabulary)
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    texts = ("The dog sleeps", "a cat  runs"), ("Evet", "hello there")
    examples = [Sentences(pair, "no", None) for pair in texts]
    rows = features.of_sentences(examples, hf_vocabulary, {"no": 0}, 40).tokens
    batch = tokenizer(*map(list, zip(*texts, strict=True)), padding="max_length", max_length=40)
    np.testing.assert_array_equal(batch["input_ids"], hf_vocabulary.native_ids[rows])
    sides = np.asarray(segments(jnp.asarray(rows)).side) * typed
    np.testing.assert_array_equal(batch.get("token_type_ids", np.zeros_like(rows)), sides)
    assert ("token_type_ids" in batch) == typed  # only if the model reads them
    alone = features.of_sentences(
        [Sentences(("Evet",), "no", None)], hf_vocabulary, {"no": 0}, 40
    ).tokens
    ids = tokenizer("Evet")["input_ids"]
    assert ids == hf_vocabulary.native_ids[alone[0][alone[0] != 1]].tolist()


@pytest.mark.parametrize("trimmed", [False, True])
def test_offsets_of_words_exclude_spaces_as_before(trimmed, tmp_path, vocabulary):
    """RoBERTa's and xlj's post-processors exclude the space before a word from its offsets."""
    from tokenizers import Tokenizer, processors

    hf_vocabulary = folder_with_tokenizer("Roberta", tmp_path / "tokenizer", vocabulary)
    tokenizer = Tokenizer.from_str(hf_vocabulary.model.decode())
    ends = [(name, tokenizer.token_to_id(name)) for name in ("</s>", "<s>")]
    tokenizer.post_processor = processors.RobertaProcessing(*ends, trim_offsets=trimmed)
    tokenizer_files.write(Vocabulary(tokenizer.to_str().encode()), tmp_path, 40, pairs_as_rows=True)
    again = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    texts = "The dog sleeps", "a cat"
    expected, actual = (t.encode(*texts) for t in (tokenizer, again))
    pieces = [place for place, side in enumerate(expected.sequence_ids) if side is not None]
    assert [expected.offsets[i] for i in pieces] == [
        offsets for offsets, side in zip(actual.offsets, actual.sequence_ids, strict=True)
        if side is not None
    ]  # fmt: skip
    assert len(actual.ids) == len(expected.ids) - 1


def run_card_code(folder, line, replacement):
    """Runs the code of the model card with one line replaced; returns the variables of the code."""
    code = (folder / "README.md").read_text().split("```python\n")[1].split("\n```")[0]
    assert code.count(line) == 1
    variables = {}
    exec(code.replace(line, replacement), variables)
    return variables


@pytest.mark.parity
def test_the_code_of_the_model_card_tags_words_like_xlj(exported, model, vocabulary):
    pytest.importorskip("torch")
    folder, params = exported("tagging", model)
    words = ("The", "kedi", "日", "sleeps", "...", "here")
    tags = run_card_code(folder, '["Ada", "lives", "here"]', repr(list(words)))["tags"]
    inputs = features.of_words([Words(words, None, None)], vocabulary, {}, 40)
    logits = supervised.logits(
        "tagging", params, model, jnp.asarray(inputs.tokens), jnp.zeros((1, 2), jnp.int32)
    )
    best = np.asarray(logits[0]).argmax(-1)[inputs.positions[:, 1]]
    assert [tags[place] for place in range(len(words))] == [LABELS[number] for number in best]
    assert len({*best.tolist()}) > 1


@pytest.mark.parity
def test_the_code_of_the_model_card_answers_questions_like_xlj(exported, model, vocabulary):
    pytest.importorskip("torch")
    folder, params = exported("question_answering", model)
    question_text, context = "Who sleeps?", "The dog sleeps, and a cat runs."
    line = '"Where does Ada live?", "Ada lives in London."'
    answer = run_card_code(folder, line, f"{question_text!r}, {context!r}")["answer"]
    question = Question("1", question_text, context, (), None)
    inputs = windows.make([question], vocabulary, length=40, stride=8, question_length=16)
    assert len(inputs.rows) == 1
    rows = jnp.asarray(inputs.rows.astype(np.int32))
    zeros = jnp.zeros((1, 2), jnp.int32)
    logits = np.asarray(supervised.logits("question_answering", params, model, rows, zeros))
    answers = question_answering.texts(
        [question], inputs, logits[..., 0], logits[..., 1], answer_length=30
    )
    assert answer == answers["1"] != ""
