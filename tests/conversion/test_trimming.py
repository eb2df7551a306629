"""Trimmed models compute the vectors of the model for text whose pieces all remain."""

import dataclasses
import itertools
import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from xlj import convert, phrasebook
from xlj.checkpoints import stored_models, writing
from xlj.config import ConfigError, Model, build
from xlj.config.families import options_of
from xlj.conversion.exporting import export
from xlj.conversion.trimming import _describe_pattern, select_layers, select_options, trim
from xlj.data.text.cleaning import WORD
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.layout import UNK
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.families.modern import is_local
from xlj.inference import pretrained
from xlj.inference.pretrained import Pretrained
from xlj.interop.sentence_modules import SentenceModules
from xlj.models import encoder
from xlj.objectives.mlm.head import init_prediction
from xlj.retrieval.embedder import Embedder
from xlj.sharding.trees import named_leaves, nested

XLM_R = Model(layers=4, hidden=16, heads=2, intermediate=20, positions=66, init_std=0.3)
MODERN = Model(
    layers=7, hidden=16, heads=2, intermediate=12, positions=66, init_std=0.3,
    **options_of("modernbert") | {"local_attention": 4},
)  # fmt: skip


def text(language, start, stop):
    lines = (line for line in phrasebook.text_lines(language) if line)  # without document breaks
    return list(itertools.islice(lines, start, stop))


@pytest.fixture(scope="module")
def vocabulary():
    lines = {name: text(name, 0, 400) for name in ("en", "tr")}
    return Vocabulary(vocabulary_training.train(lines, {"en": 1, "tr": 1}, 700, 1.0))


def draw(model, size):
    """Returns random parameters, also of norms and biases."""
    rng = np.random.default_rng(3)

    def init():
        key = jax.random.key(0)
        params = encoder.init(key, model, size, 0)
        return params | {"prediction_head": init_prediction(key, model, size)}

    leaves = named_leaves(jax.eval_shape(init))
    return {
        name: rng.normal(1.0 * name.endswith("scale"), 0.3, leaf.shape).astype(np.float32)
        for name, leaf in leaves.items()
    }


@pytest.fixture
def folder(tmp_path, vocabulary):
    """A checkpoint of an XLM-R with a head for masked tokens and sentence modules."""
    modules = SentenceModules(("mean",), steps=(None,), settings={"prompts": {"q": "query: "}})
    params = nested(draw(XLM_R, vocabulary.size))
    config = build({"model": dataclasses.asdict(XLM_R)})
    more = {"sentence": modules.record()}
    writing.write_params(tmp_path / "old", params, config, vocabulary, [], more)
    for name in ("en", "tr"):
        (tmp_path / f"{name}.txt").write_text("\n".join(text(name, 0, 300 if name == "en" else 40)))
    return tmp_path


@pytest.fixture
def run(folder, call):
    def run(*flags, output="new"):
        arguments = ["trim", f"--checkpoint={folder}/old", f"--output={folder}/{output}", *flags]
        return call(convert.main, *arguments).out

    return run


def test_rows_are_copied_and_vectors_of_unchanged_text_are_equal_bit_for_bit(
    folder, run, vocabulary
):
    files = [f"{folder}/en.txt", f"{folder}/tr.txt"]
    printed = run("--text", *files, "--pieces=400")
    old, new = (pretrained.load(folder / name) for name in ("old", "new"))
    assert new.vocabulary.size == 400 and new.model == old.model and new.sentence == old.sentence
    place = {piece: i for i, piece in enumerate(vocabulary.pieces)}
    rows = [place[piece] for piece in new.vocabulary.pieces]
    assert rows[:4] == [0, 1, 2, 3] and rows[-1] == vocabulary.mask
    before, after = named_leaves(old.params), named_leaves(new.params)
    assert before.keys() == after.keys()
    for name, leaf in before.items():
        by_word = name in ("embeddings/word", "prediction_head/bias")
        np.testing.assert_array_equal(after[name], leaf[np.array(rows)] if by_word else leaf, name)
    lines = [line for line in text("en", 300, 800) if len(line) < 24]  # few shapes to compile
    ids = [each.vocabulary.encode_batch(lines) for each in (old, new)]
    kept = [i for i, line in enumerate(ids[0]) if UNK not in line and {*line} <= {*rows}]
    assert 20 < len(kept) < len(lines) - 20
    kept_lines = [lines[i] for i in kept]
    vectors = [Embedder(each).embed(kept_lines) for each in (old, new)]
    np.testing.assert_array_equal(*vectors)
    _check_report(printed, folder, old, new)


def _check_report(printed, folder, old, new):
    sizes = [sum(leaf.size for leaf in named_leaves(each.params).values()) for each in (old, new)]
    assert f"700 -> 400 ids, of which {sum(len(p) == 1 for p in new.vocabulary.pieces)} char" in (
        printed
    )
    assert f"{sizes[0]:,} -> {sizes[1]:,} parameters" in printed
    tests = {name: (folder / f"{name}.txt").read_text().split("\n")[::10] for name in ("en", "tr")}
    both = [Embedder(each).embed([*tests["en"], *tests["tr"]])[0] for each in (old, new)]
    cosines = np.split((both[0] * both[1]).sum(1), [len(tests["en"])])  # the vectors have length 1
    for (name, lines), of_lines in zip(tests.items(), cosines, strict=True):
        row = re.search(rf"^{name}.txt .*$", printed, re.M)[0].replace("->", "").split()
        before, after = (
            [
                [each.vocabulary.pieces[i] for i in ids]
                for ids in each.vocabulary.encode_batch(lines)
            ]
            for each in (old, new)
        )
        words = sum(1 for line in lines for _ in WORD.finditer(line))
        changed = sum(a != b for a, b in zip(before, after, strict=True))
        pieces = [f"{sum(map(len, split)) / words:.2f}" for split in (before, after)]
        cosine = [f"{of_lines.mean():.4f}", f"{of_lines.min():.4f}"]
        share = f"{100 * changed / len(lines):.1f}"
        assert row[1:] == [f"{len(lines)}", *pieces, "0.00", "0.00", share, *cosine]
        assert changed > 0


def test_the_export_of_a_trimmed_model_agrees(folder, run):
    run("--text", f"{folder}/en.txt", "--coverage=0.9", "--layers=1,3")
    export(str(folder / "new"), folder / "exported")
    new = stored_models.find(folder / "new")
    config = json.loads((folder / "exported/config.json").read_text())
    vocabulary, tensors = new.vocabulary(), load_file(folder / "exported/model.safetensors")
    assert config["vocab_size"] == vocabulary.size < 600 and config["num_hidden_layers"] == 2
    ids = [config[f"{name}_token_id"] for name in ("bos", "pad", "eos")]
    assert ids == [0, 1, 2]
    tokenizer = json.loads((folder / "exported/tokenizer.json").read_text())
    assert tokenizer["added_tokens"][-1]["id"] == vocabulary.mask
    assert (folder / "exported/sentencepiece.bpe.model").read_bytes() == vocabulary.model
    table = tensors["embeddings.word_embeddings.weight"]
    np.testing.assert_array_equal(table, np.asarray(new.leaves["embeddings/word"]))
    assert new.leaves["prediction_head/bias"].shape == (vocabulary.size,)
    assert json.loads((folder / "exported/modules.json").read_text())
    settings = json.loads((folder / "exported/config_sentence_transformers.json").read_text())
    assert settings["prompts"] == {"q": "query: "}


def test_layers_remain_in_order(folder, run):
    printed = run("--layers=0,3")
    old, new = (named_leaves(pretrained.load(folder / name).params) for name in ("old", "new"))
    for name, leaf in old.items():
        expected = leaf[np.array([0, 3])] if name.startswith("layers/") else leaf
        np.testing.assert_array_equal(new[name], expected, name)
    assert "4 -> 2 layers\n" in printed and " ids" not in printed


@pytest.mark.parametrize(
    "layers, every, full_layers, printed",
    [
        ((0, 2, 3, 5, 6), 2, (), "regular: every 2. layer has full attention, from layer 0"),
        ((0, 1, 3, 6), 3, ("0", "2", "3"),
         "irregular: layers 0, 2, 3 have full attention, all others are local"),
    ],
)  # fmt: skip
def test_other_layers_compute_as_if_the_removed_layers_returned_their_input(
    vocabulary, layers, every, full_layers, printed
):
    """In a pre-norm model, a layer whose output matrices are zero does not change its input."""
    params = {name: jnp.asarray(leaf) for name, leaf in draw(MODERN, vocabulary.size).items()}
    removed = np.setdiff1d(np.arange(MODERN.layers), layers)
    zeroed = params | {
        name: params[name].at[removed].set(0)
        for name in ("layers/attention/output/kernel", "layers/feed_forward/outer/kernel")
    }
    new = select_options(MODERN, layers)
    assert (new.full_attention_every, new.full_layers) == (every, full_layers)
    assert [is_local(new, i) for i in range(new.layers)] == [is_local(MODERN, i) for i in layers]
    smaller = Pretrained(select_layers(nested(params), MODERN, layers), new, vocabulary)
    assert _describe_pattern(smaller) == f"; {printed}"
    models = Pretrained(nested(zeroed), MODERN, vocabulary), smaller
    line = max(text("en", 0, 8), key=len)
    vectors = [Embedder(each, [each.model.layers]).embed([line]) for each in models]
    np.testing.assert_allclose(*vectors, atol=1e-5 * abs(vectors[0]).max())


@pytest.mark.parametrize(
    "flags, message",
    [
        ([], "nothing to trim; set --text with --pieces or --coverage, or --layers"),
        (["--pieces=300"], "--text: expected the text whose pieces remain"),
        (["--text=en.txt", "--pieces=300", "--coverage=0.9"], "are two ways to choose pieces"),
        (["--text=en.txt", "--characters=text", "--layers=0"], "--characters=text needs --pieces"),
        (["--text=en.txt", "--pieces=0"], "--pieces=0: expected at least 1"),
        (["--text=en.txt", "--coverage=1.1"], "--coverage=1.1: expected above 0 and at most 1"),
        (["--text=none.txt", "--coverage=0.9"], "none.txt"),
        (["--layers=0,x"], "'0,x': expected numbers of layers separated by commas, such as 0,2,4"),
        (["--layers=0,4"], "--layers=0,4: expected different layers of 0 to 3, in order"),
        (["--layers=1,0"], "--layers=1,0: expected different layers"),
        (["--layers=1,1"], "--layers=1,1: expected different layers"),
    ],
)
def test_wrong_flags_are_refused(run, monkeypatch, folder, flags, message):
    monkeypatch.chdir(folder)
    with pytest.raises(ConfigError, match=re.escape(message)):
        run(*flags)
    assert not (folder / "new").exists()


@pytest.mark.parametrize(
    "layers, message",
    [
        ((1, 2), "--layers=1,2: layer 0 must remain, because it is the only layer without a norm"),
        ((0, 1), "--layers=0,1: all of these layers are local; keep at least one layer with full"),
    ],
)
def test_layers_that_the_model_cannot_start_with_or_express_are_refused(layers, message):
    model = dataclasses.replace(MODERN, full_layers=("2",))
    with pytest.raises(ConfigError, match=message):
        select_options(model, layers)


@pytest.mark.parity
def test_transformers_loads_a_trimmed_model(folder, run):
    """The tokenizers of transformers, tokenizers and sentencepiece agree on 1,000 lines."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    import sentencepiece
    import tokenizers

    run("--text", f"{folder}/en.txt", f"{folder}/tr.txt", "--pieces=400", "--layers=0,2,3")
    export(str(folder / "new"), folder / "exported")
    vocabulary, exported = pretrained.load(folder / "new").vocabulary, str(folder / "exported")
    lines = text("en", 0, 600) + text("de", 0, 400)
    expected = [ids.tolist() for ids in vocabulary.encode_batch(lines)]
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    assert tokenizer(lines, add_special_tokens=False)["input_ids"] == expected
    alone = tokenizers.Tokenizer.from_file(f"{exported}/tokenizer.json")
    encoded = alone.encode_batch(lines, add_special_tokens=False)
    assert [each.ids for each in encoded] == expected
    pieces = sentencepiece.SentencePieceProcessor(f"{exported}/sentencepiece.bpe.model")
    assert [[i + 1 if i else UNK for i in ids] for ids in pieces.encode(lines)] == expected
    # The vectors equal those of the whole model with the same layers. The folder, which has
    # sentence modules, has no head.
    trim(str(folder / "old"), folder / "layers", layers=(0, 2, 3))
    export(str(folder / "layers"), folder / "whole")
    whole = pretrained.load(folder / "old").vocabulary
    place = {piece: i for i, piece in enumerate(whole.pieces)}
    rows = torch.tensor([place[piece] for piece in vocabulary.pieces])
    ids = torch.tensor([[0, *expected[0][:9], 2]])
    with torch.no_grad():
        small, large = (
            transformers.AutoModel.from_pretrained(str(path))(input_ids=tokens).last_hidden_state
            for path, tokens in ((exported, ids), (folder / "whole", rows[ids]))
        )
    torch.testing.assert_close(small, large, atol=1e-4, rtol=1e-5)
