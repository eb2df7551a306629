"""The Python API of an encoder, compared with its parts and with values computed by hand."""

import chex
import jax
import numpy as np
import pytest

import xlj
from xlj.config import ConfigError
from xlj.config.choices import AlignmentOptions
from xlj.data.tokenizer.layout import BOS, EOS
from xlj.interop.sentence_modules import SentenceModules
from xlj.models import encoder as encoders
from xlj.objectives.mlm.head import init_prediction, predict
from xlj.retrieval import search as neighbours
from xlj.retrieval.embedder import Embedder
from xlj.word_alignment.aligner import Aligner
from xlj.word_alignment.sentence_pairs import Pair

SENTENCES = ["the cat sleeps", "die Katze", "a", "", "the dog reads a book", "a"]


@pytest.fixture(scope="module")
def model(random_encoder):
    return xlj.Encoder(random_encoder)


@pytest.fixture(scope="module")
def vectors(random_encoder):
    """Vectors of `SENTENCES` from all layers, with mean pooling."""
    return Embedder(random_encoder, range(4), "mean").embed(SENTENCES)


def test_embed_gives_the_vectors_of_each_layer(model, random_encoder, vectors):
    assert model.layers == 3
    for layer in (None, 0, 3):
        actual = model.embed(iter(SENTENCES), layer)
        expected = vectors[2 if layer is None else layer]
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    first = Embedder(random_encoder, [1], "first").embed(SENTENCES)[0]
    centred = model.embed(SENTENCES, layer=1, pooling="first", centred=True)
    np.testing.assert_allclose(centred, first - first.mean(0), atol=1e-6)
    assert model.embed([], centred=True).shape == (0, 32)


def test_truncated_sentences_give_a_warning(model):
    with pytest.warns(UserWarning, match="sentences truncated .*: 1$"):
        model.embed(["a " * 60, "a"])


@pytest.mark.parametrize("call", ["embed", "align", "retrieve", "mine"])
@pytest.mark.parametrize("layer", [-1, 4])
def test_a_layer_that_does_not_exist_is_refused(model, call, layer):
    arguments = {"embed": (["a"],), "align": ([("a", "b")],)}.get(call, (["a"], ["b"]))
    with pytest.raises(
        ConfigError, match=f"layer {layer} does not exist; the model has layers 0 to 3"
    ):
        getattr(model, call)(*arguments, layer=layer)


def test_align_and_soft_align_equal_the_aligner(model, random_encoder):
    pairs = [("the cat sleeps", "die Katze schläft"), ("a", ""), ("the dog", "der große Hund")]
    split = [Pair("", first.split(), second.split()) for first, second in pairs]
    chosen = {"layer": 1, "method": "itermax", "together": True, "prior": 3.0}
    all_links = Aligner(random_encoder, AlignmentOptions("itermax", "together", 1, 3.0)).scored(
        split
    )
    confidences = np.concatenate([scored.confidences for (scored,) in all_links])
    chosen["threshold"] = float(np.median(confidences))
    for options in ({}, chosen):
        defaults = {"layer": 2, "method": "argmax", "together": False, "prior": 0.0}
        layer, method, together, prior, *threshold = (defaults | options).values()
        alignment_options = AlignmentOptions(
            method, "together" if together else "apart", layer, prior
        )
        aligner = Aligner(random_encoder, alignment_options, (), *threshold)
        expected = [[tuple(link) for link in links[0].tolist()] for links in aligner.align(split)]
        links_of_pairs = model.align(iter(pairs), **options)
        assert links_of_pairs == expected and any(links_of_pairs)
        assert links_of_pairs == model.align([(p.source, p.target) for p in split], **options)
        options = {name: value for name, value in options.items() if name != "threshold"}
        soft = model.soft_align(pairs, **options)
        assert [matrix.shape for matrix in soft] == [(3, 3), (1, 0), (2, 3)]
        for matrix, (expected_matrix,) in zip(soft, aligner.soft(split), strict=True):
            np.testing.assert_array_equal(matrix, expected_matrix)
    assert model.align(pairs, **chosen) != model.align(pairs, **chosen | {"prior": 0.0})
    assert model.align(pairs, **chosen) != model.align(pairs, **chosen | {"threshold": 0.0})


def test_retrieve_equals_the_nearest_neighbours(model):
    source, target = ["the cat", "a dog", "books"], ["die Katze", "Hund", "x", "the cat"]
    options = {"layer": 1, "pooling": "text", "centred": True}
    first, second = (model.embed(side, **options) for side in (source, target))
    result = model.retrieve(iter(source), iter(target), similarity="margin", **options)
    expected = neighbours.nearest(first, second, "margin")
    chex.assert_trees_all_equal(neighbours.Nearest(*result), expected)
    cosine = model.retrieve(source, target, **options).targets.indices[:, 0]
    unit = [side / np.linalg.norm(side, axis=1, keepdims=True) for side in (first, second)]
    np.testing.assert_array_equal(cosine, (unit[0] @ unit[1].T).argmax(1))


def test_mined_pairs_are_indices_of_the_given_sentences(model):
    source = ["the cat", "a dog", "the cat", "books", "a man"]
    target = ["x", "der Hund", "x", "the cat", "Bücher", "books"]
    mined = model.mine(source, target)
    assert ("the cat", "the cat") in [
        (source[i], target[j]) for i, j in zip(mined.sources, mined.targets, strict=True)
    ]
    assert not {2} & set(mined.sources) and not {2} & set(mined.targets), (
        "of equal sentences only the first is mined"
    )
    assert len(mined.scores) == 4 and (np.diff(mined.scores) <= 0).all()
    middle = float(mined.scores[1])
    mined_above = model.mine(source, target, threshold=middle)
    assert len(mined_above.scores) == (mined.scores >= middle).sum() < 4
    with pytest.raises(ConfigError, match="mine needs sentences on both sides"):
        model.mine([], target)
    with pytest.raises(ConfigError, match="retrieve needs sentences on both sides"):
        model.retrieve(source, [])


def test_invalid_arguments_are_refused(model):
    pairs = [("a", "b")]
    for call, message in (
        (
            lambda: model.embed("a", pooling="cls"),
            "pooling is 'cls'; it must be one of mean, text, first",
        ),
        (
            lambda: model.retrieve("a", "b", similarity="dot"),
            "similarity is 'dot'; .* cosine, margin",
        ),
        (lambda: model.align(["a"], ["b"]), r"layer=\['b'\] is not a number; .* as one argument"),
        (lambda: model.similarity(["a"], ["b"]), "similarity needs vectors"),
        (lambda: model.align(pairs, method="mwmf"), "unknown method mwmf; .* optimal_transport"),
        (lambda: model.embed(["a", 3]), "sentence 1 is 3, not a string"),
        (lambda: model.align(["abc", "d", "e"]), "pair 0 is 'abc'; a pair must have two sentences"),
        (lambda: model.align("abc"), "pair 0 is 'abc'"),
        (lambda: model.align([("a", "b"), 2]), "pair 1 is 2; a pair must have two sentences"),
        (lambda: model.align([("a", "b"), ("a", 2)]), "pair 1 has the sentence 2; expected a"),
        (lambda: model.align([("a", ["b", 2])]), r"pair 0 has the sentence \['b', 2\]; expected"),
        (lambda: model.score([("a", "b"), {"a", "b"}]), "pair 1 is .*; a pair must have two str"),
        (lambda: model.save_pretrained("x"), "save_pretrained needs an encoder that xlj.load"),
    ):
        with pytest.raises(ConfigError, match=message):
            call()


def test_a_string_is_one_sentence_and_two_strings_are_one_pair(model):
    one, pair = "the cat sleeps", ("the cat sleeps", "die Katze schläft")
    np.testing.assert_array_equal(model.embed(one), model.embed([one]))
    assert model.align(pair) == model.align(list(pair)) == model.align([pair])
    np.testing.assert_array_equal(model.soft_align(pair)[0], model.soft_align([pair])[0])
    result = model.retrieve(one, pair)
    assert result.targets.indices.tolist() == [[0]] and model.mine(one, one).sources.tolist() == [0]
    two = [["the", "cat"], ["die", "Katze"]]  # two pairs with one word on each side
    assert len(model.align(two)) == 2


def test_encode_and_similarity_work_as_in_sentence_transformers(model, vectors):
    unit = vectors[2] / np.linalg.norm(vectors[2], axis=1, keepdims=True)
    encoded = model.encode(SENTENCES, batch_size=2, show_progress_bar=False)
    np.testing.assert_allclose(encoded, vectors[2], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        model.encode(SENTENCES, normalize_embeddings=True), unit, rtol=1e-4, atol=1e-5
    )
    assert model.encode("a", layer=1, pooling="first").shape == (32,)
    np.testing.assert_allclose(model.similarity(encoded, encoded), unit @ unit.T, atol=1e-5)
    assert model.similarity(encoded[0], encoded).shape == (1, len(SENTENCES))
    shown = repr(model)
    assert "3 layers of 32" in shown and shown.startswith("<xlj.Encoder: ")
    assert model.device == "cpu:0"


@pytest.fixture
def with_prompts(random_encoder):
    """An encoder with sentence modules, whose default prompt is not pooled."""
    settings = {"prompts": {"query": "a dog ", "passage": "the cat "}, "truncate_dim": 30,
                "default_prompt_name": "passage"}  # fmt: skip
    modules = SentenceModules(include_prompt=False, settings=settings)
    return xlj.Encoder(random_encoder._replace(sentence=modules))


def test_encode_takes_the_parameters_of_sentence_transformers(with_prompts, random_encoder):
    encode = with_prompts.encode
    defaults = {"output_value": "sentence_embedding", "precision": "float32",
                "convert_to_numpy": True, "convert_to_tensor": False, "device": "cpu",
                "normalize_embeddings": False, "pool": None, "chunk_size": None}  # fmt: skip
    plain = encode(SENTENCES)
    assert plain.shape == (6, 30)
    np.testing.assert_array_equal(encode(inputs=SENTENCES, **defaults), plain)
    query = Embedder(random_encoder, [3], "mean", prompt_text="a dog ")
    unpooled = 1 + len(random_encoder.vocabulary.encode(["a dog "]).ids)
    hidden = [row[unpooled:].mean(0) for row in hidden_rows(random_encoder, "a dog ")]
    assert not np.allclose(query.embed(SENTENCES)[0], hidden, atol=1e-3)  # pools the prompt too
    without_modules = xlj.Encoder(random_encoder).encode(SENTENCES, "nothing", "a dog ", layer=3)
    np.testing.assert_array_equal(without_modules, query.embed(SENTENCES)[0])
    for actual in (
        encode(SENTENCES, "query", truncate_dim=32),
        encode(SENTENCES, None, "a dog ", truncate_dim=32),
        encode(SENTENCES, "nothing", "a dog ", 2, False, truncate_dim=32),
    ):
        np.testing.assert_allclose(actual, hidden, rtol=1e-4, atol=1e-5)
    short = encode(SENTENCES, "query", truncate_dim=5, normalize_embeddings=True)
    expected = np.asarray(hidden)[:, :5]
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(short, expected, rtol=1e-4, atol=1e-5)
    assert encode("a", truncate_dim=5).shape == (5,)


def hidden_rows(random_encoder, prompt):
    """Yields the hidden vectors of the last layer for each of `SENTENCES`, [tokens, hidden]."""
    params, sizes, vocabulary, *_ = random_encoder
    for sentence in SENTENCES:
        ids = [BOS, *vocabulary.encode([prompt + sentence]).ids.tolist(), EOS]
        row, ones = np.asarray([ids]), np.ones((1, len(ids)), int)
        positions = np.arange(len(ids))[None]
        inputs = encoders.Inputs(row, positions, ones, ones)
        yield np.asarray(encoders.apply(params, sizes, inputs)[0])


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"convert_to_tensor": True}, "convert_to_tensor=True: encode returns a NumPy array"),
        ({"convert_to_numpy": False}, "convert_to_numpy=False: .*; expected True"),
        ({"precision": "int8"}, "precision='int8': encode returns float32"),
        ({"output_value": None}, "output_value=None: .* expected 'sentence_embedding'"),
        ({"pool": {}}, "pool={}: encode computes in one process"),
        ({"truncate_dim": 0}, "truncate_dim=0: expected a number of at least 1"),
        ({"device": "cuda"}, "device='cuda': there is no such device"),
        ({"device": "cpu:1"}, r"device='cpu:1': this encoder is on cpu:0; .*load\(path, device"),
        ({"prompt_name": "code"}, "unknown prompt 'code'; .*passage, query"),
        ({"normalise": True}, "encode has no parameter normalise"),
    ],
)
def test_what_encode_does_not_do_is_refused_by_name(with_prompts, arguments, message):
    with pytest.raises(ConfigError, match=message):
        with_prompts.encode("a", **arguments)


def test_results_are_drawn_in_notebooks_and_converted_to_pandas(model, tmp_path):
    pairs = [("the cat", "die <b>Katze</b>"), ("a", "")]
    alignments = model.align(pairs)
    frame = alignments._repr_html_()
    assert frame.startswith('<iframe srcdoc="&lt;!') and '"<b>' not in frame
    alignments.plot().save(tmp_path / "links.html")
    page = (tmp_path / "links.html").read_text("utf-8")
    assert '["the","cat"],["die","\\u003cb>Katze\\u003c/b>"]' in page
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    links = alignments.to_pandas()
    assert [tuple(row) for row in links[["i", "j"]].to_numpy()] == [
        x for one in alignments for x in one
    ]
    assert links["target"].tolist() == [("die", "<b>Katze</b>")[j] for _, j in alignments[0]]
    mined = model.mine(["a", "the dog"], ["the dog", "b"]).to_pandas()
    assert isinstance(mined, pandas.DataFrame) and list(mined) == ["source", "target", "score"]
    assert mined.iloc[0]["source"] == mined.iloc[0]["target"] == "the dog"
    nearest = model.retrieve(["a", "the dog"], ["the dog", "b"]).to_pandas()
    assert nearest["source"].tolist() == ["a", "the dog"] and nearest["target"][1] == "the dog"


def test_fill_predicts_masked_words(model, random_encoder):
    with pytest.raises(ConfigError, match="needs a model with a head for masked tokens"):
        model.fill("the <mask>")
    params, sizes, vocabulary, *_ = random_encoder
    head = init_prediction(jax.random.key(1), sizes, vocabulary.size)
    head["bias"] = jax.random.normal(jax.random.key(2), head["bias"].shape)
    params = {**params, "prediction_head": head}
    model_with_head = xlj.Encoder(random_encoder._replace(params=params))
    text = "the <mask> sleeps, <mask>."
    all_fillings = model_with_head.fill(text, top_k=3)
    parts = [vocabulary.encode_batch([part])[0].tolist() for part in ("the ", " sleeps, ", ".")]
    ids = [BOS, *parts[0], vocabulary.mask, *parts[1], vocabulary.mask, *parts[2], EOS]
    row = np.asarray([ids])
    ones = np.ones_like(row)
    inputs = encoders.Inputs(row, np.arange(len(ids))[None], ones, ones)
    hidden = encoders.apply(params, sizes, inputs)[0]
    hidden = hidden[np.flatnonzero(row[0] == vocabulary.mask)]
    factors = predict(head, params["embeddings"]["word"], sizes, hidden)
    logits = np.asarray(factors[0], np.float64) @ np.asarray(factors[1], np.float64).T + factors[2]
    expected = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    assert len(all_fillings) == 2
    for fillings, probabilities in zip(all_fillings, expected, strict=True):
        best = np.argsort(-probabilities)[:3]
        assert [piece for piece, _ in fillings] == [vocabulary.pieces[i].lstrip("▁") for i in best]
        np.testing.assert_allclose([p for _, p in fillings], probabilities[best], rtol=1e-4)
    with pytest.raises(ConfigError, match="the text has no <mask>: 'the cat'"):
        model_with_head.fill("the cat")
    with pytest.raises(ConfigError, match="the text has .* tokens; this model reads at most 38"):
        model_with_head.fill("a " * 60 + "<mask>")
