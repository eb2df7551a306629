"""Every public function of objectives, alignment and models refuses arrays of a wrong rank, dtype
or size."""

import dataclasses
import importlib
import inspect
import pkgutil
import types
import typing
from collections.abc import Callable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import xlj.alignment_math
import xlj.models
import xlj.objectives
from xlj.alignment_math import extraction, hmm, sinkhorn
from xlj.config import Model
from xlj.data.rows.store import Corpus
from xlj.models import (
    block,
    dense,
    dropout,
    embeddings,
    encoder,
    fused_norm,
    lowering,
    modules,
    norms,
    pattern,
    positions,
    segments,
)
from xlj.models.attention import layer
from xlj.models.attention.choosing import IMPLEMENTATIONS
from xlj.models.attention.interface import Mask, Operands
from xlj.objectives import corruption, objective
from xlj.objectives.btmlm import loss as btmlm
from xlj.objectives.btmlm.options import BackTranslation
from xlj.objectives.camlm import loss as camlm
from xlj.objectives.contrast import head as contrast_head
from xlj.objectives.contrast import loss as contrast
from xlj.objectives.contrast import ranking, scoring
from xlj.objectives.contrast.head import init_projection, project
from xlj.objectives.contrast.options import Retrieval
from xlj.objectives.corruption import Masked
from xlj.objectives.dwa import loss as dwa
from xlj.objectives.dwa.loss import init_pointer, point
from xlj.objectives.dwa.options import WordAlignment
from xlj.objectives.mlm import loss as mlm
from xlj.objectives.mlm.head import init_prediction, predict
from xlj.objectives.mlm.options import TranslationLM
from xlj.objectives.rtd import loss as rtd
from xlj.objectives.rtd.loss import detect, init_detection
from xlj.objectives.rtd.options import ReplacedTokenDetection
from xlj.objectives.supervised import loss as supervised
from xlj.objectives.supervised import word_links
from xlj.objectives.supervised.head import (
    classify,
    classify_texts,
    classify_tokens,
    init_classification,
    init_token_classification,
    pair_features,
)
from xlj.objectives.vocabulary import cross_entropy, kept_logits, logits
from xlj.objectives.word_hmm import head as word_hmm_head
from xlj.objectives.word_hmm import loss as word_hmm
from xlj.objectives.xlco import loss as xlco
from xlj.objectives.xlco.options import CrossLingualContrast
from xlj.sharding import devices
from xlj.sharding import trees as array_trees

MODEL = Model(
    layers=2, hidden=8, heads=2, intermediate=12, positions=20, position_bias="t5",
)  # fmt: skip
R, N, H, V, SLOTS = 3, 12, 8, 40, 2
CORPUS = Corpus(V, ("en", "de"), (5, 5), ("en", "de"))
DTYPE = jnp.dtype("float32")


def f32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def i32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.int32)


def u32(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.uint32)


def booleans(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.bool_)


def keys(*shape):
    return jax.eval_shape(lambda: jax.random.split(jax.random.key(0), shape))


KEY, TOKENS, HIDDEN = keys(), i32(R, N), f32(R, N, H)
ROWS = {"tokens": TOKENS, "languages": i32(R, 2)}
LINKED = {"tokens": TOKENS, "links": jax.ShapeDtypeStruct((R, 2, N, -(-N // 8)), jnp.uint8)}
BITEXT = {"first": TOKENS, "second": TOKENS, "languages": i32(R, 2)}
MASKED = Masked(TOKENS, i32(R, SLOTS), i32(R, SLOTS), f32(R, SLOTS), i32(R, 2))
SEGMENTS = segments.Segments(TOKENS, TOKENS, TOKENS)
INPUTS = encoder.Inputs(TOKENS, TOKENS, TOKENS, TOKENS, None, TOKENS)
TABLE = {"vectors": f32(6, H), "table": f32(V, H), "bias": f32(V)}
BLOCK = {"vectors": f32(6, H), "weights": f32(V, H), "bias": f32(V), "first": i32()}
OF_LABELS = {"labels": i32(6), "normaliser": f32(6), "grad_loss": f32(6)}
HEADS = f32(R, N, 2, 4)
OPERANDS = Operands(
    HEADS, HEADS, HEADS, Mask(TOKENS, TOKENS), gates=f32(R, 2, N), seeds=i32(R), rate=0.1
)
PAIRS = {"similarity": f32(5, 4), "source_ids": i32(5), "target_ids": i32(4)}
CHAIN = {
    "emission": hmm.Emission(f32(R, 5, 4), f32(R, 4)),
    "jumps": f32(R, 7),
    "source_ids": i32(R, 5),
    "target_ids": i32(R, 4),
}


def trees():
    """Returns the shapes of the parameters of a model and of all heads."""

    def init(key):
        params = encoder.init(key, MODEL, V, 2)
        return params | {
            "prediction_head": init_prediction(key, MODEL, V),
            "detection_head": init_detection(key, MODEL),
            "classification_head": init_classification(key, MODEL, 3),
            "tagging_head": init_token_classification(key, MODEL, 3),
            "pointer_head": init_pointer(key, MODEL),
            "contrast_head": init_projection(key, MODEL),
            "word_hmm_head": word_hmm_head.init(key, MODEL, 3),
            "word_links_head": word_links.init(key, MODEL),
        }

    return jax.eval_shape(init, KEY)


PARAMS = trees()
HEAD = PARAMS["prediction_head"]
DWA, MASKING = WordAlignment(), TranslationLM()

ENTRIES: dict[Callable, tuple[dict, dict]] = {
    # function: (other arguments, including parameters whose shapes flax checks; arrays)
    sinkhorn.same_example: ({}, {n: PAIRS[n] for n in ("source_ids", "target_ids")}),
    sinkhorn.sinkhorn: ({}, PAIRS),
    extraction.argmax: ({}, PAIRS),
    extraction.union: ({}, PAIRS),
    extraction.itermax: ({}, PAIRS),
    extraction.match: ({}, PAIRS),
    extraction.released: (
        {},
        {"transport": sinkhorn.Transport(f32(R, 5, 4), f32(R, 5, 4), f32(R, 5, 4))},
    ),
    extraction.labels: ({}, {"links": booleans(5, 4)}),
    extraction.dot_products: ({}, {"source": f32(5, H), "target": f32(4, H)}),
    extraction.shifted_cosines: ({}, {"source": f32(5, H), "target": f32(4, H)}),
    extraction.diagonal: (
        {"strength": 2.0},
        {n: PAIRS[n] for n in ("source_ids", "target_ids")},
    ),
    hmm.log_likelihood: ({}, CHAIN),
    hmm.posteriors: ({}, CHAIN),
    word_hmm_head.init: ({"model": MODEL, "longest_jump": 3}, {"rng": KEY}),
    word_hmm_head.keys: (
        {"head": PARAMS["word_hmm_head"], "model": MODEL},
        {"table": f32(V, H), "tokens": TOKENS},
    ),
    word_hmm_head.queries: (
        {"head": PARAMS["word_hmm_head"], "model": MODEL},
        {"hidden": HIDDEN},
    ),
    word_hmm_head.products: ({"dtype": "float32"}, {"queries": f32(R, 5, H), "keys": f32(R, 4, H)}),
    word_hmm_head.log_ratio: ({"normaliser": 0.0}, {"score": f32(R, 5, 4)}),
    word_hmm.words_of: ({}, {"tokens": TOKENS}),
    word_links.init: ({"model": MODEL, "labels": 0}, {"rng": KEY}),
    word_links.logits: (
        {"head": PARAMS["word_links_head"], "model": MODEL},
        {"hidden": HIDDEN, "tokens": TOKENS, "rngs": keys(R)},
    ),
    word_links.unpack: ({"length": N}, {"links": LINKED["links"]}),
    word_links.weights: ({}, {"rows": LINKED}),
    word_links.losses: ({}, {"logits": f32(R, N, N), "rows": LINKED}),
    word_links.word_probabilities: (
        {"head": PARAMS["word_links_head"], "model": MODEL},
        {
            "vectors": (f32(3, R, 5, H), f32(3, R, 4, H)),
            "ids": (i32(R, 5), i32(R, 4)),
            "words": (i32(R, 5), i32(R, 4)),
        },
    ),
    layer.shared_bias: (
        {"model": MODEL, "length": N},
        {"params": {"table": f32(MODEL.position_buckets, 2)}},
    ),
    lowering.product: ({"dtype": DTYPE}, {"left": f32(H), "right": f32(H, 5)}),
    lowering.product_over_rows: ({"dtype": DTYPE}, {"left": f32(3, H), "right": f32(3, 5)}),
    lowering.sum_over_rows: ({"dtype": DTYPE}, {"x": f32(6, 4)}),
    lowering.products: ({"contracted": (-2, -1)}, {"left": f32(R, 3, H), "right": f32(R, 5, 3)}),
    lowering.swap_axes_copied: ({"axis": 0, "other": 1}, {"x": f32(3, H)}),
    lowering.rounded: ({"dtype": DTYPE}, {"x": f32(3, H)}),
    lowering.rounded_on_gpus: ({"dtype": DTYPE}, {"x": f32(3, H)}),
    lowering.add_bias: ({}, {"x": f32(H), "bias": f32(H)}),
    dense.matmul: (
        {"dtype": DTYPE, "activation": dense.gelu},
        {"x": f32(H), "kernel": f32(H, 5), "shift": f32(H)},
    ),
    dense.linear: (
        {"dtype": DTYPE, "result": DTYPE, "activation": dense.gelu},
        {"x": f32(H), "kernel": f32(H, 5), "bias": f32(5), "shift": f32(H)},
    ),
    dense.gelu: ({"dtype": DTYPE}, {"x": f32(3, 4)}),
    dense.geglu: ({"dtype": DTYPE}, {"x": f32(3, 4)}),
    dense.swiglu: ({"dtype": DTYPE}, {"x": f32(3, 4)}),
    norms.norm: ({"model": MODEL}, {"x": f32(H), "scale": f32(H), "bias": f32(H)}),
    positions.rotations: ({"size": 4, "base": 10.0, "factor": 1.0}, {"positions": TOKENS}),
    positions.rotations_of_layers: (
        {"model": dataclasses.replace(MODEL, rotary_base=10.0)},
        {"positions": TOKENS},
    ),
    positions.rotate: ({}, {"x": HEADS, "rotations": positions.Rotations(*[f32(R, N, 1, 2)] * 2)}),
    pattern.layer_count: ({}, {"layers": {"a": f32(2, 3), "b": f32(2)}}),
    pattern.select_layers: ({"start": 0, "stop": 1}, {"layers": {"a": f32(2, 3), "b": f32(2)}}),
    dropout.row_seeds: ({"layer": 1, "site": 2}, {"rngs": keys(R)}),
    dropout.fold_in: ({}, {"seed": i32(R), "number": i32(R)}),
    dropout.is_kept: ({"rate": 0.1}, {"hashes": i32(R)}),
    dropout.keep_mask: ({"shape": (2, 3), "rate": 0.1}, {"seeds": i32(R)}),
    dropout.dropout: ({"layer": 1, "site": 2, "rate": 0.1}, {"x": f32(R), "rngs": keys(R)}),
    dropout.drop: ({"rate": 0.1}, {"x": f32(R), "seeds": i32(R)}),
    embeddings.restart_positions: ({}, {"positions": TOKENS, "sides": TOKENS}),
    embeddings.insert_separators: ({}, {"tokens": TOKENS, "sides": TOKENS}),
    encoder.init: ({"model": MODEL, "vocabulary_size": V, "languages": 2}, {"rng": KEY}),
    encoder.apply: ({"params": PARAMS, "model": MODEL}, {"inputs": INPUTS, "rngs": keys(R)}),
    encoder.first_layers: (
        {"layers": 1, "model": MODEL},
        {"params": {"layers": {"a": f32(2, 3), "b": f32(2)}}},
    ),
    fused_norm.add_norm: (
        {"options": fused_norm.Options(0.1, 0.1, DTYPE, True)},
        {
            "x": f32(R, fused_norm.MULTIPLE, H),
            "update": f32(R, fused_norm.MULTIPLE, H),
            "scale": f32(H),
            "bias": f32(H),
            "seeds": i32(R),
        },
    ),
    init_prediction: ({"model": MODEL, "vocabulary_size": V}, {"rng": KEY}),
    init_detection: ({"model": MODEL}, {"rng": KEY}),
    init_classification: ({"model": MODEL, "classes": 3}, {"rng": KEY}),
    init_token_classification: ({"model": MODEL, "classes": 3}, {"rng": KEY}),
    init_pointer: ({"model": MODEL}, {"rng": KEY}),
    init_projection: ({"model": MODEL}, {"rng": KEY}),
    predict: ({"params": HEAD, "model": MODEL}, {"table": f32(V, H), "hidden": f32(H)}),
    detect: ({"params": PARAMS["detection_head"], "model": MODEL}, {"hidden": f32(H)}),
    classify: (
        {"params": PARAMS["classification_head"], "model": MODEL},
        {"vectors": f32(R, H), "rngs": keys(R)},
    ),
    pair_features: ({}, {"first": f32(R, H), "second": f32(R, H)}),
    classify_texts: (
        {"params": PARAMS["classification_head"], "model": MODEL, "max_texts": 2},
        {"hidden": HIDDEN, "tokens": TOKENS, "rngs": keys(R)},
    ),
    classify_tokens: (
        {"params": PARAMS["tagging_head"], "model": MODEL, "rate": 0.1},
        {"hidden": HIDDEN, "rngs": keys(R)},
    ),
    point: (
        {"params": PARAMS["pointer_head"], "model": MODEL},
        {"queries": f32(R, 2, H), "keys": HIDDEN},
    ),
    project: ({"params": PARAMS["contrast_head"], "model": MODEL}, {"hidden": f32(H)}),
    embeddings.look_up: ({}, {"table": f32(V, H), "ids": i32(R)}),
    embeddings.look_up_small: ({}, {"table": f32(V, H), "ids": i32(R)}),
    positions.buckets: ({"count": 8, "distance": 12}, {"differences": i32(R)}),
    positions.bias_tiles: ({"block": 4}, {"bias": f32(2, 16)}),
    block.stream_of: ({"model": MODEL}, {"x": HIDDEN}),
    segments.split_sides: ({}, {"rows": BITEXT}),
    segments.count_examples: ({}, {"tokens": TOKENS}),
    segments.is_example: ({"max_examples": 2}, {"tokens": TOKENS}),
    segments.find_starts: ({"max_examples": 2}, {"tokens": TOKENS}),
    segments.average_examples: ({"max_examples": 2}, {"hidden": HIDDEN, "tokens": TOKENS}),
    segments.average_rows: ({}, {"hidden": HIDDEN, "tokens": TOKENS}),
    btmlm.corrupt: (
        {"options": BackTranslation(), "vocabulary_size": V},
        {"rows": ROWS, "rngs": keys(R), "probabilities": f32(2, 2)},
    ),
    btmlm.fill: (
        {"params": PARAMS, "model": MODEL, "options": BackTranslation()},
        {"inputs": btmlm.BTMLMInputs(MASKED, TOKENS, i32(R, 4), booleans(R, 4), TOKENS, keys(R))},
    ),
    camlm.inputs_of: ({"model": MODEL}, {"masked": MASKED}),
    camlm.pattern: ({}, {"layout": SEGMENTS, "selected": booleans(R, N)}),
    logits.choose: ({"dtype": DTYPE}, TABLE | {"rngs": keys(6)}),
    corruption.split: ({}, {"rngs": keys(R)}),
    corruption.at_positions: ({"length": N}, {"positions": i32(R, 4), "values": f32(R, 4)}),
    corruption.mask_tokens: (
        {"options": MASKING, "vocabulary_size": V},
        {"rows": ROWS, "rngs": keys(R)},
    ),
    cross_entropy.cross_entropy: ({"dtype": DTYPE}, TABLE | {"labels": i32(6)}),
    segments.sides: ({}, {"tokens": TOKENS}),
    dwa.self_label: (
        {"params": PARAMS, "model": MODEL, "options": DWA, "layer": 1},
        {"inputs": dwa.DWAInputs(MASKED, keys(R), i32(R, 4), i32(R, 4))},
    ),
    dwa.pointer_loss: (
        {"head": PARAMS["pointer_head"], "model": MODEL},
        {"hidden": HIDDEN, "inputs": dwa.DWAInputs(MASKED, keys(R), i32(R, 4), i32(R, 4))},
    ),
    kept_logits.cross_entropy: ({"dtype": DTYPE}, TABLE | {"labels": i32(6)}),
    logits.block_starts: ({"block": 16}, {"table": f32(V, H)}),
    logits.block_of: (
        {"size": 16, "dtype": DTYPE},
        {"table": f32(V, H), "bias": f32(V), "start": i32()},
    ),
    logits.block_logits: ({}, BLOCK),
    logits.products: ({}, {"vectors": f32(6, H), "weights": f32(V, H)}),
    logits.statistics: ({}, BLOCK | {"labels": i32(6)}),
    logits.gradient: ({}, BLOCK | OF_LABELS),
    mlm.blind_share: (
        {"model": MODEL},
        {"inputs": INPUTS, "positions": i32(R, 5), "weights": f32(R, 5)},
    ),
    mlm.whole: ({"model": MODEL}, {"masked": MASKED}),
    mlm.gather: ({}, {"hidden": HIDDEN, "positions": i32(R, SLOTS)}),
    mlm.prediction_loss: (
        {"params": PARAMS, "head": HEAD, "model": MODEL},
        {"hidden": HIDDEN, "masked": MASKED},
    ),
    contrast_head.pool: (
        {"max_examples": 2, "pooling": "mean"},
        {"hidden": HIDDEN, "tokens": TOKENS},
    ),
    contrast_head.encode: (
        {
            "params": PARAMS,
            "model": MODEL,
            "slots": 2,
            "layer": -2,
            "pooling": "mean",
            "dense": 0,
        },
        {"rows": ROWS, "rngs": keys(R)},
    ),
    objective.with_gradient: (
        {},
        {"values": f32(R), "gradients": f32(R, 2, H), "outputs": f32(R, 2, H)},
    ),
    contrast_head.normalise: ({}, {"vectors": f32(R, H)}),
    contrast.batch_gradients: (
        {"options": Retrieval()},
        {
            "vectors": (f32(R, 2, H), f32(R, 2, H)),
            "others": {"sentences": (u32(R, 2),) * 2, "is_real": (booleans(R, 2),) * 2},
        },
    ),
    ranking.truncate: ({"size": 4}, {"vectors": f32(R, H)}),
    ranking.negative_log_softmax: ({}, {"right": f32(R, 2), "others": f32(R, 2, 5)}),
    ranking.rank: (
        {"rule": ranking.Rule(False, 2.0, 0.0, 0.1, {H: 1.0})},
        {
            "anchors": ranking.Anchors(f32(6, H), f32(6, 1), f32(6), u32(6, 2), booleans(6)),
            "candidates": ranking.Candidates(f32(9, H), u32(9, 2), booleans(9)),
        },
    ),
    scoring.order_pairs: (
        {},
        {"predicted": f32(6), "targets": f32(6), "is_real": booleans(6)},
    ),
    scoring.compare_lists: (
        {"loss": "kl", "temperature": 1.0},
        {
            "student": (f32(R, 2), f32(R, 2, 4)),
            "teacher": (f32(R, 2), f32(R, 4)),
            "is_own": booleans(R, 2, 4),
            "is_real": booleans(R, 2),
        },
    ),
    rtd.init_generator: (
        {"options": ReplacedTokenDetection(), "model": MODEL, "corpus": CORPUS},
        {"rng": KEY},
    ),
    rtd.replace: (
        {"generator": PARAMS, "head": HEAD, "model": MODEL, "options": ReplacedTokenDetection()},
        {"hidden": HIDDEN, "inputs": rtd.RTDInputs(MASKED, keys(R))},
    ),
    rtd.detection_loss: ({}, {"logits": f32(R, N), "replaced": TOKENS, "original": TOKENS}),
    segments.segments: ({}, {"tokens": TOKENS}),
    segments.languages_of: ({}, {"layout": SEGMENTS, "languages": i32(R, 2)}),
    segments.sees_nothing: ({"window": 2}, {"inputs": INPUTS}),
    segments.whole_examples: ({"model": MODEL}, {"tokens": TOKENS, "languages": i32(R, 2)}),
    supervised.logits: (
        {"kind": "tagging", "params": PARAMS, "model": MODEL},
        {"tokens": TOKENS, "languages": i32(R, 2), "rngs": keys(R)},
    ),
    supervised.init_head: ({"kind": "tagging", "model": MODEL, "labels": 3}, {"rng": KEY}),
    xlco.corrupt: (
        {"options": CrossLingualContrast(), "model": MODEL, "corpus": CORPUS},
        {"rows": BITEXT, "rngs": keys(R)},
    ),
    xlco.mix: ({"max_examples": 2}, {"first": ROWS, "second": ROWS, "rngs": keys(R)}),
    xlco.join: ({"max_examples": 2}, {"first": TOKENS, "second": TOKENS, "pairs": i32(R)}),
    xlco.contrast: (
        {"temperature": 0.1},
        {
            "queries": f32(R, 2, H),
            "keys": f32(R, 2, H),
            "state": {"queue": f32(7, H), "filled": i32()},
            "real": booleans(R, 2),
        },
    ),
}

OF_ANY_ARRAYS = (
    devices.constrain, devices.all_gather, devices.gather_rows, devices.reduce_sum,
    devices.sum_over_replicas, devices.all_to_all, devices.on_whole_matrices, modules.run,
    modules.init_head, array_trees.bytes_on_device,
)  # fmt: skip
"""Functions that move arrays of any rank, size and dtype between devices, or pass them to a
module."""
CHECKS = (
    sinkhorn.check_pairs, logits.check_block, logits.check_factors, objective.check_rows,
)  # fmt: skip
INNER = tuple(f"attention.{name}" for name in ("interface", "tiles", "triton", "tpu", "blocks"))
"""Modules whose functions only implementations of attention call."""
TILES = {"triton": (2, 1, 64, 64), "chunks": (2, 1, 128, 128), "dense": (2, 1, N, N)}
METHODS = {
    IMPLEMENTATIONS[name].attend: (
        {},
        {"operands": dataclasses.replace(OPERANDS, bias=f32(*shape))},
    )
    for name, shape in TILES.items()
}
"""Methods that are checked like the functions of `ENTRIES`."""

ANY_DTYPE = {"at_positions.values", "filled.x"}
ANY_RANK = {
    "gelu.x",
    "geglu.x",
    "swiglu.x",
    "swap_axes_copied.x",
    "rounded.x",
    "rounded_on_gpus.x",
    "log_ratio.score",
    "keys.tokens",
    "fold_in.seed",
    "fold_in.number",
    "is_kept.hashes",
    "buckets.differences",
    "normalise.vectors",
    "truncate.vectors",
    "negative_log_softmax.right",
    "negative_log_softmax.others",
}
ANY_SIZE = ANY_RANK | {
    # Arrays that share no axis with another array, and whose sizes are not options.
    "labels.links", "row_seeds.rngs", "keep_mask.seeds", "look_up.table", "look_up.ids",
    "look_up_small.table", "look_up_small.ids", "stream_of.x", "count_examples.tokens",
    "is_example.tokens", "find_starts.tokens", "split.rngs", "sides.tokens", "sum_over_rows.x",
    "block_starts.table",
    "segments.tokens", "words_of.tokens", "same_example.source_ids",
    "same_example.target_ids",
    "diagonal.source_ids", "diagonal.target_ids", "rotations.positions",
    "rotations_of_layers.positions",
}  # fmt: skip
ANYTHING = {"dtype": ANY_DTYPE, "rank": ANY_RANK, "size": ANY_SIZE}
"""Arguments that may have any dtype, rank or size."""


def takes_arrays(hint):
    """Returns whether a parameter of this type may be or contain arrays (not functions of
    arrays)."""
    if hint in (jax.Array, np.ndarray, encoder.Params):
        return True
    origin = typing.get_origin(hint)
    if origin in (typing.Union, types.UnionType, tuple, list, dict, Mapping):
        return any(map(takes_arrays, typing.get_args(hint)))
    if isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields"):
        return any(map(takes_arrays, typing.get_type_hints(hint).values()))
    return False


def public_functions():
    for package in (xlj.alignment_math, xlj.models, xlj.objectives, xlj.sharding):
        for module_info in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if module_info.name.endswith((*INNER, ".options")):  # options have no arrays
                continue
            module = importlib.import_module(module_info.name)
            for name, function in vars(module).items():
                inner = inspect.unwrap(function) if callable(function) else None
                if not inspect.isfunction(inner) or name.startswith("_"):
                    continue
                if inner.__module__ != module_info.name:
                    continue
                hints = typing.get_type_hints(inner)
                hints.pop("return", None)
                if any(map(takes_arrays, hints.values())):
                    yield function


def test_every_public_function_of_arrays_has_an_entry():
    public = set(public_functions())
    listed = {*ENTRIES, *OF_ANY_ARRAYS, *CHECKS}
    new = sorted(entry(function) for function in public - listed)
    gone = {f"{f.__module__}.{f.__name__}" for f in listed - public}
    assert not new, f"add to ENTRIES, with the shapes of the arrays:\n{chr(10).join(new)}"
    assert not gone, "entries that are no longer public functions of arrays"


def entry(function):
    """Returns the line of `ENTRIES` for a function, with `...` for its values and shapes."""
    hints = typing.get_type_hints(inspect.unwrap(function))
    names = [name for name in hints if name != "return"]
    plain = ", ".join(f'"{name}": ...' for name in names if not takes_arrays(hints[name]))
    arrays = ", ".join(f'"{name}": f32(...)' for name in names if takes_arrays(hints[name]))
    module = function.__module__.rpartition(".")[2]
    return f"    {module}.{function.__name__}: ({{{plain}}}, {{{arrays}}}),"


def test_the_error_of_a_missing_entry_has_the_line_to_add():
    left_out = '    lowering.product: ({"dtype": ..., "right_axis": ...}, '
    assert entry(lowering.product) == left_out + '{"left": f32(...), "right": f32(...)}),'


def call(function, plain, arrays):
    """Traces a function, or calls it if it is a function of NumPy arrays."""
    trees = {name: plain[name] for name in plain if isinstance(plain[name], dict)}
    rest = {name: plain[name] for name in plain if name not in trees}
    if function in (extraction.match, positions.buckets):
        arrays = jax.tree.map(lambda x: np.zeros(x.shape, x.dtype), arrays)
        return function(**rest, **arrays)
    return jax.eval_shape(lambda traced: function(**rest, **traced), arrays | trees)


def leaves_of(function, arrays):
    """Yields (name, place in the tree, array) of each array."""
    for path, leaf in jax.tree_util.tree_flatten_with_path(arrays)[0]:
        name = jax.tree_util.keystr(path, simple=True, separator=".")
        yield f"{function.__name__}.{name}", path, leaf


def with_leaf(arrays, path, leaf):
    return jax.tree_util.tree_map_with_path(
        lambda other_path, old_leaf: leaf if other_path == path else old_leaf, arrays
    )


def refusal_message(function, plain, arrays, path, leaf):
    """Returns the message for another array at a path, or an empty string if no check refuses
    it."""
    try:
        call(function, plain, with_leaf(arrays, path, leaf))
    except AssertionError as error:
        return str(error)
    except Exception:
        return ""
    return ""


def with_shape(leaf, shape):
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return keys(*shape)
    return jax.ShapeDtypeStruct(shape, leaf.dtype)


@pytest.mark.parametrize(
    "function", ENTRIES | METHODS, ids=lambda f: f"{f.__module__.rpartition('.')[2]}.{f.__name__}"
)
def test_functions_refuse_arrays_of_another_dtype_rank_or_size(function):
    plain, arrays = (ENTRIES | METHODS)[function]
    call(function, plain, arrays)
    for name, path, leaf in leaves_of(function, arrays):
        shape = leaf.shape
        is_float = jnp.issubdtype(leaf.dtype, jnp.floating)
        dtype = jax.ShapeDtypeStruct(shape, jnp.int32 if is_float else jnp.float32)
        ranks = [with_shape(leaf, (1, *shape))] + ([with_shape(leaf, shape[1:])] if shape else [])
        longer = [shape[:i] + (n + 1,) + shape[i + 1 :] for i, n in enumerate(shape)]
        sizes = [with_shape(leaf, size) for size in longer]
        others = {"dtype": [dtype], "rank": ranks, "size": sizes}
        for kind, changed in others.items():
            messages = [refusal_message(function, plain, arrays, path, leaf) for leaf in changed]
            is_refused = any("must be" in text for text in messages)
            expected = name not in ANYTHING[kind] and bool(changed)
            assert is_refused or not expected, f"{name}: no check refuses another {kind}"
            assert expected or not is_refused, (
                f"{name}: a check refuses another {kind}: remove it from ANYTHING"
            )
