"""Probes measure what the commands print for the same checkpoint, and do not change a run.

Held-out pairs are read from rows unchanged, without repeated sentences, and a sample of them is
always the same.
"""

import dataclasses
import functools
import json
from pathlib import Path

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from xlj import align, phrasebook, retrieve, score, search
from xlj.checkpoints import metrics, reading
from xlj.config import ConfigError, Mesh, default, parse
from xlj.config.choices import AlignmentOptions
from xlj.data.rows.preparing import prepare_rows
from xlj.data.tokenizer.layout import BOS, EOS, PAD, Ragged
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.distributed.preemption import Interrupted
from xlj.evaluation import bitext, probes, sts
from xlj.evaluation.metrics import ranking_scores
from xlj.inference.pretrained import Pretrained
from xlj.models import encoder
from xlj.models.encoder import middle_layer
from xlj.models.segments import whole_examples
from xlj.retrieval import beir, changed_sentences
from xlj.retrieval.embedder import Embedder
from xlj.sharding import meshes, trees
from xlj.training import loop, start
from xlj.training.state import State
from xlj.word_alignment import gold_alignments
from xlj.word_alignment.aligner import Aligner

SENTENCES, LAYER = 40, 2


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Line-aligned files of en-de and en-sw, and a TSV of words with gold links.

    Sentences have few different lengths, so that few programs are compiled.
    """
    folder = tmp_path_factory.mktemp("probed")
    for pair in ("en-de", "en-sw"):
        first, second = pair.split("-")
        examples = [phrasebook.pair(phrasebook.draw(7, k), first, second) for k in range(500)]
        examples = [example for example in examples if 24 < len(example.source.text) < 36][
            :SENTENCES
        ]
        for language, side in ((first, "source"), (second, "target")):
            text = "".join(f"{getattr(example, side).text}\n" for example in examples)
            (folder / f"{pair}.{language}").write_text(text, encoding="utf-8")
        lines = []
        for example in examples:
            sides = [
                " ".join(w.form for w in side.words) for side in (example.source, example.target)
            ]
            links = " ".join(f"{i}-{j}" for i, j in sorted(example.alignment))
            lines.append("\t".join([*sides, links]) + "\n")
        (folder / f"{pair}.tsv").write_text("".join(lines), encoding="utf-8")
    sides = [(folder / f"en-de.{x}").read_text("utf-8").splitlines() for x in ("en", "de")]
    pairs = enumerate(zip(*sides, strict=True))
    rows = [f"{first}\t{second}\t{k * 7 % 11 / 2}\n" for k, (first, second) in pairs]
    (folder / "sts.de").write_text("".join(rows), encoding="utf-8")
    write_search_set(folder / "search.de", *sides)
    return folder


def write_search_set(folder, queries, documents):
    """Writes a search set in which document i answers query i, and document i + 1 does in part."""
    (folder / "qrels").mkdir(parents=True)
    for name, texts in (("queries", queries), ("corpus", documents)):
        lines = [json.dumps({"_id": f"{k}", "text": text}) for k, text in enumerate(texts)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines), "utf-8")
    grades = [f"{k}\t{k}\t2\n{k}\t{k + 1}\t1\n" for k in range(len(queries) - 1)]
    text = "".join(["query-id\tcorpus-id\tscore\n", *grades])
    (folder / "qrels/dev.tsv").write_text(text, "utf-8")


@pytest.fixture
def probed_config(tiny, files):
    """The config `tiny` without the objective tlm, and with all evaluations."""
    return enable_all_evaluations(tiny, files)


def enable_all_evaluations(tiny, files):
    tiny.objectives.tlm.batch_size = 0
    tiny.evaluation.perplexity = True
    tiny.evaluation.retrieval.source = f"{files}/{{pair}}.{{source}}|{files}/{{pair}}.{{target}}"
    tiny.evaluation.alignment.source = f"{files}/none.{{pair}},{files}/{{pair}}.tsv"
    tiny.evaluation.retrieval.layer = tiny.evaluation.alignment.layer = LAYER
    return tiny


def enable_other_evaluations(config, files):
    config.evaluation.retrieval.changed = "numbers"
    config.evaluation.sts.source, config.evaluation.sts.languages = (
        f"{files}/sts.{{language}}",
        "de",
    )
    config.evaluation.search.source, config.evaluation.search.languages = (
        f"{files}/search.{{language}}",
        "de",
    )
    config.evaluation.search.split = "dev"
    config.evaluation.sts.layer = config.evaluation.search.layer = LAYER


@dataclasses.dataclass
class Trained:
    """A run: its folder, digests of its last parameters, and its metrics without durations."""

    workdir: Path
    digests: dict
    lines: list


def make_probes(config, store):
    vocabulary = Vocabulary.load(store.vocabulary_file)
    return probes.make(config, probes.read_files(config), store, vocabulary)


def train(config, workdir, store, with_probes):
    run_probes = make_probes(config, store)
    assert bool(run_probes) == with_probes
    loop.train(start.prepare(config, workdir, store), run_probes)
    lines = [
        {key: value for key, value in line.items() if not key.startswith("time/")}
        for line in metrics.read(workdir)
    ]
    return Trained(workdir, reading.find(workdir).meta["digests"], lines)


@pytest.fixture(scope="module", params=[(1, 1), (4, 2)], ids=["1 device", "4 devices"])
def both_runs(request, make_tiny, files, tmp_path_factory):
    """A run with probes, and the same run without probes."""
    devices, fsdp = request.param
    config, folder = enable_all_evaluations(make_tiny(), files), tmp_path_factory.mktemp("runs")
    enable_other_evaluations(config, files)
    store = prepare_rows(parse(config))
    config.mesh.fsdp = fsdp
    make_smaller_mesh = functools.partial(meshes.make_mesh, devices=jax.devices()[:devices])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(meshes, "make_mesh", make_smaller_mesh)
        run_with_probes = train(parse(config), folder / "with", store, with_probes=True)
        config.evaluation = type(config.evaluation)()
        return run_with_probes, train(parse(config), folder / "without", store, with_probes=False)


@pytest.mark.slow
def test_probes_do_not_change_the_parameters_and_metrics_of_a_run(both_runs):
    run_with_probes, run_without = both_runs
    assert run_with_probes.digests == run_without.digests
    line_pairs = zip(run_with_probes.lines, run_without.lines, strict=True)
    assert [{key: a[key] for key in b} for a, b in line_pairs] == run_without.lines


@pytest.mark.slow
def test_probes_add_metrics_for_each_language_pair_and_the_mean(both_runs):
    run_with_probes, run_without = both_runs
    line_pairs = zip(run_with_probes.lines, run_without.lines, strict=True)
    added = [{key for key in a if key not in b} for a, b in line_pairs]
    measured = [{key for key in line if not key.endswith("perplexity")} for line in added if line]
    names = ("/en-de", "/en-sw", "")
    measures = ("accuracy", "f1", "xsim", "xsimpp")
    assert measured == 3 * [
        {f"eval/sentence_retrieval{name}/{measure}" for name in names for measure in measures}
        | {
            f"eval/word_alignment{name}/{measure}"
            for name in names
            for measure in ("aer", "precision", "links_a_word")
        }
        | {f"eval/sts{name}/{key}" for name in ("/de", "") for key in ("spearman", "pearson")}
        | {
            f"eval/search{name}/{key}@10"
            for name in ("/de", "")
            for key in ("ndcg", "mrr", "recall")
        }
    ]


@pytest.mark.slow
def test_perplexities_are_computed_from_the_losses(both_runs):
    compared = 0
    for line in both_runs[0].lines:
        for loss, value in line.items():
            if loss.startswith("eval/") and loss.endswith("/loss"):
                assert line[loss.removesuffix("loss") + "perplexity"] == np.exp(value)
                compared += 1
    assert compared


@pytest.mark.slow
def test_probes_return_what_the_commands_print_for_the_checkpoint(both_runs, files, call):
    run_with_probes, _ = both_runs
    last = run_with_probes.lines[-1]
    arguments = [f"--checkpoint={run_with_probes.workdir}", f"--layer={LAYER}"]
    sides = [f"--source={files}/en-sw.en", f"--target={files}/en-sw.sw"]
    printed = json.loads(call(retrieve.main, *arguments, *sides).out)
    assert printed["sentences"] == SENTENCES
    directions = printed["source_to_target"], printed["target_to_source"]
    assert last["eval/sentence_retrieval/en-sw/accuracy"] == np.mean(directions)
    for name in ("f1", "xsim"):
        both = [printed[f"{name}_{way}"] for way in ("source_to_target", "target_to_source")]
        assert last[f"eval/sentence_retrieval/en-sw/{name}"] == np.mean(both)
    scores = Path(run_with_probes.workdir.parent, "scores.json")
    of_set = [f"--set={files}/en-sw.{{language}}", "--languages=en,sw", f"--json={scores}"]
    call(retrieve.main, *arguments, *of_set, "--changed=numbers")
    rows = {row["source"]: row for row in json.loads(scores.read_text())["pairs"]}
    assert last["eval/sentence_retrieval/en-sw/xsimpp"] == rows["sw"]["xsimpp"]
    printed = json.loads(call(score.main, *arguments, f"--input={files}/sts.de", "--gold").out)
    assert last["eval/sts/de/spearman"] == pytest.approx(printed["spearman"])
    assert last["eval/sts/pearson"] == pytest.approx(printed["pearson"])
    searched = [f"--data={files}/search.de", "--split=dev", "--cutoffs=10"]
    printed = json.loads(call(search.main, *arguments, *searched).out)
    for name in ("ndcg@10", "mrr@10", "recall@10"):
        assert last[f"eval/search/de/{name}"] == last[f"eval/search/{name}"] == printed[name] > 0
    pairs = [f"--input={files}/en-sw.tsv", "--gold"]
    printed = json.loads(call(align.main, *arguments, *pairs).out)
    assert round(last["eval/word_alignment/en-sw/aer"], 6) == printed["aer"]
    assert 0 < printed["aer"] < 1


def test_retrieval_measures_the_accuracy_on_held_out_pairs(tiny, store):
    """Identical sides give accuracy 1; unrelated sides give almost 0."""
    tiny.evaluation.retrieval.source = "held_out"
    config = parse(tiny)
    vocabulary = Vocabulary.load(store.vocabulary_file)
    first, second = probes.read_held_out_pairs(store, "en-de", 200)
    count = len(first.lengths)
    assert count > 20
    measures = make_probes(config, store)
    state = random_state(config)
    accuracies = measures[0](state)
    assert len(measures) == 1 and set(accuracies) == {
        f"eval/sentence_retrieval{pair}/{measure}"
        for pair in ("/en-de", "/en-sw", "")
        for measure in ("accuracy", "f1", "xsim")
    }
    mean = np.mean(
        [accuracies[f"eval/sentence_retrieval/{pair}/accuracy"] for pair in ("en-de", "en-sw")]
    )
    assert accuracies["eval/sentence_retrieval/accuracy"] == mean

    def accuracy(sides):
        measure = probes.retrieval(config.model, vocabulary, -1, {"x": sides})
        return measure(state)["eval/sentence_retrieval/accuracy"]

    assert accuracy((first, first)) == 1
    assert accuracy((first, second)) == accuracies["eval/sentence_retrieval/en-de/accuracy"] < 0.6
    shifted = second.select(np.arange(count) > 0), first.select(np.arange(count) < count - 1)
    assert accuracy(shifted) < 0.2


def test_similarity_search_and_changed_sentences_equal_the_library(tiny, store, files):
    tiny.evaluation.retrieval.source = f"{files}/{{pair}}.{{source}}|{files}/{{pair}}.{{target}}"
    tiny.evaluation.retrieval.layer, tiny.evaluation.retrieval.pairs = LAYER, "en-de"
    enable_other_evaluations(tiny, files)
    tiny.evaluation.sts.sentences = tiny.evaluation.search.queries = 30
    config = parse(tiny)
    state, read = random_state(config), probes.read_files(config)
    metrics = {}
    for measure in make_probes(config, store):
        metrics |= measure(state)
    vocabulary = Vocabulary.load(store.vocabulary_file)
    embedder = Embedder(Pretrained(state.params, config.model, vocabulary), [LAYER], "mean")
    english, german = read.parallel["en-de"]
    changed = changed_sentences.of_sources(["numbers"], english)
    assert read.changed == {"en-de": changed}
    texts = english, german, [each.text for each in changed]
    vectors = [embedder.embed(text)[0] for text in texts]
    expected = bitext.score_plus_plus(vectors[1], vectors[0], english, changed, vectors[2])
    assert metrics["eval/sentence_retrieval/en-de/xsimpp"] == expected.error > 0
    both = bitext.score(bitext.search(*vectors[:2]), (english, german))
    for number, name in enumerate(bitext.Scores._fields):
        assert metrics[f"eval/sentence_retrieval/en-de/{name}"] == np.mean(both, 0)[number]
    rated = read.rated["de"]
    assert len(rated.pairs) == 30
    sides = [embedder.embed(side)[0] for side in zip(*rated.pairs, strict=True)]
    cosines = [float(a @ b / np.linalg.norm(a) / np.linalg.norm(b)) for a, b in zip(*sides)]  # noqa: B905
    correlations = sts.correlate(cosines, rated.scores)
    assert metrics["eval/sts/de/spearman"] == pytest.approx(correlations.spearman)
    assert metrics["eval/sts/pearson"] == pytest.approx(correlations.pearson, abs=1e-5)
    judged = read.judged["de"]
    assert len(judged.queries) == 30 and len(judged.judgements) == SENTENCES - 1
    run = beir.run_of(judged, beir.rank(judged, embedder, embedder, 10))
    of_queries = ranking_scores(run, judged.judgements, (10,)).values()
    assert metrics["eval/search/de/ndcg@10"] == np.mean([each["ndcg@10"] for each in of_queries])
    assert 0 < metrics["eval/search/recall@10"] < 1


def random_state(config):
    return State(_random_params(config.model, config.data.vocabulary_size), None, {}, None)


@functools.cache
def _random_params(model, vocabulary_size):
    return jax.jit(lambda: encoder.init(jax.random.key(0), model, vocabulary_size, 1))()


def test_probes_work_on_sharded_parameters_and_do_not_change_parameters(probed_config, store):
    probed_config.evaluation.alignment.sentences = 8
    config = parse(probed_config)
    state = random_state(config)
    before = jax.tree.map(np.array, state.params)
    measures = make_probes(config, store)
    first, again = ([measure(state) for measure in measures] for _ in range(2))
    assert first == again
    chex.assert_trees_all_equal(state.params, before)
    mesh = meshes.make_mesh(dataclasses.replace(config, mesh=Mesh(replica=2, fsdp=4)))
    sharded = jax.device_put(state.params, trees.shardings(state.params, mesh))
    assert not sharded["embeddings"]["word"].is_fully_replicated
    assert [measure(dataclasses.replace(state, params=sharded)) for measure in measures] == first
    zeros = State(jax.tree.map(jnp.zeros_like, state.params), None, {}, None)
    zero_scores = [measure(zeros) for measure in measures]
    assert [new != old for new, old in zip(zero_scores, first, strict=True)] == [True, True]


def test_a_probe_can_be_interrupted_between_batches_and_pairs(probed_config, store):
    probed_config.evaluation.alignment.sentences = 8
    config = parse(probed_config)
    state = random_state(config)
    measures = make_probes(config, store)
    for measure, min_checks in zip(measures, (3, 1), strict=True):
        checks = []
        measure(state, lambda *_, checks=checks: checks.append(1))
        assert len(checks) >= min_checks

        def stop(*_):
            raise Interrupted

        with pytest.raises(Interrupted):
            measure(state, stop)


def test_the_default_layer_is_at_two_thirds_of_the_depth(probed_config, store):
    state = random_state(parse(probed_config))

    probed_config.evaluation.alignment.sentences = 8

    def measured(layer):
        probed_config.evaluation.retrieval.layer = probed_config.evaluation.alignment.layer = layer
        config = parse(probed_config)
        measures = make_probes(config, store)
        return [measure(state) for measure in measures]

    assert measured(-1) == measured(middle_layer(2)) != measured(2)
    assert measured(0) not in (measured(-1), measured(1), measured(2))


def test_the_alignment_probe_uses_the_configured_method_encoding_and_prior(probed_config, store):
    probed_config.evaluation.alignment.sentences = 8
    state = random_state(parse(probed_config))

    def measured(**options):
        probed_config.evaluation.alignment.update(options)
        config = parse(probed_config)
        files = probes.read_files(config)
        scores = make_probes(config, store)[1](state)
        section = config.evaluation.alignment
        encoder = Pretrained(state.params, config.model, Vocabulary.load(store.vocabulary_file))
        options = AlignmentOptions(section.method, section.encode, LAYER, section.prior)
        aligner = Aligner(encoder, options)
        pairs = files.gold["en-sw"]
        links = [layers[0] for layers in aligner.align(pairs)]
        expected = gold_alignments.score(links, [pair.gold for pair in pairs])
        assert scores["eval/word_alignment/en-sw/aer"] == expected.aer
        assert scores["eval/word_alignment/en-sw/precision"] == expected.precision
        words = sum(len(side) for pair in pairs for side in pair[1:3])
        count = scores["eval/word_alignment/en-sw/links_a_word"] * words
        assert count == pytest.approx(2 * sum(map(len, links)))
        return expected.aer

    rates = [measured(), measured(method="match"), measured(encode="together"), measured(prior=3.0)]
    assert len(set(rates)) == 4


def test_samples_are_always_the_same_and_in_the_order_of_the_file(probed_config, files):
    probed_config.evaluation.retrieval.sentences = probed_config.evaluation.alignment.sentences = 7
    sample, again = probes.read_files(parse(probed_config)), probes.read_files(parse(probed_config))
    assert sample == again
    first, second = sample.parallel["en-de"]
    lines = [(files / f"en-de.{side}").read_text("utf-8").splitlines() for side in ("en", "de")]
    rows = list(zip(*lines, strict=True))
    places = [rows.index(row) for row in zip(first, second, strict=True)]
    assert len(places) == 7 and places == sorted(places) and places != list(range(7))
    numbers = [int(pair.where.rpartition(":")[2]) for pair in sample.gold["en-sw"]]
    assert len(numbers) == 7 and numbers == sorted(numbers)


def test_one_tsv_and_separate_files_give_the_same_pairs(probed_config, files, tmp_path):
    expected = probes.read_files(parse(probed_config))
    for pair in ("en-de", "en-sw"):
        lines = [
            (files / f"{pair}.{side}").read_text("utf-8").splitlines() for side in pair.split("-")
        ]
        text = "".join("\t".join(row) + "\n" for row in zip(*lines, strict=True))
        (tmp_path / f"{pair}.tsv").write_text(text, encoding="utf-8")
        rows = [row.split("\t") for row in (files / f"{pair}.tsv").read_text("utf-8").splitlines()]
        (tmp_path / f"{pair}.links").write_text("".join(f"{row[2]}\n" for row in rows))
    probed_config.evaluation.retrieval.source = f"{tmp_path}/{{pair}}.tsv"
    probed_config.evaluation.alignment.source = f"{files}/{{pair}}.tsv|{tmp_path}/{{pair}}.links"
    assert probes.read_files(parse(probed_config)) == expected


def test_errors_name_the_bad_file_or_key(probed_config, files, tmp_path):
    def assert_refused(message):
        with pytest.raises(ConfigError, match=message):
            probes.read_files(parse(probed_config))

    alignment, retrieval = probed_config.evaluation.alignment, probed_config.evaluation.retrieval
    alignment.source = f"{files}/en-de.tsv"
    assert_refused(
        r"evaluation\.alignment\.source: en-de and en-sw have the same file .*en-de\.tsv"
    )
    alignment.source = f"{files}/{{par}}.tsv"
    assert_refused(r"evaluation\.alignment\.source=.*unknown placeholder {par}")
    alignment.source, alignment.pairs = f"{files}/{{pair}}.tsv", "en-de,en-zh"
    assert_refused(
        r"evaluation\.alignment\.source has no file for en-zh; tried .*en-zh\.tsv.*\.pairs"
    )
    alignment.pairs = "ende"
    assert_refused(r"evaluation\.alignment\.pairs=ende: a pair must be")
    alignment.pairs = "en-de"
    alignment.source = f"{files}/{{pair}}.tsv|{files}/{{pair}}.en"
    assert_refused(r"en-de\.en:1: .* is not a link|en-de\.en:1: .*expected `id source target")
    links = tmp_path / "links"
    links.write_text("0-0\n")
    alignment.source = f"{files}/{{pair}}.tsv|{links}"
    assert_refused(rf"links has gold links for 1 sentence pairs, but .* has {SENTENCES} pairs")
    links.write_text("0p0\n" * SENTENCES)
    assert_refused("has no sure gold link")
    (tmp_path / "one").write_text("a\n")
    retrieval.pairs, retrieval.source = "en-de", f"{files}/en-de.de|{tmp_path}/one"
    assert_refused(rf"en-de\.de has {SENTENCES} sentences, but .*one has 1")
    retrieval.source = f"{tmp_path}/one"
    assert_refused(r"one:1: 1 columns; expected source and target")
    retrieval.source = f"{tmp_path}/one|{tmp_path}/one"
    assert_refused("one has fewer than two sentence pairs")
    retrieval.source = "a|b|c"
    assert_refused("has no file for en-de; tried a|b|c")


def test_errors_of_other_evaluations_name_the_key(tiny, files):
    def assert_refused(message):
        with pytest.raises(ConfigError, match=message):
            probes.read_files(parse(tiny))

    retrieval, similarity = tiny.evaluation.retrieval, tiny.evaluation.sts
    retrieval.changed, retrieval.source = "numbers", "held_out"
    assert_refused(r"evaluation\.retrieval\.changed=numbers needs text, but held_out has only")
    retrieval.source = f"{files}/en-{{target}}.en|{files}/en-{{target}}.de"
    retrieval.pairs, retrieval.sentences = "en-de", 2
    assert_refused("numbers: there is no changed sentence")
    retrieval.pairs = "fr-de"
    assert_refused(r"changed=numbers: no pair of evaluation\.retrieval has English; add one")
    retrieval.update(type(retrieval)(default().evaluation.retrieval))
    similarity.source, similarity.languages = f"{files}/sts.{{language}}", "de,fr"
    assert_refused(r"evaluation\.sts\.source has no file for fr; tried .*sts\.fr.*sts\.languages")
    similarity.source = f"{files}/sts.de"
    assert_refused(r"evaluation\.sts\.source: de and fr have the same file .*use {language}")
    similarity.source, similarity.languages = f"{files}/sts.{{language}}|{files}/sts.de", "de"
    assert_refused(r"evaluation\.sts\.source: .* names more than one file; expected FILE$")
    similarity.source = "held_out"
    assert_refused(r"evaluation\.sts\.source=held_out: held_out has no gold links or scores")
    similarity.source, similarity.layer = f"{files}/sts.{{language}}", 9
    assert_refused(r"evaluation\.sts\.layer=9 is beyond model\.layers=2")
    similarity.update(type(similarity)(default().evaluation.sts))
    tiny.evaluation.search.source = f"{files}/search.{{language}}"
    tiny.evaluation.search.languages = "de"
    assert_refused(r"search\.de: there is no file qrels/test\.tsv")
    tiny.evaluation.search.source = f"{files}/sts.{{language}}"
    assert_refused(r"evaluation\.search\.source has no file for de; tried .*sts\.de")


def lists(ragged):
    return [ids.tolist() for ids in np.split(ragged.ids, ragged.starts[1:])]


def random_sides(count, seed):
    random = np.random.default_rng(seed)
    lengths = random.integers(1, 9, count)
    return Ragged(random.integers(4, 300, lengths.sum()).astype(np.int32), lengths)


def test_all_pairs_with_a_repeated_sentence_are_omitted(tiny, store):
    first, second = map(lists, probes.read_held_out_pairs(store, "en-sw", 10_000))
    examples = []
    numbers = np.arange(store.task("pairs.en-sw").held_out.rows)
    rows = store.read("pairs.en-sw", "held_out", numbers)["tokens"]
    for row in rows.tolist():  # a plain parser of `<s> A </s> B </s>`
        text = [token for token in row if token != PAD]
        while text:
            assert text.pop(0) == BOS
            sides = []
            for _ in range(2):
                end = text.index(EOS)
                sides.append(text[:end])
                text = text[end + 1 :]
            examples.append(sides)
    expected = [
        sides for sides in examples
        if all([other[k] for other in examples].count(sides[k]) == 1 for k in (0, 1))
    ]  # fmt: skip
    assert 2 <= len(expected) <= len(examples)
    assert [list(pair) for pair in zip(first, second, strict=True)] == expected


def test_a_sample_is_the_same_each_time(store):
    every, (few, _), (again, _) = (
        probes.read_held_out_pairs(store, "en-de", count) for count in (10_000, 5, 5)
    )
    assert lists(few) == lists(again) and len(few.lengths) == 5
    places = [lists(every[0]).index(ids) for ids in lists(few)]
    assert places == sorted(places) and places != list(range(5))


def test_agreement_is_the_share_of_pieces_with_a_link_in_both_directions(tiny, store):
    """The layer is the one with the highest mean over language pairs, also for gold pairs."""
    tiny.evaluation.alignment.update({"agreement": True, "sentences": 4, "encode": "apart"})
    config = parse(tiny)
    state, (probe,) = random_state(config), make_probes(config, store)
    layers = jax.tree.map(lambda x: 20 * x, state.params["layers"])  # so that layers differ
    state = dataclasses.replace(state, params={**state.params, "layers": layers})
    measured = probe(state)
    expected = {}
    for pair in config.data.pairs:
        sides = list(map(lists, probes.read_held_out_pairs(store, pair, 4)))
        rows = [[BOS, *ids, EOS] for side in sides for ids in side]
        tokens = np.array([row + [PAD] * (48 - len(row)) for row in rows])
        inputs = whole_examples(config.model, tokens, np.zeros((8, 2), np.int32))
        hidden = encoder.apply(state.params, config.model, inputs, layers=2, all_layers=True)
        shares = []
        for vectors in np.asarray(hidden):
            unit = vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)
            linked = 0
            for k in range(4):
                cosines = unit[k, 1 : len(rows[k]) - 1] @ unit[k + 4, 1 : len(rows[k + 4]) - 1].T
                best = cosines.argmax(1)
                linked += 2 * (cosines.argmax(0)[best] == np.arange(len(best))).sum()
            shares.append(linked / sum(len(row) - 2 for row in rows))
        expected[pair] = shares
    mean = np.mean(list(expected.values()), axis=0)
    layer = int(mean.argmax())
    assert len(set(mean)) == 3 and layer != middle_layer(2)
    assert measured == pytest.approx(
        {f"eval/word_alignment/{pair}/agreement": of[layer] for pair, of in expected.items()}
        | {"eval/word_alignment/agreement": mean[layer], "eval/word_alignment/layer": layer}
    )
    tiny.evaluation.alignment.layer = other = (layer + 1) % 3
    (probe,) = make_probes(parse(tiny), store)
    assert probe(state)["eval/word_alignment/agreement"] == pytest.approx(mean[other])
    assert "eval/word_alignment/layer" not in probe(state)


def test_agreement_without_held_out_pairs_is_an_error(tiny, store, monkeypatch):
    tiny.evaluation.alignment.agreement = True
    empty = Ragged(np.zeros(0, np.int32), np.zeros(0, np.int32))
    monkeypatch.setattr(probes, "read_held_out_pairs", lambda *_: (empty, empty))
    with pytest.raises(ConfigError, match=r"no sentence pair is held out; raise data\.held_out"):
        make_probes(parse(tiny), store)
