"""ONNX graphs compute the same as xlj, with any batch and length."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tokenizer_folders import folder_with_tokenizer

from xlj.config import Model
from xlj.config.families import options_of
from xlj.data.tokenizer.layout import BOS, EOS, PAD
from xlj.inference.pretrained import Pretrained
from xlj.interop import onnx_graph, sentence_modules, task_heads, to_hugging_face, to_onnx
from xlj.interop.sentence_modules import Dense, SentenceModules
from xlj.models import encoder
from xlj.models.segments import segments, whole_examples
from xlj.objectives.mlm.head import init_prediction, predict
from xlj.objectives.supervised import loss as supervised
from xlj.objectives.supervised.head import head_of, of_kind
from xlj.retrieval.embedder import Embedder
from xlj.sharding.trees import named_leaves

pytest.importorskip("onnx", reason="pip install '.[onnx]'")
onnxruntime = pytest.importorskip("onnxruntime", reason="pip install '.[onnx]'")

LIMIT = 1200
SIZES = {"layers": 2, "hidden": 32, "heads": 2, "intermediate": 48, "positions": LIMIT + 2}
BIASES = ("attention", "output", "inner", "outer", "prediction", "vocabulary")


def model_of(family, **options):
    return Model(**options_of(family) | SIZES | options)


MODELS = {
    "xlm-roberta": model_of("xlm_r", layer_norm_epsilon=1e-3),
    "xlm-roberta-xl": model_of("xlm_r", norm="pre", heads=4),
    "roberta": model_of("xlm_r", layer_norm_epsilon=1e-4, heads=4),
    "bert": model_of("xlm_r", token_types=2, pair_marks=("types",), layer_norm_epsilon=1e-12),
    "xlj, t5": model_of("xlm_r", position_bias="t5", token_types=1, position_distance=300),
    "xlj, gated": model_of(
        "xlm_r", position_bias="gated", absolute_positions=False, heads=4, position_buckets=16
    ),
    "modernbert": model_of(
        "modernbert", local_attention=10, norm_type="layer", biases=BIASES, full_layers=("1",),
        rotary_local_base=500.0, layers=3,
    ),
    "modernbert, plain": model_of(
        "modernbert", local_attention=6, full_attention_every=2, task_pooling="mean",
        feed_forward="swiglu", rotary_factor=4.0,
    ),
    "eurobert": model_of("eurobert", heads=4, key_value_heads=2, task_pooling="late"),
    "eurobert, biases": model_of(
        "eurobert", biases=("attention", "output", "inner", "outer", "vocabulary"), heads=8,
        key_value_heads=1, task_pooling="mean",
    ),
    "gte": model_of("gte", rotary_factor=8 ** (1 / 16)),
}  # fmt: skip
SLOW = [name for name in MODELS if name not in ("xlj, gated", "modernbert")]
KINDS = ("tagging", "question_answering", "classification", "regression", "multiple_choice")


@pytest.fixture(scope="module")
def vocabularies(vocabulary, tmp_path_factory):
    """The vocabularies of families with other tokenizers than XLM-R's; WordPiece has the ids in
    another order than xlj."""
    folder = tmp_path_factory.mktemp("onnx")
    return {
        kind.lower(): folder_with_tokenizer(kind, folder / kind, vocabulary)
        for kind in ("Bert", "Roberta")
    }


def draw(model, size):
    """Draws parameters of an encoder and of all heads, including norms and biases."""
    key = jax.random.key(0)

    def init():
        params = encoder.init(key, model, size, 0)
        params["prediction_head"] = init_prediction(key, model, size)
        for kind in KINDS:
            params[head_of(kind)] = supervised.init_head(kind, model, 3, key)
        return params

    rng = np.random.default_rng(7)

    def draw(path, leaf):
        is_scale = path[-1].key == "scale" and "gates" not in str(path)
        values = is_scale + rng.normal(0, 1.5 * model.hidden**-0.5, leaf.shape)
        return values.astype(np.float32)

    return jax.tree_util.tree_map_with_path(draw, jax.eval_shape(init))


def rows_of(rng, lengths, size):
    """Random rows `<s> A </s> B </s>` with padding, int32 [rows, length].

    Short rows have one sentence.
    """
    rows = np.full((len(lengths), max(lengths)), PAD, np.int32)
    for row, length in zip(rows, lengths, strict=True):
        row[:length] = rng.integers(4, size - 1, length)
        row[[length // 2 if length > 6 else length - 1, length - 1]], row[0] = EOS, BOS
    return rows


class Runner:
    """Exports a model, and runs its graph on rows of xlj's ids."""

    def __init__(self, path, params, model, vocabulary, sentence=None, **options):
        leaves = named_leaves(params)
        has_labels = {"classification_head", "tagging_head"} & params.keys()
        labels = ("no", "perhaps", "yes") if has_labels else ()
        plan = to_hugging_face.plan(
            leaves, model, vocabulary, False, labels, is_sentence=sentence is not None
        )
        to_onnx.write(path, plan, leaves, model, vocabulary, sentence, **options)
        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(path), settings)
        self.native_ids = vocabulary.native_ids
        self.rows, self.outputs = plan.rows, [x.name for x in self.session.get_outputs()]
        self.inputs = [x.name for x in self.session.get_inputs()]
        self.model_type = plan.architecture.model_type

    def feed(self, tokens):
        arrays = {
            "input_ids": self.native_ids[tokens].astype(np.int64),
            "attention_mask": (tokens != PAD).astype(np.int64),
            "token_type_ids": np.minimum(segments(jnp.asarray(tokens)).side, 1).astype(np.int64),
        }
        return {name: arrays[name] for name in self.inputs}

    def __call__(self, tokens, **more):
        return self.session.run(None, self.feed(tokens) | more)


def assert_close(actual, expected, tolerance=1e-5):
    actual, expected = np.asarray(actual), np.asarray(expected)
    assert actual.shape == expected.shape
    assert abs(actual - expected).max() <= tolerance * abs(expected).max()


@functools.partial(jax.jit, static_argnames="model")
def encode(params, model, tokens):
    inputs = whole_examples(model, tokens, jnp.zeros((len(tokens), 2), jnp.int32))
    return encoder.apply(params, model, inputs)


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in MODELS]
)
def test_graphs_compute_the_same_as_xlj(name, tmp_path, vocabulary, vocabularies, one_device):
    model, rng = MODELS[name], np.random.default_rng(3)
    vocabulary = vocabularies.get(name, vocabulary)
    params = draw(model, vocabulary.size)
    parts = {part: params[part] for part in encoder.PARTS if part in params}

    def export(**heads):
        return Runner(tmp_path / "model.onnx", parts | heads, model, vocabulary)

    # xlj computes the lengths of a batch together, since padding changes nothing.
    single = [1, 7, 128, 1024, LIMIT]
    unequal = [[3, 128, 17, 64, 90, 5, 31], [2, *rng.integers(2, 129, 62).tolist(), 128]]
    batches = [rows_of(rng, lengths, vocabulary.size) for lengths in (single, *unequal)]
    hidden = [np.asarray(encode(params, model, batch)) for batch in batches]

    run = export()
    assert run.outputs == ["last_hidden_state"] and run.model_type == name.partition(",")[0]
    types = ["token_type_ids"] * (name == "bert")
    assert run.inputs == ["input_ids", "attention_mask", *types]
    for row, vectors, length in zip(batches[0], hidden[0], single, strict=True):
        assert_close(run(row[None, :length])[0], vectors[None, :length])
    for batch, expected in zip(batches[1:], hidden[1:], strict=True):
        is_real = batch != PAD
        assert_close(run(batch)[0][is_real], expected[is_real])

    batch, is_real, of_batch = batches[1], batches[1] != PAD, hidden[1]
    run = export(prediction_head=params["prediction_head"])
    vectors, table, bias = predict(
        params["prediction_head"], params["embeddings"]["word"], model, of_batch
    )
    logits = np.asarray(vectors) @ np.asarray(table).T + np.asarray(bias)
    assert run.outputs == ["logits"]
    real_ids = vocabulary.native_ids >= 0
    of_ids = run(batch)[0][..., vocabulary.native_ids[real_ids]]
    assert_close(of_ids[is_real], logits[is_real][:, real_ids])

    architecture = to_hugging_face.plan(named_leaves(parts), model, vocabulary, False).architecture
    for kind in KINDS:
        head = head_of(kind)
        if task_heads.why_not(task_heads.with_head(architecture, head), head, model):
            continue
        run = export(**{head: params[head]})
        expected = of_kind(kind).logits(params[head], model, of_batch, batch, None)
        if kind == "tagging":
            assert_close(run(batch)[0][is_real], np.asarray(expected)[is_real])
        elif kind == "question_answering":
            assert run.outputs == ["start_logits", "end_logits"]
            assert_close(np.stack(run(batch), -1)[is_real], np.asarray(expected)[is_real])
        elif kind == "multiple_choice":
            choices = {name: x.reshape(2, 3, -1) for name, x in run.feed(batch[:6]).items()}
            (logits,) = run.session.run(None, choices)
            assert_close(logits, np.asarray(expected)[:6, 0].reshape(2, 3))
        else:
            assert_close(run(batch)[0], expected)


STEPS = [
    Dense(5 * 32, 20, "Tanh"),
    None,
    Dense(20, 24, "GELU", bias=False, residual=True),
    Dense(24, 24, "SiLU", residual=True),
    Dense(24, 24, "ReLU"),
    Dense(24, 16, "Sigmoid"),
    Dense(16, 12, "Identity", bias=False),
]


@pytest.mark.parametrize("last", ["Dense", "Normalize"])
def test_sentence_vectors_equal_those_of_xlj(last, tmp_path, random_encoder):
    """All poolings, activations and a prompt that is not pooled; also with external data, and with
    padding on the left."""
    params, model, vocabulary = random_encoder[:3]
    rng = np.random.default_rng(5)
    steps = (*STEPS, *[None] * (last == "Normalize"))
    weights = {}
    for number, step in enumerate(steps):
        if step:
            shapes = {"kernel": (step.inputs, step.outputs), "bias": (step.outputs,)}
            shapes["residual"] = shapes["kernel"]
            names = ["kernel"] + ["bias"] * step.bias
            names += ["residual"] * (step.residual and step.inputs != step.outputs)
            weights[str(number)] = {
                name: rng.normal(0, 0.3, shapes[name]).astype(np.float32) for name in names
            }
    settings = {"prompts": {"query": "Maria: "}, "truncate_dim": 9}
    modules = SentenceModules(
        sentence_modules.POOLINGS, include_prompt=False, steps=steps, settings=settings
    )
    params = params | {"sentence": weights}
    run = Runner(tmp_path / "model.onnx", params, model, vocabulary, modules)
    assert run.outputs == ["last_hidden_state", "sentence_embedding"]
    sentences = ["Maria sleeps in the house.", "Good morning!", "A cat.", ""]
    for prompt in ("query", None):
        embedder = Embedder(Pretrained(params, model, vocabulary, sentence=modules), prompt=prompt)
        (expected,) = embedder.embed(sentences)
        assert expected.shape == (4, 9)
        encoded = vocabulary.encode_batch([embedder.prompt + text for text in sentences])
        rows = [[BOS, *ids, EOS] for ids in encoded]
        length = max(map(len, rows))
        tokens = np.array([row + [PAD] * (length - len(row)) for row in rows])
        more = {}
        if prompt:
            more["prompt_length"] = np.array(1 + len(vocabulary.encode_batch(["Maria: "])[0]))
        assert_close(run(tokens, **more)[1], expected)
        external = Runner(
            tmp_path / "external.onnx", params, model, vocabulary, modules, max_inline=0
        )
        assert (tmp_path / "external.onnx_data").stat().st_size > 40_000
        assert (tmp_path / "external.onnx").stat().st_size < 40_000
        for actual, other in zip(external(tokens, **more), run(tokens, **more), strict=True):
            np.testing.assert_array_equal(actual, other)
        if not prompt:
            left = np.array([[PAD] * (length - len(row)) + row for row in rows])
            assert_close(run(left)[1], expected)
    assert run.inputs == ["input_ids", "attention_mask"]  # prompt_length is optional


@pytest.mark.parametrize("weights, zero", [("int8", 0), ("uint8", 128)])
def test_integer_weights_lose_little(weights, zero, tmp_path, random_encoder):
    """The matrices have a scale for each output, and the word embeddings one for each id."""
    params, model, vocabulary = jax.tree.map(np.array, random_encoder[0]), *random_encoder[1:3]
    params["embeddings"]["word"][7] *= 300
    inner = params["layers"]["feed_forward"]["inner"]["kernel"][1]
    inner[:, 5], inner[:, 6] = 0, inner[:, 6] / 100
    modules = SentenceModules()
    tokens = rows_of(np.random.default_rng(2), [30, 12, 25], vocabulary.size)
    exact = Runner(tmp_path / "model.onnx", params, model, vocabulary, modules)
    run = Runner(tmp_path / "int8.onnx", params, model, vocabulary, modules, weights=weights)
    is_real = tokens != PAD
    for actual, expected in zip(run(tokens), exact(tokens), strict=True):
        real = (is_real,) if actual.ndim == 3 else ()
        error = np.linalg.norm((actual - expected)[real], axis=-1)
        assert (error < 0.1 * np.linalg.norm(expected[real], axis=-1)).all()
    assert abs(run(tokens)[1] - exact(tokens)[1]).max() > 0

    import onnx

    graph = onnx.load(tmp_path / "int8.onnx").graph
    arrays = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for name, expected, axis in (
        ("layers/feed_forward/inner/kernel/1", inner, 0),
        ("embeddings/word", params["embeddings"]["word"], 1),
    ):
        integers, scales = arrays[f"{name}/integers"], arrays[f"{name}/scales"]
        assert integers.dtype == weights
        assert (abs((integers.astype(int) - zero) * scales - expected) <= scales * 0.501).all()
        largest = abs(expected).max(axis, keepdims=True).reshape(scales.shape)
        np.testing.assert_allclose(scales[largest > 0] * 127, largest[largest > 0], rtol=1e-6)


@pytest.mark.parametrize("weights", ["int8", "uint8"])
@pytest.mark.parametrize("name", ["xlm-roberta", "modernbert, plain"])
def test_tokens_with_large_inner_vectors_do_not_change_the_precision_of_others(
    name, weights, tmp_path, vocabulary
):
    """The inner vectors of feed-forward layers have a scale for each token.

    Those of token 7 in layer 0 are hundreds of times as large as the others. onnx's evaluator in
    Python, which fuses no operators, computes what the graph means.
    """
    from onnx.reference import ReferenceEvaluator

    model = MODELS[name]
    params = encoder.init(jax.random.key(0), model, vocabulary.size, 0)
    params = jax.tree.map(lambda x: np.array(x) * (8 if x.std() else 1), params)
    signs = np.resize([1, -1], model.hidden)
    params["embeddings"]["word"][7] = 100 * signs
    inner = params["layers"]["feed_forward"]["inner"]
    inner["kernel"][0, :, 0] = 60 * signs
    rng = np.random.default_rng(2)
    if model.feed_forward == "gelu":
        inner["bias"][0, 0] = -1000
        outer = params["layers"]["feed_forward"]["outer"]
        outer["bias"] = rng.normal(0, 1, outer["bias"].shape).astype(np.float32)
    tokens = rows_of(rng, [30, 12, 25], vocabulary.size)
    tokens[tokens == 7] = 8
    tokens[1, 3] = 7
    exact = Runner(tmp_path / "model.onnx", params, model, vocabulary)
    run = Runner(tmp_path / "int8.onnx", params, model, vocabulary, weights=weights)
    (expected,), (actual,) = exact(tokens), run(tokens)
    is_other = (tokens != PAD) & (tokens != 7)
    error = np.linalg.norm(actual - expected, axis=-1) / np.linalg.norm(expected, axis=-1)
    assert error[is_other].mean() < 0.05  # with one scale: 0.29 to 0.45
    (plain,) = ReferenceEvaluator(str(tmp_path / "int8.onnx")).run(None, run.feed(tokens))
    is_real = tokens != PAD
    assert_close(actual[is_real], plain[is_real])


def test_logits_of_integer_weights_lose_little(tmp_path, vocabulary):
    model = MODELS["xlm-roberta"]
    params = draw(model, vocabulary.size)
    parts = {part: params[part] for part in encoder.PARTS if part in params}
    parts["prediction_head"] = params["prediction_head"]
    tokens = rows_of(np.random.default_rng(2), [30, 12], vocabulary.size)
    exact = Runner(tmp_path / "model.onnx", parts, model, vocabulary)
    run = Runner(tmp_path / "int8.onnx", parts, model, vocabulary, weights="int8")
    (expected,), (actual,) = exact(tokens), run(tokens)
    expected, actual = expected[tokens != PAD], actual[tokens != PAD]
    assert actual.shape == expected.shape and (actual != expected).any()
    assert np.linalg.norm(actual - expected) < 0.1 * np.linalg.norm(expected)


def test_a_missing_library_is_an_error(monkeypatch):
    import sys

    from xlj.config import ConfigError

    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ConfigError, match=r"pip install -e '.\[onnx\]'"):
        onnx_graph.require()
