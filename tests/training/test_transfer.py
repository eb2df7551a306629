"""Transfer from another model: parts of its parameters, and embedding rows of the same words."""

import dataclasses
import types

import chex
import jax
import numpy as np
import pytest

from xlj.checkpoints import reading
from xlj.checkpoints.stored_models import StoredModel
from xlj.config import Config, ConfigError, Model, Objectives, Transfer, parse
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.interop.vocabulary_matching import match
from xlj.objectives.supervised.options import SUPERVISED
from xlj.sharding import meshes, trees
from xlj.sharding.trees import named_leaves
from xlj.training import initialisation, loop, start, state, transfer

SPECIALS = ("<s>", "<pad>", "</s>", "<unk>")


def vocabulary(*pieces, markers="sentencepiece"):
    return types.SimpleNamespace(pieces=(*SPECIALS, *pieces, "<mask>"), markers=markers)


def params(size, seed, hidden=8):
    """Returns the parameters of a small model, on one device."""
    rng = np.random.default_rng(seed)
    shapes = {
        "embeddings": {"word": (size, hidden), "position": (9, hidden)},
        "layers": {"feed_forward": {"inner": {"kernel": (2, hidden, 4)}}},
        "prediction_head": {"dense": {"kernel": (hidden, hidden)}, "bias": (size,)},
    }
    tree = jax.tree.map(
        lambda s: rng.normal(size=s).astype(np.float32), shapes, is_leaf=lambda x: type(x) is tuple
    )
    mesh = meshes.one_device()
    return jax.device_put(tree, trees.shardings(tree, mesh))


def transfer_from(source, fresh, options, matches=None, init_std=0.02):
    config = Config(transfer=options, model=Model(init_std=init_std))
    stored = StoredModel("there", None, (), lambda: None, lambda mesh: source, {}, str)
    result = transfer.transfer_parameters(config, stored, source, fresh, ("en",), matches)
    return {name: np.asarray(leaf) for name, leaf in named_leaves(result).items()}


@pytest.mark.parametrize("parts", [("body", "embeddings"), ("body",), ("embeddings",)])
def test_selected_parts_are_copied_and_the_others_stay_newly_initialised(parts, capsys):
    source, fresh = params(7, 0), params(7, 1)
    result = transfer_from(source, fresh, Transfer(parts=parts))
    body = {"layers/feed_forward/inner/kernel", "prediction_head/dense/kernel"}
    origins = {
        name: source if ("body" if name in body else "embeddings") in parts else fresh
        for name in result
    }
    expected = {name: named_leaves(origin)[name] for name, origin in origins.items()}
    chex.assert_trees_all_equal(result, expected)
    assert ("transfer.parts" in capsys.readouterr().out) == (len(parts) == 1)


def test_rows_of_an_untied_output_table_are_copied_by_word():
    old = vocabulary("hund", "##e", "katze", markers="wordpiece")
    new = vocabulary("▁Katze", "e", "▁hund", "▁xyz")
    source, fresh = params(8, 0), params(9, 1)
    for tree in (source, fresh):
        tree["prediction_head"]["word"] = 2 * tree["embeddings"]["word"]
    result = transfer_from(source, fresh, Transfer(vocabulary="matched"), match(old, new))
    rows = np.array([0, 1, 2, 3, 6, 5, 4, 7])
    matched = [0, 1, 2, 3, 4, 5, 6, 8]
    expected = np.asarray(source["prediction_head"]["word"])[rows]
    np.testing.assert_array_equal(result["prediction_head/word"][matched], expected)
    body = transfer_from(
        source, fresh, Transfer(vocabulary="matched", parts=("body",)), match(old, new)
    )
    fresh_word = np.asarray(fresh["prediction_head"]["word"])
    np.testing.assert_array_equal(body["prediction_head/word"], fresh_word)


def test_embedding_rows_are_copied_by_word_to_another_vocabulary():
    old = vocabulary("hund", "##e", "katze", markers="wordpiece")
    new = vocabulary("▁Katze", "e", "▁hund", "▁xyz")
    source, fresh = params(8, 0), params(9, 1)
    result = transfer_from(
        source, fresh, Transfer(vocabulary="matched"), match(old, new), init_std=0.5
    )
    rows = [0, 1, 2, 3, 6, 5, 4, -1, 7]
    word, bias = (np.asarray(named_leaves(source)[n]) for n in transfer._BY_WORD[:2])
    for new_id, old_id in enumerate(rows):
        if old_id >= 0:
            np.testing.assert_array_equal(result["embeddings/word"][new_id], word[old_id])
            assert result["prediction_head/bias"][new_id] == bias[old_id]
    drawn = result["embeddings/word"][7]
    assert result["prediction_head/bias"][7] == 0 and 0.1 < drawn.std() < 1.5
    mean = transfer_from(
        source, fresh, Transfer(vocabulary="matched", unmatched="mean"), match(old, new)
    )["embeddings/word"][7]
    np.testing.assert_allclose(mean, word.mean(0), rtol=1e-5)


@pytest.mark.parametrize(
    "labels, same", [(("no", "yes"), True), (("yes", "no"), False), ((), False)]
)
def test_a_task_head_is_copied_only_if_its_labels_are_the_same(labels, same, capsys):
    source, fresh = ({**params(7, seed), "tagging_head": params(7, seed)["layers"]["feed_forward"]}
                    for seed in (0, 1))  # fmt: skip
    stored = StoredModel(
        "there", None, (), lambda: None, lambda mesh: source, {}, str, labels=("no", "yes")
    )
    config = Config(
        objectives=Objectives(options={"tagging": SUPERVISED["tagging"](labels=labels)})
    )
    result = transfer.transfer_parameters(config, stored, source, fresh, ())
    origin = source if same else fresh
    kernel = "tagging_head/inner/kernel"
    np.testing.assert_array_equal(named_leaves(result)[kernel], named_leaves(origin)[kernel])
    np.testing.assert_array_equal(result["embeddings"]["word"], source["embeddings"]["word"])
    output = capsys.readouterr().out
    assert (f"newly initialised: {kernel}" in output) == (f"not used: {kernel}" in output) != same


@pytest.mark.parametrize("layers", ["gelu_norm", "tanh"])
@pytest.mark.parametrize("has_head", [False, True])
def test_a_task_head_starts_from_the_head_for_masked_tokens_in_modernbert(layers, has_head, capsys):
    """A task head of the other model with the same labels goes first."""
    source, fresh = params(7, 0), params(7, 1)
    rng, device = np.random.default_rng(2), meshes.one_device().devices.flat[0]

    def with_norm(tree, **parts):
        norm = {"scale": rng.normal(size=8).astype(np.float32)}
        return tree | {"norm": jax.device_put(norm, device)} | parts

    source["prediction_head"] = with_norm(source["prediction_head"])
    masked = source["prediction_head"]
    output = {"kernel": jax.device_put(np.ones((8, 2), np.float32), device)}
    fresh["tagging_head"] = with_norm({"dense": fresh.pop("prediction_head")["dense"]},
                                      output=output)  # fmt: skip
    own = with_norm({"dense": {"kernel": -fresh["tagging_head"]["dense"]["kernel"]}}, output=output)
    if has_head:
        source["tagging_head"] = own
    stored = StoredModel(
        "there", None, (), lambda: None, lambda mesh: source, {}, str,
        labels=("no", "yes") if has_head else (),
    )  # fmt: skip
    task = SUPERVISED["tagging"](labels=("no", "yes"))
    config = Config(objectives=Objectives(options={"tagging": task}), model=Model(task_head=layers))
    result = transfer.transfer_parameters(config, stored, source, fresh, ())["tagging_head"]
    origin = own if has_head else masked if layers == "gelu_norm" else fresh["tagging_head"]
    for module in ("dense", "norm"):
        chex.assert_trees_all_equal(result[module], origin[module])
    chex.assert_trees_all_equal(result["output"], output)
    lines = capsys.readouterr().out
    assert ("from the head for masked tokens: tagging_head/dense/kernel, tagging_head/norm/scale"
            in lines) == (layers == "gelu_norm" and not has_head)  # fmt: skip
    assert ("newly initialised: tagging_head/output/kernel" in lines) == (origin is masked)
    assert ("prediction_head/dense" in lines) == (origin is not masked)  # not used
    assert "not used: prediction_head/bias" in lines or origin is not masked


def test_a_model_of_other_sizes_is_refused():
    with pytest.raises(ConfigError, match="embeddings/word, .*embeddings/position"):
        transfer_from(params(7, 0, hidden=16), params(7, 1), Transfer())


@pytest.mark.parametrize("name", ["en-de.tsv", "de-en.tsv"])
def test_dictionaries_of_either_direction_are_found(tmp_path, name):
    lines = {"en-de.tsv": "dog\thund\n", "de-en.tsv": "hund\tdog\n"}
    (tmp_path / name).write_text(lines[name])
    options = Transfer(vocabulary="matched", dictionaries=(f"{tmp_path}/{{pair}}.tsv",))
    old, new = vocabulary("▁dog"), vocabulary("▁hund")
    sources = transfer.matches_of(old, new, options, ("en", "de", "sw")).sources
    assert sources.ids.tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(ConfigError, match="dictionaries=.*no file for en with any of sw"):
        transfer.matches_of(old, new, options, ("en", "sw"))


@pytest.mark.parametrize(
    "rules, piece",
    [
        ("dictionary,exact,normalised,accents,place", "▁die"),
        ("exact,normalised,dictionary,place", "▁für"),
        ("exact,normalised,dictionary,accents", "▁und"),
    ],
)
def test_the_config_chooses_the_matching_rules(rules, piece, tmp_path):
    (tmp_path / "de-en.tsv").write_text("die\tthe\n")
    options = Transfer(vocabulary="matched", dictionaries=(f"{tmp_path}/{{pair}}.tsv",))
    changed = dataclasses.replace(options, rules=rules)
    old, new = vocabulary("▁die", "▁the", "▁fur", "und"), vocabulary("▁die", "▁für", "▁und")
    sources = [
        transfer.matches_of(old, new, chosen, ("en", "de")).sources for chosen in (options, changed)
    ]
    before, after = (
        [ids.tolist() for ids in np.split(rows.ids, rows.starts[1:])] for rows in sources
    )
    assert before[4:7] == [[4], [6], [7]]
    assert [new.pieces[i] for i, ids in enumerate(before) if ids != after[i]] == [piece]


def test_a_missing_dictionary_is_reported_before_rows_are_built(tiny, tmp_path):
    tiny.init_from, tiny.transfer.vocabulary = str(tmp_path / "model"), "matched"
    tiny.transfer.dictionaries = f"{tmp_path}/{{pair}}.tsv"
    source = types.SimpleNamespace(folder=tmp_path, model=parse(tiny).model, vocabulary=None)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(start.stored_models, "find", lambda *_: source)
        with pytest.raises(ConfigError, match="dictionaries=.*no file for en with any of de, sw"):
            start.prepare(parse(tiny), tmp_path / "run")


@pytest.mark.slow
def test_a_run_with_its_own_vocabulary_starts_from_another_model(tiny, store, tmp_path, capsys):
    tiny.train.steps, tiny.optimizer.learning_rate = 1, 0.0
    loop.train(start.prepare(parse(tiny), tmp_path / "first", store))
    tiny.init_from = str(tmp_path / "first")
    tiny.transfer.vocabulary = "matched"
    tiny.data.vocabulary_size = 300
    run = start.prepare(parse(tiny), tmp_path / "next")
    assert run.vocabulary.size == run.store.manifest.vocabulary_size == 300
    loop.train(run)
    assert "exact %" in capsys.readouterr().out
    mesh = meshes.one_device()
    old, new = (
        reading.restore_params(reading.find(tmp_path / name), mesh) for name in ("first", "next")
    )
    pieces = [Vocabulary.load(s.vocabulary_file).pieces for s in (store, run.store)]
    shared = [piece for piece in pieces[1] if piece in pieces[0]]
    assert len(shared) > 200
    rows = [[p.index(piece) for piece in shared] for p in pieces]
    np.testing.assert_array_equal(
        old["embeddings"]["word"][np.array(rows[0])], new["embeddings"]["word"][np.array(rows[1])]
    )
    old, new = named_leaves(old), named_leaves(new)
    for name in set(old) - set(transfer._BY_WORD):
        np.testing.assert_array_equal(old[name], new[name], err_msg=name)
    # The run resumes without the model that it started from.
    (tmp_path / "first").rename(tmp_path / "gone")
    tiny.train.steps = 2
    loop.train(start.prepare(parse(tiny), tmp_path / "next"))
    assert reading.steps(tmp_path / "next")[-1] == 2


@pytest.mark.slow
def test_the_state_of_a_run_with_matched_rows_is_sharded_like_any_other(tiny, store, tmp_path):
    tiny.train.steps = 1
    loop.train(start.prepare(parse(tiny), tmp_path / "first", store))
    tiny.init_from, tiny.transfer.vocabulary = str(tmp_path / "first"), "matched"
    tiny.mesh.fsdp = 4
    run = start.prepare(parse(tiny), tmp_path / "next", store)
    abstract = state.abstract(run.config, initialisation.Corpus.of(store), run.mesh)
    first = initialisation.first_state(run, abstract)
    for leaf, expected in zip(
        jax.tree.leaves(first.params), jax.tree.leaves(abstract.params), strict=True
    ):
        assert leaf.sharding.is_equivalent_to(expected.sharding, leaf.ndim)
