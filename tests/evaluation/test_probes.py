"""Probes return what the commands print for the checkpoint, and do not change the run."""

import dataclasses
import functools
import json
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlj import align, phrasebook, retrieve
from xlj.checkpoints import reading
from xlj.config import ConfigError, Mesh, parse
from xlj.config.choices import AlignmentOptions
from xlj.data.rows import held_out_pairs
from xlj.data.rows.preparing import prepare_rows
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.distributed.preemption import Interrupted
from xlj.evaluation import probe_files, probes
from xlj.inference.pretrained import Pretrained
from xlj.models import encoder
from xlj.models.encoder import middle_layer
from xlj.sharding import meshes, trees
from xlj.training import loop, metrics, start
from xlj.training.state import State
from xlj.word_alignment import gold_alignments
from xlj.word_alignment.aligner import Aligner

SENTENCES, LAYER = 40, 2


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Line-aligned files of en-de and en-sw, and a TSV of words with gold links. Sentences have few
    different lengths, so that few programs are compiled."""
    folder = tmp_path_factory.mktemp("probed")
    for pair in ("en-de", "en-sw"):
        first, second = pair.split("-")
        drawn = [phrasebook.pair(phrasebook.draw(7, k), first, second) for k in range(500)]
        drawn = [found for found in drawn if 24 < len(found.source.text) < 36][:SENTENCES]
        for language, side in ((first, "source"), (second, "target")):
            text = "".join(f"{getattr(found, side).text}\n" for found in drawn)
            (folder / f"{pair}.{language}").write_text(text, encoding="utf-8")
        lines = []
        for found in drawn:
            sides = [" ".join(w.form for w in side.words) for side in (found.source, found.target)]
            links = " ".join(f"{i}-{j}" for i, j in sorted(found.alignment))
            lines.append("\t".join([*sides, links]) + "\n")
        (folder / f"{pair}.tsv").write_text("".join(lines), encoding="utf-8")
    return folder


@pytest.fixture
def probed(tiny, files):
    """`tiny` with one objective and all evaluations."""
    return with_everything_measured(tiny, files)


def with_everything_measured(tiny, files):
    tiny.objectives.tlm.batch_rows = 0
    tiny.evaluation.perplexity = True
    tiny.evaluation.retrieval.source = f"{files}/{{pair}}.{{source}}|{files}/{{pair}}.{{target}}"
    tiny.evaluation.alignment.source = f"{files}/none.{{pair}},{files}/{{pair}}.tsv"
    tiny.evaluation.retrieval.layer = tiny.evaluation.alignment.layer = LAYER
    return tiny


@dataclasses.dataclass
class Trained:
    """A run: its folder, the digests of its last parameters, and its metrics without times."""

    workdir: Path
    digests: dict
    lines: list


def make_probes(config, store):
    vocabulary = Vocabulary.load(store.vocabulary_file)
    return probes.make(config, probe_files.read(config), store, vocabulary)


def train(config, workdir, store, with_probes):
    made = make_probes(config, store)
    assert bool(made) == with_probes
    loop.train(start.prepare(config, workdir, store), made)
    lines = [
        {key: value for key, value in line.items() if not key.startswith("time/")}
        for line in metrics.read(workdir)
    ]
    return Trained(workdir, reading.find(workdir).meta["digests"], lines)


@pytest.fixture(scope="module", params=[(1, 1), (4, 2)], ids=["1 device", "4 devices"])
def both(request, make_tiny, files, tmp_path_factory):
    """Two runs, with probes and without, that are otherwise equal."""
    devices, fsdp = request.param
    config, folder = with_everything_measured(make_tiny(), files), tmp_path_factory.mktemp("runs")
    store = prepare_rows(parse(config))
    config.mesh.fsdp = fsdp
    some = functools.partial(meshes.make_mesh, devices=jax.devices()[:devices])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(meshes, "make_mesh", some)
        probed = train(parse(config), folder / "with", store, with_probes=True)
        config.evaluation = type(config.evaluation)()
        return probed, train(parse(config), folder / "without", store, with_probes=False)


@pytest.mark.slow
def test_a_run_with_probes_ends_as_the_run_without(both):
    probed, plain = both
    assert probed.digests == plain.digests
    pairs = zip(probed.lines, plain.lines, strict=True)
    assert [{key: a[key] for key in b} for a, b in pairs] == plain.lines


@pytest.mark.slow
def test_probes_add_retrieval_and_alignment_of_each_pair_and_of_all(both):
    probed, plain = both
    pairs = zip(probed.lines, plain.lines, strict=True)
    added = [{key for key in a if key not in b} for a, b in pairs]
    measured = [{key for key in line if not key.endswith("perplexity")} for line in added if line]
    names = ("/en-de", "/en-sw", "")
    assert measured == 3 * [
        {f"eval/sentence_retrieval{name}/accuracy" for name in names}
        | {f"eval/word_alignment{name}/aer" for name in names}
    ]


@pytest.mark.slow
def test_perplexity_is_that_of_each_loss(both):
    compared = 0
    for line in both[0].lines:
        for loss, value in line.items():
            if loss.startswith("eval/") and loss.endswith("/loss"):
                assert line[loss.removesuffix("loss") + "perplexity"] == np.exp(value)
                compared += 1
    assert compared


@pytest.mark.slow
def test_probes_return_what_the_commands_print_for_the_checkpoint(both, files, call):
    probed, _ = both
    last = probed.lines[-1]
    arguments = [f"--checkpoint={probed.workdir}", f"--layer={LAYER}"]
    sides = [f"--source={files}/en-sw.en", f"--target={files}/en-sw.sw"]
    found = json.loads(call(retrieve.main, *arguments, *sides).out)
    assert found["sentences"] == SENTENCES
    directions = found["source_to_target"], found["target_to_source"]
    assert last["eval/sentence_retrieval/en-sw/accuracy"] == np.mean(directions)
    pairs = [f"--input={files}/en-sw.tsv", "--gold"]
    found = json.loads(call(align.main, *arguments, *pairs).out)
    assert round(last["eval/word_alignment/en-sw/aer"], 6) == found["aer"]
    assert 0 < found["aer"] < 1


def test_held_out_pairs_are_found_by_their_copies(tiny, store):
    """Identical sides give accuracy 1; unrelated sides give almost 0."""
    tiny.evaluation.retrieval.source = "held_out"
    config = parse(tiny)
    vocabulary = Vocabulary.load(store.vocabulary_file)
    first, second = held_out_pairs.read(store, "en-de", 200)
    count = len(first.lengths)
    assert count > 20
    made = make_probes(config, store)
    state = random_state(config)
    found = made[0](state)
    assert len(made) == 1 and set(found) == {
        f"eval/sentence_retrieval{pair}/accuracy" for pair in ("/en-de", "/en-sw", "")
    }
    mean = np.mean(
        [found[f"eval/sentence_retrieval/{pair}/accuracy"] for pair in ("en-de", "en-sw")]
    )
    assert found["eval/sentence_retrieval/accuracy"] == mean

    def accuracy(sides):
        measure = probes.retrieval(config.model, vocabulary, -1, {"x": sides})
        return measure(state)["eval/sentence_retrieval/accuracy"]

    assert accuracy((first, first)) == 1
    assert accuracy((first, second)) == found["eval/sentence_retrieval/en-de/accuracy"] < 0.6
    shifted = second.select(np.arange(count) > 0), first.select(np.arange(count) < count - 1)
    assert accuracy(shifted) < 0.2


def random_state(config):
    return State(_random_params(config.model, config.data.vocabulary_size), None, {}, None)


@functools.cache
def _random_params(model, vocabulary_size):
    return jax.jit(lambda: encoder.init(jax.random.key(0), model, vocabulary_size, 1))()


def test_a_probe_reads_the_parameters_where_they_are_and_keeps_them(probed, store):
    probed.evaluation.alignment.sentences = 8
    config = parse(probed)
    state = random_state(config)
    before = jax.tree.map(np.array, state.params)
    measures = make_probes(config, store)
    first, again = ([measure(state) for measure in measures] for _ in range(2))
    assert first == again
    chex.assert_trees_all_equal(state.params, before)
    mesh = meshes.make_mesh(dataclasses.replace(config, mesh=Mesh(replica=2, fsdp=4)))
    spread = jax.device_put(state.params, trees.shardings(state.params, mesh))
    assert not spread["embeddings"]["word"].is_fully_replicated
    assert [measure(dataclasses.replace(state, params=spread)) for measure in measures] == first
    zero = State(jax.tree.map(jnp.zeros_like, state.params), None, {}, None)
    other = [measure(zero) for measure in measures]
    assert [found != same for found, same in zip(other, first, strict=True)] == [True, True]


def test_a_probe_can_be_interrupted_between_batches_and_pairs(probed, store):
    probed.evaluation.alignment.sentences = 8
    config = parse(probed)
    state = random_state(config)
    made = make_probes(config, store)
    for measure, least in zip(made, (3, 1), strict=True):
        asked = []
        measure(state, lambda *_, asked=asked: asked.append(1))
        assert len(asked) >= least

        def stop(*_):
            raise Interrupted

        with pytest.raises(Interrupted):
            measure(state, stop)


def test_the_layer_is_by_default_two_thirds_of_the_depth(probed, store):
    state = random_state(parse(probed))

    probed.evaluation.alignment.sentences = 8

    def measured(layer):
        probed.evaluation.retrieval.layer = probed.evaluation.alignment.layer = layer
        config = parse(probed)
        made = make_probes(config, store)
        return [measure(state) for measure in made]

    assert measured(-1) == measured(middle_layer(2)) != measured(2)
    assert measured(0) not in (measured(-1), measured(1), measured(2))


def test_alignment_takes_method_encoding_and_prior(probed, store):
    probed.evaluation.alignment.sentences = 8
    state = random_state(parse(probed))

    def measured(**options):
        probed.evaluation.alignment.update(options)
        config = parse(probed)
        files = probe_files.read(config)
        found = make_probes(config, store)[1](state)
        asked = config.evaluation.alignment
        encoder = Pretrained(state.params, config.model, Vocabulary.load(store.vocabulary_file))
        options = AlignmentOptions(asked.method, asked.encode, LAYER, asked.prior)
        aligner = Aligner(encoder, options)
        pairs = files.gold["en-sw"]
        links = [of[0] for of in aligner.align(pairs)]
        wanted = gold_alignments.score(links, [pair.gold for pair in pairs]).aer
        assert found["eval/word_alignment/en-sw/aer"] == wanted
        return wanted

    found = [measured(), measured(method="argmax"), measured(encode="apart"), measured(prior=3.0)]
    assert len(set(found)) == 4


def test_a_sample_is_fixed_and_in_order(probed, files):
    probed.evaluation.retrieval.sentences = probed.evaluation.alignment.sentences = 7
    found, again = probe_files.read(parse(probed)), probe_files.read(parse(probed))
    assert found == again
    first, second = found.parallel["en-de"]
    lines = [(files / f"en-de.{side}").read_text("utf-8").splitlines() for side in ("en", "de")]
    rows = list(zip(*lines, strict=True))
    places = [rows.index(row) for row in zip(first, second, strict=True)]
    assert len(places) == 7 and places == sorted(places) and places != list(range(7))
    numbers = [int(pair.where.rpartition(":")[2]) for pair in found.gold["en-sw"]]
    assert len(numbers) == 7 and numbers == sorted(numbers)


def test_a_tsv_and_separate_links_are_the_same(probed, files, tmp_path):
    wanted = probe_files.read(parse(probed))
    for pair in ("en-de", "en-sw"):
        lines = [
            (files / f"{pair}.{side}").read_text("utf-8").splitlines() for side in pair.split("-")
        ]
        text = "".join("\t".join(row) + "\n" for row in zip(*lines, strict=True))
        (tmp_path / f"{pair}.tsv").write_text(text, encoding="utf-8")
        rows = [row.split("\t") for row in (files / f"{pair}.tsv").read_text("utf-8").splitlines()]
        (tmp_path / f"{pair}.links").write_text("".join(f"{row[2]}\n" for row in rows))
    probed.evaluation.retrieval.source = f"{tmp_path}/{{pair}}.tsv"
    probed.evaluation.alignment.source = f"{files}/{{pair}}.tsv|{tmp_path}/{{pair}}.links"
    assert probe_files.read(parse(probed)) == wanted


def test_bad_files_are_named(probed, files, tmp_path):
    def refused(message):
        with pytest.raises(ConfigError, match=message):
            probe_files.read(parse(probed))

    alignment, retrieval = probed.evaluation.alignment, probed.evaluation.retrieval
    alignment.source = f"{files}/en-de.tsv"
    refused(r"evaluation\.alignment\.source: en-de and en-sw have the same file .*en-de\.tsv")
    alignment.source = f"{files}/{{par}}.tsv"
    refused(r"evaluation\.alignment\.source=.*unknown placeholder {par}")
    alignment.source, alignment.pairs = f"{files}/{{pair}}.tsv", "en-de,en-zh"
    refused(r"evaluation\.alignment\.source has no file for en-zh; tried .*en-zh\.tsv.*\.pairs")
    alignment.pairs = "ende"
    refused(r"evaluation\.alignment\.pairs=ende: a pair must be")
    alignment.pairs = "en-de"
    alignment.source = f"{files}/{{pair}}.tsv|{files}/{{pair}}.en"
    refused(r"en-de\.en:1: .* is not a link|en-de\.en:1: .*expected `id source target")
    links = tmp_path / "links"
    links.write_text("0-0\n")
    alignment.source = f"{files}/{{pair}}.tsv|{links}"
    refused(rf"links has gold links for 1 sentence pairs, but .* has {SENTENCES} pairs")
    links.write_text("0p0\n" * SENTENCES)
    refused("has no sure gold link")
    (tmp_path / "one").write_text("a\n")
    retrieval.pairs, retrieval.source = "en-de", f"{files}/en-de.de|{tmp_path}/one"
    refused(rf"en-de\.de has {SENTENCES} sentences, but .*one has 1")
    retrieval.source = f"{tmp_path}/one"
    refused(r"one:1: 1 columns; expected two sentences")
    retrieval.source = f"{tmp_path}/one|{tmp_path}/one"
    refused("one has fewer than two sentence pairs")
    retrieval.source = "a|b|c"
    refused("has no file for en-de; tried a|b|c")
