"""The encoder: its parameter names, its attention pattern, its dropout."""

import dataclasses

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from references import encoder as reference
from references.dropout import kept

from xlj.config import Model
from xlj.data.rows.kinds.pairs import Pairs
from xlj.models import embeddings, encoder
from xlj.models.dense import matmul
from xlj.models.segments import segments

TINY = Model(layers=2, hidden=32, heads=4, intermediate=64, positions=66)
SIZE = 50

GOLDEN = {
    "embeddings/norm/bias": (32,),
    "embeddings/norm/scale": (32,),
    "embeddings/position": (66, 32),
    "embeddings/word": (50, 32),
    "layers/attention/key/bias": (2, 32),
    "layers/attention/key/kernel": (2, 32, 32),
    "layers/attention/output/bias": (2, 32),
    "layers/attention/output/kernel": (2, 32, 32),
    "layers/attention/query/bias": (2, 32),
    "layers/attention/query/kernel": (2, 32, 32),
    "layers/attention/value/bias": (2, 32),
    "layers/attention/value/kernel": (2, 32, 32),
    "layers/attention_norm/bias": (2, 32),
    "layers/attention_norm/scale": (2, 32),
    "layers/feed_forward/inner/bias": (2, 64),
    "layers/feed_forward/inner/kernel": (2, 32, 64),
    "layers/feed_forward/outer/bias": (2, 32),
    "layers/feed_forward/outer/kernel": (2, 64, 32),
    "layers/feed_forward_norm/bias": (2, 32),
    "layers/feed_forward_norm/scale": (2, 32),
}


def params(model=TINY):
    initial = init(jax.random.key(0), model, SIZE, 2)
    # Biases and scales of norms start at 0 and 1: a swap of two of them would have no effect.
    rng = np.random.default_rng(1)
    return jax.tree.map(lambda x: x + 0.05 * rng.standard_normal(x.shape, np.float32), initial)


init = jax.jit(encoder.init, static_argnums=(1, 2, 3))
apply = jax.jit(encoder.apply, static_argnames=("model", "layers", "all_layers"))


def inputs(tokens):
    layout = segments(jnp.asarray(tokens))
    return encoder.Inputs(jnp.asarray(tokens), layout.position, layout.segment, layout.segment)


def example(rng, length):
    return np.concatenate([[0], rng.integers(4, SIZE - 1, length - 2), [2]])


def padded(examples, length=32):
    row = np.concatenate(examples)
    return np.pad(row, (0, length - len(row)), constant_values=1)


def test_parameter_names_and_shapes_match_the_schema():
    abstract = jax.eval_shape(lambda: encoder.init(jax.random.key(0), TINY, SIZE, 2))
    leaves, _ = jax.tree_util.tree_flatten_with_path(abstract)
    shapes = {"/".join(str(k.key) for k in path): leaf.shape for path, leaf in leaves}
    assert shapes == GOLDEN


def test_packed_examples_equal_unpacked_examples():
    rng = np.random.default_rng(0)
    parts = [example(rng, n) for n in (9, 4, 13)]
    packed = apply(params(), TINY, inputs([padded(parts)]))[0]
    alone = apply(params(), TINY, inputs([padded([part]) for part in parts]))
    start = 0
    for index, part in enumerate(parts):
        actual, expected = packed[start : start + len(part)], alone[index, : len(part)]
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
        start += len(part)


def test_padding_has_no_effect():
    part = [example(np.random.default_rng(1), 12)]
    short = apply(params(), TINY, inputs([padded(part, 12)]))
    long = apply(params(), TINY, inputs([padded(part, 40)]))
    np.testing.assert_allclose(long[:, :12], short, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_no_gradient_crosses_between_examples(dtype):
    model = dataclasses.replace(TINY, dtype=dtype)
    rng = np.random.default_rng(2)
    batch = inputs([padded([example(rng, 8), example(rng, 10)])])
    weights = params(model)

    @jax.jit
    def first_example(words):
        looked_up = dict(weights, embeddings=dict(weights["embeddings"], word=words))
        # Each token has its own row of the table, so that gradients are separate.
        separate = batch._replace(tokens=jnp.arange(32)[None])
        return encoder.apply(looked_up, model, separate)[0, :8].sum()

    words = weights["embeddings"]["word"][batch.tokens[0]]
    gradient = np.abs(jax.jit(jax.grad(first_example))(words)).sum(1)
    assert (gradient[:8] > 0).all() and (gradient[8:] == 0).all()


def test_a_query_without_keys_is_finite_and_has_no_gradient_of_values():
    batch = inputs([padded([example(np.random.default_rng(3), 8)])])
    ids = batch.query_segment_ids.at[0, 3].set(99)
    output = apply(params(), TINY, batch._replace(query_segment_ids=ids))
    assert jnp.isfinite(output).all()
    gradient = jax.jit(
        jax.grad(lambda p: apply(p, TINY, batch._replace(query_segment_ids=ids))[0, 3].sum())
    )(params())
    assert all(np.isfinite(leaf).all() for leaf in jax.tree.leaves(gradient))
    assert (gradient["layers"]["attention"]["value"]["kernel"] == 0).all()


def test_a_loop_over_layers_equals_unrolled_and_rematerialised_layers():
    batch = inputs([padded([example(np.random.default_rng(4), 20)])])
    keys, weights = jax.random.split(jax.random.key(3), 1), params()

    def outputs(**options):
        model = dataclasses.replace(TINY, **options)

        def total(p):
            return jnp.square(encoder.apply(p, model, batch, keys)).mean()

        return jax.jit(jax.value_and_grad(total))(weights)

    expected = outputs(scan_layers=True)
    for options in (
        {"scan_layers": False},
        {"remat": "products"},
        {"remat": "all"},
        {"scan_layers": False, "remat": "products"},
        {"scan_layers": False, "remat": "all"},
    ):
        chex.assert_trees_all_close(outputs(**options), expected, rtol=2e-4, atol=1e-6)


def test_number_of_recomputed_matrix_products():
    """`products` saves the outputs of linear layers, but not the scores of dense attention."""
    params = init(jax.random.key(0), TINY, SIZE, 1)
    ids = jnp.ones((2, 16), jnp.int32)

    def count(remat):
        model = dataclasses.replace(TINY, remat=remat)

        def total(params):
            return encoder.apply(params, model, encoder.Inputs(ids, ids, ids, ids)).sum()

        return jax.jit(jax.grad(total)).lower(params).as_text().count("dot_general")

    none = count("none")
    assert {remat: count(remat) - none for remat in ("products", "all")} == {
        "products": 1,
        "all": 8,  # six linear layers, attention scores, weighted values
    }


@pytest.mark.parametrize("scan", [True, False])
@pytest.mark.parametrize("remat", ["none", "products", "all"])
def test_programs_are_a_loop_and_rematerialise_as_configured(scan, remat):
    model = dataclasses.replace(TINY, scan_layers=scan, remat=remat)
    batch = inputs([padded([example(np.random.default_rng(4), 20)])])
    shapes = jax.eval_shape(lambda: encoder.init(jax.random.key(0), TINY, SIZE, 2))
    program = jax.make_jaxpr(lambda p: encoder.apply(p, model, batch))(shapes)
    loop = next(e for e in program.eqns if e.primitive.name == "scan")
    assert loop.params["unroll"] == (1 if scan else 2)
    rematerialised = [e for e in loop.params["jaxpr"].eqns if "prevent_cse" in e.params]
    assert [e.params["prevent_cse"] for e in rematerialised] == (
        [] if remat == "none" else [not scan]
    )


def test_the_middle_layer_is_at_two_thirds_of_the_depth():
    depths = (1, 2, 3, 4, 6, 12, 24)
    assert [encoder.middle_layer(depth) for depth in depths] == [1, 1, 2, 3, 4, 8, 16]


def test_all_layers_start_with_embeddings_and_end_with_the_last_layer():
    batch = inputs([padded([example(np.random.default_rng(5), 20)])])
    all_layers = apply(params(), TINY, batch, all_layers=True)
    assert all_layers.shape == (3, 1, 32, 32)
    np.testing.assert_array_equal(all_layers[-1], apply(params(), TINY, batch))
    first = apply(params(), TINY, batch, layers=1)
    np.testing.assert_allclose(all_layers[1], first, rtol=1e-5, atol=1e-5)


def test_language_embeddings_are_added_only_to_marked_tokens():
    model = dataclasses.replace(TINY, language_embeddings="all")
    batch = inputs([padded([example(np.random.default_rng(6), 20)])])
    # No token sees token 3, so the embedding changes only the output of token 3.
    hidden = batch._replace(key_segment_ids=batch.key_segment_ids.at[0, 3:].set(-1))
    marked = jnp.full((1, 32), -1).at[0, 3].set(1)
    plain = apply(params(model), model, hidden)
    with_languages = apply(params(model), model, hidden._replace(languages=marked))
    changed = jnp.abs(plain - with_languages).max(-1)[0] > 0
    assert changed.tolist() == [i == 3 for i in range(32)]


def test_token_types_depend_on_sides_only_if_pairs_are_marked_by_types():
    tokens = [[0, 7, 8, 2, 9, 2, 0, 7, 2, 1]]
    layout = segments(jnp.asarray(tokens))
    batch = encoder.Inputs(jnp.asarray(tokens), layout.position, layout.segment, layout.segment)
    typed = batch._replace(sides=layout.side)
    for pairs, types in ((False, [0] * 10), (True, [0, 0, 0, 0, 1, 1, 0, 0, 0, 0])):
        model = dataclasses.replace(TINY, token_types=2, pair_marks=("types",) * pairs)
        weights = params(model)
        assert weights["embeddings"]["token_type"].shape == (2, 32)
        plain = dict(weights["embeddings"])
        table = plain.pop("token_type")
        word = plain["word"]  # a separate word for each token, with the vector of its type added
        plain["word"] = word[jnp.asarray(tokens[0])] + table[jnp.asarray(types)]
        expected = apply(weights | {"embeddings": plain}, TINY,
                         batch._replace(tokens=jnp.arange(10)[None]))  # fmt: skip
        np.testing.assert_allclose(apply(weights, model, typed), expected, rtol=1e-5, atol=1e-5)
        untyped = apply(weights, model, batch._replace(sides=jnp.zeros_like(layout.side)))
        np.testing.assert_array_equal(apply(weights, model, batch), untyped)


def test_positions_may_restart_at_the_second_sentence_of_a_pair():
    tokens = jnp.asarray([[0, 7, 8, 2, 9, 6, 2, 0, 7, 2, 0, 5, 2, 4, 2, 1]])
    expected = [0, 1, 2, 3, 0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 0]
    layout = segments(tokens)
    assert embeddings.restart_positions(layout.position, layout.side).tolist() == [expected]
    at_once = embeddings.restart_positions(jnp.asarray([[0, 1, 2]]), jnp.asarray([[1, 1, 1]]))
    assert at_once.tolist() == [[0, 1, 2]]
    continues = dataclasses.replace(TINY, layers=1)
    restarts = dataclasses.replace(continues, pair_marks=("positions",))
    pairs = encoder.Inputs(
        tokens, layout.position, layout.segment, layout.segment, None, layout.side
    )
    explicit = pairs._replace(positions=jnp.asarray([expected]))
    weights = params(continues)
    actual = apply(weights, restarts, pairs)
    np.testing.assert_array_equal(actual, apply(weights, continues, explicit))
    changed = jnp.abs(actual - apply(weights, continues, pairs)).max(-1)[0] > 0
    of_pairs = [place < 7 or 10 <= place < 15 for place in range(16)]
    assert changed.tolist() == of_pairs, "examples of one sentence must not change"
    no_sides = apply(weights, restarts, pairs._replace(sides=None))
    np.testing.assert_array_equal(no_sides, apply(weights, continues, pairs))


def test_a_separator_replaces_the_first_end_of_a_pair():
    """EuroBERT reads `bos A sep B eos`. Rows on disk contain `</s>` instead of `sep`, because
    sides, positions and the tokens that objectives ignore are derived from `</s>`."""
    tokens = jnp.asarray([[0, 7, 8, 2, 9, 6, 2, 0, 7, 2, 0, 5, 2, 9, 2, 1]])
    layout = segments(tokens)
    replaced = jnp.asarray([[0, 7, 8, 4, 9, 6, 2, 0, 7, 2, 0, 5, 4, 9, 2, 1]])
    assert embeddings.insert_separators(tokens, layout.side).tolist() == replaced.tolist()
    row = np.asarray([[0, 7, 8, 2, 9, 6, 2, 0, 5, 2, 9, 2, 1, 1]])
    first, second = Pairs().unpack({"tokens": row})
    assert (first.ids.tolist(), second.ids.tolist()) == ([7, 8, 5], [9, 6, 9])
    plain = dataclasses.replace(TINY, layers=1)
    insert_separators = dataclasses.replace(plain, pair_marks=("separator",))
    pairs = encoder.Inputs(
        tokens, layout.position, layout.segment, layout.segment, None, layout.side
    )
    weights = params(plain)
    actual = apply(weights, insert_separators, pairs)
    np.testing.assert_array_equal(actual, apply(weights, plain, pairs._replace(tokens=replaced)))
    no_sides = apply(weights, insert_separators, pairs._replace(sides=None))
    np.testing.assert_array_equal(no_sides, apply(weights, plain, pairs))


@pytest.mark.parametrize("norm, scan", [("pre", True), ("post", False)])
def test_dropout_is_applied_at_every_site_with_its_rate(norm, scan):
    model = dataclasses.replace(
        TINY, norm=norm, scan_layers=scan, dropout=0.3, attention_dropout=0.6, init_std=0.3
    )
    keys = jax.random.split(jax.random.key(0), 2)

    def dropped(x, layer, site, rate):
        words = np.asarray(jax.random.key_data(keys))
        return x * kept(words, layer, site, x.shape[1:], rate) / (1 - round(rate * 2**24) / 2**24)

    rng = np.random.default_rng(0)
    tokens = np.stack([padded([example(rng, 9), example(rng, 5)], 16) for _ in range(2)])
    weights = params(model)
    actual = apply(weights, model, inputs(tokens), keys, all_layers=True)
    expected = reference.encode(reference.float64(weights), model, tokens, None, dropped=dropped)
    np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-4)


def test_matmul_in_bfloat16_rounds_each_factor_once():
    x, w = jax.random.normal(jax.random.key(0), (2, 3, 40)), jnp.ones((40, 5))
    w = w + jax.random.normal(jax.random.key(1), w.shape)

    def total(x, w, dtype):
        return jnp.sin(matmul(x, w, dtype)).sum()

    exact = jax.grad(lambda x, w: jnp.sin(x @ w).sum(), (0, 1))(x, w)
    single = jax.grad(total, (0, 1))(x, w, jnp.dtype("float32"))
    half = jax.grad(total, (0, 1))(x, w, jnp.dtype("bfloat16"))
    for a, b, c in zip(exact, single, half, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-5, atol=1e-5)
        assert c.dtype == jnp.float32
        assert 0 < jnp.linalg.norm(c - a) / jnp.linalg.norm(a) < 0.05
