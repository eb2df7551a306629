"""Contrast equals NumPy, on several devices and in blocks; its memory is linear in the slots."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from random_rows import CORPUS, ragged
from references import bitext
from references import contrast as reference
from references.encoder import float64

from xlj.config import row_kinds
from xlj.data.tokenizer.layout import PAD, Ragged
from xlj.objectives.contrast import loss as contrast
from xlj.objectives.contrast import ranking
from xlj.objectives.contrast.options import DIRECTIONS, Contrast, Retrieval
from xlj.sharding.devices import AXES, REPLICATED, ROWS, on_mesh

COUNT, LENGTH = 30, 96
COMMON = {"layer": 0, "temperature": 0.2, "query_length": 64}
CASES = {
    "forward": Contrast(
        **COMMON, negatives=2, margin=0.1, guard=True, guard_margin=0.15, pooling="text",
        dimensions=("8=0.5", "16"), dense=24,
    ),
    "all_directions": Contrast(
        **COMMON, negatives=2, directions=DIRECTIONS, guard=True, guard_margin=-0.1
    ),
    "back_and_within": Contrast(
        **COMMON | {"layer": 2}, directions=DIRECTIONS[1::2], pooling="first"
    ),
    "hardest": Contrast(**COMMON, negatives=1, loss="hardest", directions=(), margin=0.2),
    "kl": Contrast(
        **COMMON, negatives=3, loss="kl", teacher_temperature=2.0, dimensions=("16=2",)
    ),
    "margin_mse": Contrast(**COMMON, negatives=3, loss="margin_mse", dimensions=("8",)),
    "cosent": Contrast(**COMMON, loss="cosent", dimensions=("16=0.5",)),
}  # fmt: skip


def rows_of(options, count=COUNT):
    """Returns random rows with planted duplicates, a text without negatives, and missing scores."""
    kind, rng = row_kinds.load(options.rows), np.random.default_rng(1)
    texts = [ragged(rng, count, 1, 24) for _ in range(2)]
    texts += [ragged(rng, count, 0, 24) for _ in range(options.negatives)]
    lists = [np.split(column.ids, column.starts[1:]) for column in texts]
    lists[0][5], lists[1][7] = lists[0][2], lists[0][1]
    if options.negatives:
        lists[2][3], lists[2][4] = lists[1][9], lists[1][4]
        for column in lists[2:]:
            column[8] = column[8][:0]
    columns = [Ragged.of([ids.tolist() for ids in column]) for column in lists]
    if kind.scored:
        lengths = rng.integers(0, 2 + options.negatives, count)
        lengths[:20] = 1 + options.negatives
        scores = rng.integers(-3, 4, lengths.sum()).astype(np.float32)
        columns.append(Ragged(scores, lengths))
    packed = kind.pack(columns, LENGTH, np.dtype("<u2"))
    assert packed.sentences == count
    fields = {field.name: field for field in kind.batch_fields(LENGTH, "<u2")}
    size = -(-len(packed.rows["query"]) // 4) * 4  # rows of padding, so that devices divide rows
    rows = {}
    for name, field in fields.items():
        rows[name] = np.full((size, *field.shape), field.fill, field.dtype)
        values = packed.rows.get(name, rng.integers(0, 3, (len(packed.rows["query"]), 2)))
        rows[name][: len(values)] = values
        if field.is_text or name == "owners":
            rows[name] = rows[name].astype(np.int32)
    return rows


def read_back(rows, options):
    """Returns the examples as texts, the place of each text's vector, and the scores."""
    examples, places, scores = [], [], []
    slots = row_kinds.load(options.rows).slots(rows)[0]
    negatives = [bitext.examples(rows["negatives"][:, n]) for n in range(options.negatives)]
    pairs = zip(bitext.examples(rows["query"]), bitext.examples(rows["positive"]), strict=True)
    for row, sides in enumerate(pairs):
        for slot, (query, positive) in enumerate(zip(*sides, strict=True)):
            given, place = [], [(0, row, slot), (1, row, slot)]
            score = [rows["score"][row, slot]] if "score" in rows else []
            for number, of_rows in enumerate(negatives):
                for k, text in enumerate(of_rows[row]):
                    if rows["owners"][row, number * slots + k] == slot:
                        given.append(tuple(text))
                        place.append((2, row, number * slots + k))
                        if score:
                            score.append(rows["negative_scores"][row, number * slots + k])
            examples.append((tuple(query), tuple(positive), given))
            places.append(place)
            scores.append(score)
    return examples, places, scores


def pooled(params, model, rows, options, languages):
    """Returns the vectors of each field, which the reference encodes one by one."""

    def vector(hidden, ids):
        real = ids != PAD
        if options.pooling == "first":
            mean = hidden[0]
        else:
            mean = hidden[bitext.is_word(ids) if options.pooling == "text" else real].mean(0)
        if options.dense:
            mean = mean @ params["sentence"]["0"]["kernel"]
        return mean / np.sqrt(mean @ mean)

    def of_field(tokens, slots):
        side = {"tokens": tokens, "languages": languages}
        return bitext.by_example(vector, params, model, side, options.layer, slots)[0]

    slots = row_kinds.load(options.rows).slots(rows)
    fields = [of_field(rows[name], slots[0]) for name in ("query", "positive")]
    given = [of_field(rows["negatives"][:, n], slots[0]) for n in range(options.negatives)]
    if given:
        fields.append(np.stack(given, 1).reshape(len(given[0]), -1, given[0].shape[-1]))
    return fields


def expected(options, examples, places, scores, fields):
    """Returns the results of the reference with these vectors."""

    def vectors(example, text):
        field, *place = places[example][text]
        return fields[field][tuple(place)]

    sizes, scale = options.sizes(fields[0].shape[-1]), 1 / options.temperature
    if options.loss in ("softmax", "hardest"):
        guard = options.guard_margin if options.guard else None
        return reference.ranked(
            examples, vectors, options.active_directions, scale, options.margin, guard, sizes,
            options.loss == "hardest",
        )  # fmt: skip
    if options.loss == "cosent":
        return reference.ordered(scores, vectors, scale, sizes)
    return reference.of_lists(
        examples, scores, vectors, scale, sizes, options.loss, options.teacher_temperature
    )


SLOW = ("back_and_within", "all_directions", "hardest", "kl", "margin_mse")


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=[pytest.mark.slow] * (c in SLOW)) for c in CASES]
)
def test_losses_and_gradients_equal_numpy_on_several_devices(
    case, model, params_of, keys_of, monkeypatch
):
    options = CASES[case]
    objective = contrast.objective("contrast", options, model, CORPUS)
    params, rows = params_of(model, objective), rows_of(options)
    examples, places, scores = read_back(rows, options)
    fields = pooled(float64(params), model, rows, options, rows["languages"])
    losses, counted, correct, *dropped = expected(options, examples, places, scores, fields)
    assert 3 < counted.sum() and (case in ("forward", "all_directions") or not all(correct))
    rng = np.random.default_rng(2)
    slopes = []  # of the loss, in the directions of some texts
    for example in range(0, COUNT, 3):
        for field, *place in places[example]:
            direction = np.zeros_like(fields[field])
            direction[tuple(place)] = rng.normal(size=direction.shape[-1])
            sides = []
            for sign in (1e-6, -1e-6):
                moved = [*fields]
                moved[field] = fields[field] + sign * direction
                sides.append(expected(options, examples, places, scores, moved)[0].sum())
            slopes.append((field, direction, (sides[0] - sides[1]) / 2e-6))

    def run(params, rows, keys):
        before = objective.corrupt(rows, keys)
        after = objective.targets(params, {}, before, lambda function, inputs: function(inputs))
        return after, objective.loss(params, {}, after, None), objective.count(after)

    for devices, block in ((1, ranking.BLOCK), (2, 1), (4, ranking.BLOCK)):
        monkeypatch.setattr(ranking, "BLOCK", block)  # of 8 anchors, the smallest
        mesh = jax.make_mesh(
            (devices // 2 or 1, min(devices, 2)), AXES, (AxisType.Auto,) * 2,
            devices=jax.devices()[:devices],
        )  # fmt: skip
        by_row = jax.device_put((rows, keys_of(rows)), jax.NamedSharding(mesh, ROWS))
        whole = jax.device_put(params, jax.NamedSharding(mesh, REPLICATED))
        after, sums, counts = jax.device_get(jax.jit(on_mesh(mesh, run))(whole, *by_row))
        actual = [np.asarray(after.losses)[place[0][1:]] for place in places]
        np.testing.assert_allclose(actual, losses, rtol=1e-3, atol=1e-4)
        for values, wanted in ((after.is_counted, counted), (after.correct, correct)):
            assert [bool(values[place[0][1:]]) for place in places] == wanted.tolist()
            assert values.sum() == wanted.sum()
        own = sums["contrast"]
        np.testing.assert_allclose(own.sum.sum(), losses.sum(), rtol=1e-4)
        assert own.count.sum() == counts["contrast"].sum() == counted.sum()
        assert own.correct.sum() == correct.sum()
        for field, direction, slope in slopes:
            gradient = (np.asarray(after.gradients[field]) * direction).sum()
            np.testing.assert_allclose(gradient, slope, rtol=2e-3, atol=2e-3)
        for reason in ("shared", "guarded") if dropped else ():
            assert after.dropped[reason].sum() == dropped[0][reason]
            if f"contrast_{reason}" in sums:
                assert sums[f"contrast_{reason}"].sum.sum() == dropped[0][reason] > 0
                assert counts[f"contrast_{reason}"].sum() == dropped[0]["candidates"]
        assert (not options.guard) == ("contrast_guarded" not in sums)


def angles(*degrees):
    """Returns unit vectors at these angles, float32 [1, n, 2]."""
    radians = np.radians(degrees)
    return jnp.asarray(np.stack([np.cos(radians), np.sin(radians)], 1)[None], jnp.float32)


def test_the_guard_drops_a_planted_duplicate_and_keeps_a_hard_negative():
    """The positive is 20 degrees from its query. One negative, 1 degree from the query, is another
    positive; another, at 25 degrees, is hard."""
    queries, positives = angles(0, 90), angles(20, 110)
    given = angles(1, 25)
    sentences = tuple(jnp.asarray([ids], jnp.uint32) for ids in ([1, 2], [3, 4], [5, 6]))
    others = {
        "sentences": sentences,
        "is_real": (jnp.ones((1, 2), bool),) * 3,
        "owners": jnp.asarray([[0, 0]]),
    }
    results = {}
    for guard in (False, True):
        options = Contrast(negatives=1, guard=guard, guard_margin=0.0, temperature=0.1)
        results[guard] = contrast.batch_gradients(options, (queries, positives, given), others)
    gradients, after = results[True]
    assert after.dropped["guarded"].tolist() == [[1, 0]]
    # It stays a negative of the other query, which is 89 degrees away.
    assert np.abs(gradients[2][0, 0]).max() < 0.01 and np.abs(gradients[2][0, 1]).max() > 0.1
    assert np.abs(results[False][0][2][0, 0]).max() > 0.1
    # The limit is the cosine of the positive minus the margin: 25 degrees is above cos 20 - 0.1.
    wide = Contrast(negatives=1, guard=True, guard_margin=0.1, temperature=0.1)
    _, after = contrast.batch_gradients(wide, (queries, positives, given), others)
    assert after.dropped["guarded"].tolist() == [[2, 0]]


@pytest.mark.parametrize("loss", ["hardest", "softmax"])
def test_correct_pairs_are_nearer_than_every_negative(loss):
    """The sides of the second pair are more similar to each other than to the other side of any
    pair, but its first sentence is even more similar to a sentence of its own side."""
    others = {
        "sentences": (jnp.asarray([[1, 2, 3]], jnp.uint32), jnp.asarray([[4, 5, 6]], jnp.uint32)),
        "is_real": (jnp.ones((1, 3), bool),) * 2,
    }
    sides = angles(0, 57, 52), angles(1, 69, 115)
    _, after = contrast.batch_gradients(Retrieval(loss=loss), sides, others)
    assert after.correct.tolist() == [[1, loss == "hardest", 0]]


@pytest.mark.parametrize("loss", ["hardest", "softmax", "cosent"])
def test_temporary_memory_is_linear_in_the_slots(loss):
    """The test for shared sentences is a part of the measured program."""
    options = Contrast(loss=loss, directions=() if loss != "cosent" else ("query_to_passage",))

    def temporary(slots):
        def of(dtype, *shape):
            return jax.ShapeDtypeStruct((slots // 8, 8, *shape), dtype)

        others = {"sentences": (of("uint32"),) * 2, "is_real": (of("bool"),) * 2}
        if loss == "cosent":
            others["score"] = of("float32")
        program = jax.jit(lambda *x: contrast.batch_gradients(options, *x))
        compiled = program.lower((of("float32", 384),) * 2, others).compile()
        return compiled.memory_analysis().temp_size_in_bytes

    small, large = temporary(8192), temporary(16384)
    assert large <= 2.1 * small
