"""docs/make_results.py measures rows of a released encoder, and writes the pages of results."""

import gzip
import importlib
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

import xlj
from xlj.config import finetuning
from xlj.retrieval import beir

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs"))
        yield importlib.import_module("make_results")


@pytest.fixture(scope="module")
def rows(script):
    return importlib.import_module("result_rows")


@pytest.fixture(scope="module")
def released(script):
    return script.released_tables


@pytest.fixture(scope="module")
def encoders(script):
    return script.sentence_tables


@pytest.fixture(autouse=True)
def nothing_loaded(rows):
    """Each test loads a model of its own."""
    rows.loaded.cache_clear()


def write_gzip(file, text):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(gzip.compress(text.encode()))


def test_the_pages_have_the_tables_of_the_measured_rows(script):
    for file, page in script.pages(script.read(script.MEASURED)).items():
        assert file.read_text("utf-8") == page, "run docs/make_results.py --only="
        tables = page[page.index(script.BEGIN) :]
        captions = re.findall(r"^#+ .*\n\n(.*)\n\n\|", tables, re.MULTILINE)
        assert captions and all("4-bit weights" in caption for caption in captions)


def test_measured_and_published_rows_exist_and_only_scores_left_the_data(script):
    measured = script.read(script.MEASURED)
    assert {*measured, *script.read(script.PUBLISHED)} <= set(script.ROWS)
    assert list(measured) == [name for name in script.ROWS if name in measured]
    for scores in measured.values():
        texts = [value for value in scores.values() if isinstance(value, str)]
        assert len(texts) == 1 and re.fullmatch(r"\d{4}-\d\d-\d\d", texts[0])


def test_rows_are_chosen_by_pattern_or_measured_once(script):
    done = dict.fromkeys(script.ROWS, {})
    del done["bucc-zh-en"], done["tatoeba-tur"]
    assert script.choose(None, done) == ["tatoeba-tur", "bucc-zh-en"]
    assert script.choose("sts-d?,tatoeba-t*r", done) == ["tatoeba-tur", "sts-de"]
    assert script.choose("", {}) == []
    assert not any("," in name for name in script.ROWS)  # a comma separates patterns
    with pytest.raises(ValueError, match="no row matches 'tatoeba-xx'; the rows are tatoeba-ara"):
        script.choose("bucc*,tatoeba-xx", {})


def test_a_mean_needs_all_rows_and_all_published_scores(script, released):
    """A mean over other languages would be compared with mteb's."""
    published = script.read(script.PUBLISHED)
    names = [name for name in script.ROWS if name.startswith("tatoeba-")]
    scores = {"minutes": 1.0, "gib": 2.0, **{way: 50.0 for way in released.RETRIEVAL}}
    records = {name: scores for name in names}
    records[names[0]] = scores | {"into English, no prefix": 75.0}
    line = "| mean of 25 |  | 50.0 | 50.0 | 51.0 | 50.0 | 86.7 |  |  |  |"
    assert line in released.table("tatoeba", records, published)
    del records[names[1]]
    assert "mean" not in released.table("tatoeba", records, published)
    assert released.mean([1.0, None]) is None
    assert released.table("sts", records, published) == ""


class Embedding:
    """An encoder with which `one` is nearest to both sentences, and each is found from English."""

    VECTORS = {"eins": (1.0, 0.0), "zwei": (0.8, 0.6), "one": (1.0, 0.2), "two": (0.3, 0.95)}

    def __init__(self):
        self.embedded = []

    def encode(self, sentences, prompt=None):
        sentences = [f"{prompt or ''}{sentence}" for sentence in sentences]
        self.embedded += sentences
        return np.array([self.VECTORS[each.rpartition(" ")[2]] for each in sentences], np.float32)


def test_retrieval_is_measured_in_both_directions_and_with_both_prefixes(
    script, tmp_path, monkeypatch
):
    encoder = Embedding()
    monkeypatch.setattr(xlj, "load", lambda folder: encoder)
    write_gzip(tmp_path / "tatoeba/tatoeba.deu-eng.deu.gz", "eins\nzwei\n")
    write_gzip(tmp_path / "tatoeba/tatoeba.deu-eng.eng.gz", "one\ntwo\n")
    write_gzip(tmp_path / "parallel/ntrex/test/en-de.tsv.gz", "one\teins\ntwo\tzwei\n")
    for name in ("tatoeba-deu", "ntrex-de"):
        scores = script.ROWS[name](Path("model"), tmp_path)
        assert scores == {
            "sentences": 2,
            "into English, query:": 50,
            "from English, query:": 100,
            "into English, no prefix": 50,
            "from English, no prefix": 100,
            "xsim into English, query:": 0,
            "xsim from English, query:": 0,
            "F1 into English, query:": 33.33,
            "F1 from English, query:": 100,
            "xsim into English, no prefix": 0,
            "xsim from English, no prefix": 0,
            "F1 into English, no prefix": 33.33,
            "F1 from English, no prefix": 100,
        }
    assert encoder.embedded.count("query: eins") == encoder.embedded.count("eins") == 2
    assert encoder.embedded.count("query: one") == encoder.embedded.count("one") == 1


class Loaded(NamedTuple):
    params: dict


def test_noise_is_at_most_half_a_step_of_the_blocks_of_rounded_matrices(rows):
    """A block is 32 inputs of one output: of a column of xlj's kernels, of a row of embeddings."""
    random = np.random.RandomState(0).uniform(-1, 1, (2, 32)).astype(np.float32)
    random[:, 0] = 1
    blocks = random * [[8], [0.08]]  # the steps are 1 and 0.01
    params = {
        "embeddings": {"word": blocks, "position": blocks},
        "layers": {"dense": {"kernel": blocks.T[None], "bias": blocks}},
    }
    noisy = rows.with_noise(SimpleNamespace(pretrained=Loaded(params)), 0).pretrained.params
    for exact in (noisy["embeddings"]["position"], noisy["layers"]["dense"]["bias"]):
        assert (exact == blocks.astype(np.float32)).all()
    for changed in (noisy["embeddings"]["word"], noisy["layers"]["dense"]["kernel"][0].T):
        largest = np.abs(changed - blocks).max(1)
        assert (largest <= [0.5001, 0.005001]).all() and (largest > [0.4, 0.004]).all()


class Mining:
    """An encoder that mines (二, two) and (一, three); a prompt reverses its cosines of STS."""

    def encode(self, sentences, prompt):
        if set("abcdef") & {*sentences}:
            cosines = [0.1, 0.2, 0.3] if prompt == "query: " else [0.3, 0.2, 0.1]
            is_first = sentences == ["a", "b", "c"]
            assert is_first or sentences == ["d", "e", "f"]
            return np.array([[1, 0] if is_first else [x, (1 - x * x) ** 0.5] for x in cosines])
        assert prompt == "query: "
        table = {"一": (1, 0, 0), "二": (0, 1, 0), "three": (1, 0.1, 0), "two": (0, 1, 0.3)}
        return np.array([table.get(each, (0, 0, 1)) for each in sentences], np.float32)

    similarity_pairwise = xlj.Encoder.similarity_pairwise


def test_similarities_and_mined_pairs_are_scored_with_the_gold_of_their_files(
    script, tmp_path, monkeypatch
):
    monkeypatch.setattr(xlj, "load", lambda _: Mining())
    lines = "score\tgenre\tsentence1\tsentence2\n1\tx\ta\td\n2.5\tx\tb\te\n5\tx\tc\tf\n"
    write_gzip(tmp_path / "sts/test/de.tsv.gz", lines)
    scores = script.ROWS["sts-de"](Path("model"), tmp_path)
    assert scores == {
        **{"pairs": 3, "Spearman, query:": 100, "Spearman, no prefix": -100},
        **{"Pearson, query:": 98.97, "Pearson, no prefix": -98.97},
    }
    write_gzip(tmp_path / "bucc2018/zh-en.dev.zh.gz", "zh-1\t一\nzh-7\t二\n")
    write_gzip(tmp_path / "bucc2018/zh-en.dev.en.gz", "en-1\tone\nen-2\ttwo\nen-3\tthree\n")
    write_gzip(tmp_path / "bucc2018/zh-en.dev.gold.gz", "zh-7\ten-2\nzh-1\ten-1\n")
    scores = script.ROWS["bucc-zh-en"](Path("model"), tmp_path)
    assert {**scores, "threshold": 0} == {
        **{"sentences": 5, "pairs": 2, "threshold": 0},
        **{"f1": 66.67, "precision": 100, "recall": 50},
    }


class Aligner:
    """Links the first word of both sentences; below `first`, links no words."""

    def __init__(self, layers, first):
        self.layers, self.first = layers, first

    def align(self, pairs):
        none, one = np.zeros((0, 2), int), np.array([[0, 0]])
        return [[none if layer < self.first else one for layer in self.layers] for _ in pairs]


def test_error_rates_have_the_layer_encoding_and_method_of_their_names(
    script, released, tmp_path, monkeypatch
):
    """Each method and encoding finds the only link from another layer on."""

    def aligner(layers, method, together):
        first = {"argmax": 0, "itermax": 2, "match": 4, "optimal_transport": 8}[method]
        return Aligner(layers, first + together)

    monkeypatch.setattr(xlj, "load", lambda _: SimpleNamespace(layers=9, aligner=aligner))
    gold = "src\ttgt\tgold\na b\tc\t0-0\nb\td e\t0-0\n"
    write_gzip(tmp_path / "alignment/en-es.golden.test.tsv.gz", gold)
    scores = script.ROWS["aer-en-es.golden.test"](Path("model"), tmp_path)
    assert scores["pairs"] == 2 and scores["apart argmax"] == [0] * 10
    assert scores["together argmax"] == [100] + [0] * 9
    assert scores["apart itermax"] == [100] * 2 + [0] * 8
    # At layer 8, SimAlign's settings find all links and the defaults find none.
    assert scores[released.XLM_ALIGN][released.LAYER] == 100
    assert scores["difference"] == [-100, -100, -100]
    assert released.signed(scores["difference"]) == "-100.0 (-100.0 to -100.0)"
    assert released.best(scores) == "0.0 (layer 0, apart argmax)"


def test_fine_tuned_models_are_scored_at_the_last_step_in_all_languages(
    script, rows, tmp_path, monkeypatch
):
    """The config is valid. No model is trained."""

    def fine_tune(config, workdir):
        task = finetuning.parse(config).task
        assert (config.train.steps, config.train.seed, task.select, task.dev) == (
            "1000",
            2,
            "last",
            (),
        )
        assert task.train == (f"{tmp_path}/ner/panx/train.{{language}}.tsv.gz",)
        assert task.test == (f"{tmp_path}/ner/panx/dev.{{language}}.tsv.gz",)
        assert task.languages == ("en",) and len(task.test_languages) == 34
        scores = {"chunk_f1": {"en": 80.123, "de": 70.0}, "precision": {"en": 1.0, "de": 1.0}}
        return SimpleNamespace(runs=[SimpleNamespace(test=scores)])

    monkeypatch.setattr(xlj, "fine_tune", fine_tune)
    scores = script.ROWS["entities-2"](Path("model"), tmp_path)
    assert scores == {"en": 80.12, "de": 70.0, **rows.BITS}


def test_an_adaptation_is_measured_before_and_after(script, released, rows, tmp_path, monkeypatch):
    """Before, the model finds one of two translations in one direction; after, all."""
    model, commands = tmp_path / "e5", []
    output = tmp_path / "adapted/yo-1"
    for language in rows.MEASURED:
        text = "one\teins\ntwo\tzwei\n"
        write_gzip(tmp_path / f"parallel/ntrex/test/en-{language}.tsv.gz", text)

    def run(command, check, stdout):
        commands.append(command)
        output.mkdir(parents=True)
        measures = {"pieces_per_word": {"yo": 3.0}}
        after = {"pieces_per_word": {"yo": 1.5}, "nats_per_character": {"yo": 2.5}}
        record = {"step": 7, "before": measures, "after": after}
        (output / "adaptation.json").write_text(json.dumps(record))

    class After(Embedding):
        VECTORS = {"eins": (1.0, 0.0), "zwei": (0.0, 1.0), "one": (1.0, 0.1), "two": (0.1, 1.0)}

    monkeypatch.setattr(rows.subprocess, "run", run)
    monkeypatch.setattr(xlj, "load", lambda folder: Embedding() if folder == model else After())
    measured = script.ROWS["adapted-yo-1"](model, tmp_path)
    (command,) = commands
    assert "--config.train.seed=1" in command and f"--from={model}" in command
    assert "--pairs=en-yo" in command and f"--replay={','.join(rows.OLD)}" in command
    (excluded,) = (flag for flag in command if flag.startswith("--config.data.exclude="))
    assert excluded.count("ntrex/test/en-") == len(rows.MEASURED)
    assert measured["steps"] == 7 and measured["nats_per_character"] == [{}, {"yo": 2.5}]
    assert measured["yo"] == measured["de"] == [75, 100]
    assert measured["yo, difference"] == [25, 0, 50]
    record = {"adapted-yo-1": measured | {"minutes": 1.0, "gib": 2.0}}
    table = released.adaptations(record)
    line = "| yo | 1 | 7 | 3.00 -> 1.50 | 75.0 -> 100.0: +25.0 (+0.0 to +50.0) |"
    assert line in table and "| 2.50 | 1.0 | 2.0 |" in table
    assert released.adaptations({}) == ""


def test_seeds_of_an_adaptation_have_one_interval(script, released, rows, tmp_path, monkeypatch):
    """Two seeds find one of two translations in one direction, as before; one seed finds all."""
    for language in rows.MEASURED:
        text = "one\teins\ntwo\tzwei\n"
        write_gzip(tmp_path / f"parallel/ntrex/test/en-{language}.tsv.gz", text)

    def adapted(way, seed, model, data):
        output = tmp_path / f"{way}-{seed}"
        output.mkdir()
        before, after = ({"pieces_per_word": {"yo": each}} for each in (3.0, 1.5 + seed))
        record = {"step": 7, "before": before, "after": after}
        (output / "adaptation.json").write_text(json.dumps(record))
        return output

    class After(Embedding):
        VECTORS = {"eins": (1.0, 0.0), "zwei": (0.0, 1.0), "one": (1.0, 0.1), "two": (0.1, 1.0)}

    monkeypatch.setattr(rows, "adapted", adapted)
    monkeypatch.setattr(
        xlj, "load", lambda folder: After() if folder.parent.name == "yo-1" else Embedding()
    )
    measured = script.ROWS["adapted-yo-mean of 3"](tmp_path / "e5", tmp_path)
    assert measured["pieces_per_word"] == [{"yo": 3.0}, {"yo": 2.5}]
    assert measured["de"] == [75, 83.33] and measured["de, difference"] == [8.33, 0, 16.67]
    record = measured | {"minutes": 1.0, "gib": 2.0, "nats_per_character": [{}, {"yo": 2.5}]}
    table = released.adaptations({"adapted-yo-mean of 3": record})
    assert "| yo | mean of 3 | 7 |" in table and "| 2.50 |  |  |" in table


def test_tags_are_measured_before_and_after_an_adaptation(
    script, released, rows, tmp_path, monkeypatch
):
    """The config is valid. No model is adapted or trained."""
    adapted = []

    def fine_tune(config, workdir):
        task = finetuning.parse(config).task
        assert task.test_languages == ("en", "wo", "yor") and config.train.steps == "300"
        assert [Path(path).parent.name for path in task.test] == ["masakhapos", "xtreme-ud"]
        score = 60.0 if config.init_from == "e5" else 70.0
        return SimpleNamespace(
            runs=[
                SimpleNamespace(test={"word_class_f1": dict.fromkeys(["en", "wo", "yor"], score)})
            ]
        )

    def adapt(way, seed, model, data):
        adapted.append((way, seed))
        return Path("adapted")

    monkeypatch.setattr(xlj, "fine_tune", fine_tune)
    monkeypatch.setattr(rows, "adapted", adapt)
    before, after = (script.ROWS[f"tagged-{way}"](Path("e5"), tmp_path) for way in ("before", "yo"))
    assert adapted == [("yo", 0)] and (before["yor"], after["yor"]) == (60, 70)
    records = {"tagged-yo": after | {"minutes": 1.0, "gib": 2.0}}
    assert "| yo | 70.0 | 70.0 | 70.0 | 1.0 | 2.0 |" in released.tags_of_adapted(records)


def test_means_of_fine_tuned_models_leave_out_english(script, released):
    runs = {
        f"entities-{seed}": dict.fromkeys(released.FINE_TUNING["entities"].languages, 50.0 + seed)
        | {"en": 90.0, "minutes": 1.0, "gib": 2.0}
        for seed in (0, 2)
    }
    text = released.tuned("entities", runs)
    assert "| de | 51.0 | 1.4 |" in text and "| en | 90.0 | 0.0 |" in text
    assert "| mean of 33 without en | 51.0 | 1.4 |" in text
    assert "entities-0 1.0 minutes, 2.0 GiB; entities-2" in text
    assert released.tuned("tags", runs) == ""


def write_questions(file, *asked):
    """Writes (question, paragraph) in SQuAD's form."""
    articles = [
        {"paragraphs": [{"context": paragraph, "qas": [{"question": question}]}]}
        for question, paragraph in asked
    ]
    write_gzip(file, json.dumps({"data": articles}))


def test_a_model_of_the_product_chain_is_measured_on_search_sets(
    script, encoders, tmp_path, monkeypatch
):
    """No model is made. The search sets are read with xlj's reader."""
    products = importlib.import_module("product_rows")
    questions = [("w nani?", "Juma"), ("w wapi?", "Juma"), ("w lini?", "leo")]
    write_questions(tmp_path / products.JUDGED["sw"], *questions)
    write_questions(tmp_path / products.OTHERS["sw"], ("w?", "leo"), ("w!", "kesho"))
    write_questions(tmp_path / products.JUDGED["de"], ("Wer?", "Anna"))
    write_questions(tmp_path / products.OTHERS["de"], ("Wo?", "hier"))
    asked, file = [], tmp_path / "graphs/model.onnx"
    encoder = SimpleNamespace(model=SimpleNamespace(file=file), encode=asked.append)

    def load(folder, backend):
        (tmp_path / "graphs").mkdir(exist_ok=True)
        file.write_bytes(bytes(1_500_000))
        file.with_name("model.onnx.data").write_bytes(bytes(1_000_000))
        assert (folder.name, backend) == ("e5", "onnx")
        return encoder

    def search(folder, split, given, prompts):
        judged = beir.read(folder, split)
        assert given is encoder and (prompts.query, prompts.document) == ("query: ", "passage: ")
        best = [list(grades) for grades in judged.judgements.values()]
        assert best == ([["d0"], ["d0"], ["d1"]] if folder.name == "sw" else [["d0"]])
        return {"ndcg@10": 50.0, "documents": len(judged.documents)}

    commands = []
    monkeypatch.setattr(products, "run", lambda *command: commands.append(command))
    monkeypatch.setattr(products, "measure_search", search)
    monkeypatch.setattr(xlj, "load", load)
    scores = script.ROWS["product-as released"](tmp_path / "real/e5", tmp_path)
    assert scores.pop("ms")[0] >= 0 and asked == [["query: Wer?"]]
    assert scores == {"mb": 2.5, "sw": 50, "sw, documents": 3, "de": 50, "de, documents": 2}
    ((_, *flags),) = commands
    assert f"--checkpoint={tmp_path}/real/e5" in flags and "--int8" in flags
    record = scores | {"ms": [3.0, 4.0], "minutes": 2.0}
    line = "| as released | 2.5 | 3.0 (4.0) | 50.0 | 50.0 | 2.0 |"
    assert line in encoders.products({"product-as released": record})


def test_a_student_in_yoruba_is_configured_by_its_way_and_measured(
    script, encoders, tmp_path, monkeypatch
):
    """Nothing is trained: the commands have the values of the way, and the pairs are written."""
    teachers, sentences = (
        importlib.import_module(name) for name in ("teacher_rows", "sentence_rows")
    )
    pairs = "\n".join(["one\tọ̀kan", "one\tọ̀kan", "two\tèjì", "three\tẹ̀ta"]) + "\n"
    write_gzip(tmp_path / teachers.PAIRS["yo"], pairs)
    commands, model = [], tmp_path / "real/e5"
    monkeypatch.setattr(teachers, "run", commands.append)
    monkeypatch.setattr(teachers, "FEW", 2)
    half = f"--config.objectives.contrast.batch_size={sentences.ROWS_PER_STEP // 2}"
    for way, flag in (
        ("teacher", "--config.objectives.sentence_distillation.loss=cosine"),
        ("squared", "--config.objectives.sentence_distillation.loss=squared"),
        ("1000 pairs", f"--config.data.parallel={tmp_path}/real/taught/pairs-2.{{pair}}.tsv"),
        ("old text", f"--config.data.mono={tmp_path}/mono/{{language}}.txt.gz"),
        ("teacher and contrast", half),
    ):
        assert teachers.student(way, 3, model, tmp_path).name == "model"
        train, export = commands[-2:]
        assert flag in train and "--config.train.seed=3" in train and "export" in export
        assert f"--config.objectives.sentence_distillation.teacher={model}" in train
        assert ("--config.data.languages=yo" in train) == (flag == half)
    few, everything = (tmp_path / f"real/taught/pairs-{n}.en-yo.tsv" for n in (2, "all"))
    assert few.read_text("utf-8") == "one\tọ̀kan\ntwo\tèjì\n"
    assert len(everything.read_text("utf-8").splitlines()) == 3

    record = {name: [50.0, 60.0] for name in (*sentences.SETS, "tatoeba")} | {"minutes": 2.0}
    records = {
        "sentences-xlj-0": record | {"examples per second": 3.0},
        "taught-yo teacher-0": record,
        "taught-yo teacher-1": record | {"ntrex yo": [50.0, 62.0], "minutes": 4.0},
        "taught-yo squared-0": {k: v for k, v in record.items() if k != "tatoeba"},
    }
    table = encoders.taught(records)
    assert "| contrast | 1 | 60.0 | 60.0 | 60.0 | 60.0 | 2.0 |" in table
    assert "| teacher | 2 | 61.0 ± 1.4 | 60.0 ± 0.0 | 60.0 ± 0.0 " in table and "| 3.0 |" in table
    assert "| squared | 1 | 60.0 | 60.0 | 60.0 |  |" in table and encoders.taught({}) == ""
    assert "| xlj | 1 | 3.0 | 60.0 |" in encoders.trained(records)


def test_students_of_the_english_teacher_get_equal_pairs_a_step(
    script, encoders, tmp_path, monkeypatch
):
    teachers = importlib.import_module("teacher_rows")
    for language in ("de", "sw"):
        write_gzip(tmp_path / teachers.PAIRS[language], f"one\t{language}\n")
    commands, model = [], tmp_path / "real/e5"
    monkeypatch.setattr(teachers, "run", commands.append)
    monkeypatch.setattr(teachers, "english_teacher", lambda folder: folder / "minilm")
    with pytest.raises(ValueError, match="run xlj's row first"):
        teachers.pairs_per_step(tmp_path / "real/taught")
    teachers.taught_english("xlj", 1, model, tmp_path)
    train, _ = commands
    assert f"--config.data.parallel={tmp_path}/real/taught/pairs-all.{{pair}}.tsv" in train
    assert f"--config.objectives.sentence_distillation.teacher={tmp_path}/real/taught/minilm" in (
        train
    )
    assert f"--config.data.cache={tmp_path}/real/taught/english/rows" in train
    store = tmp_path / "real/taught/english/rows/abc"
    store.mkdir(parents=True)
    tasks = [{"train": {"sentences": 30, "rows": 10}}, {"train": {"sentences": 50, "rows": 10}}]
    (store / "manifest.json").write_text(json.dumps({"tasks": tasks}))
    assert teachers.pairs_per_step(tmp_path / "real/taught") == 4 * teachers.ROWS_PER_STEP
    record = {"sts de": [1.0, 2.0], "minutes": 1.0}
    record |= dict.fromkeys(("tatoeba deu", "tatoeba swh", "ntrex sw"), [3.0, 4.0])
    line = "| xlj | 1 | 2.0 | 4.0 | 4.0 | 4.0 | 1.0 |"
    assert line in encoders.taught_english({"taught-english xlj-0": record})


def test_ways_of_training_are_compared_sentence_by_sentence(
    script, encoders, tmp_path, monkeypatch
):
    """Each of two sentences is found or not by the models of three seeds, which are averaged."""
    paired = importlib.import_module("paired_rows")
    write_gzip(tmp_path / "parallel/ntrex/test/en-yo.tsv.gz", "one\teins\ntwo\tzwei\n")
    trained = []

    def folder(way, seed, model, data):
        trained.append((way, seed))
        return tmp_path / f"{way}-{seed}/model"

    class Right(Embedding):
        VECTORS = {"eins": (1.0, 0.0), "zwei": (0.0, 1.0), "one": (1.0, 0.1), "two": (0.1, 1.0)}

    class Wrong(Right):
        VECTORS = Right.VECTORS | {"zwei": (1.0, 0.0), "two": (1.0, 0.1)}

    def load(model, compute):
        assert compute == paired.TRAINED_IN
        return Right() if model.parent.name in ("new-0", "new-2") else Wrong()

    monkeypatch.setattr(xlj, "load", load)
    pairs, sets = [paired.Pair("new", "old", 3)], ["ntrex yo"]
    comparison = paired.Comparison(folder, pairs, sets, paired.SETTINGS)
    monkeypatch.setitem(paired.COMPARISONS, "sentences", comparison)
    for way in ("old", "new"):
        for seed in range(3):
            (tmp_path / f"{way}-{seed}").mkdir()
    measured = paired.compare(comparison, tmp_path / "e5", tmp_path)
    assert trained == [(way, seed) for way in ("old", "new") for seed in range(3)]
    # "zwei" is found from both sides by two of three new models, and by no old model.
    assert measured == {"new minus old": {"ntrex yo": [33.33, 0, 66.67]}}
    monkeypatch.setattr(xlj, "load", None)  # the sentences found are stored
    assert paired.compare(comparison, tmp_path / "e5", tmp_path) == measured
    line = "| new - old | 3 | +33.3 (+0.0 to +66.7) |"
    assert line in encoders.differences({"paired-sentences": measured}, "sentences")
    assert encoders.differences({}, "sentences") == ""
    for name, each in paired.COMPARISONS.items():
        assert f"paired-{name}" in script.ROWS and all(pair.way != pair.base for pair in each.pairs)


def test_what_other_languages_lose_is_told_for_both_models(encoders):
    """Each set has pairs, and scores before, after and with the mean, with differences."""
    names = [*encoders.sentence_rows.SETS, "tatoeba aaa", "tatoeba bbb", "tatoeba ccc"]
    rows = {name: [1000, 50.0, 51.0, 1.0, 0.0, 2.0, 50.5, 0.5, 0.0, 1.0] for name in names}
    rows["tatoeba bbb"] = [500, 40.0, 37.0, -3.0, -4.0, -2.0, 39.0, -1.0, -2.0, 0.0]
    rows["tatoeba ccc"] = [499, 60.0, 50.0, -10.0, -12.0, -8.0, 52.0, -8.0, -9.0, -7.0]
    page = encoders.forgotten({"sentences-all languages-0": rows | {"date": "2026-12-01"}})
    assert "is 50.00 % before, 46.00 % after, and 47.17 % with the mean" in page
    assert "Of the 2 languages with at least 500 pairs, the worst changes by -3.0 points" in page
    assert "with the mean of the models by -1.0." in page
    line = "| tatoeba bbb | 500 | 40.0 | 37.0 | -3.0 (-4.0 to -2.0) | 39.0 | -1.0 (-2.0 to +0.0) |"
    assert line in page and page.index("tatoeba ccc") < page.index("tatoeba bbb")
    assert encoders.forgotten({}) == ""
    cut = {name: [10.0, 20.0, 30.0] for name in encoders.sentence_rows.SETS}
    cut |= {f"{name}, difference": [10.0, 9.0, 11.0] for name in encoders.sentence_rows.SETS}
    line = "| ntrex yo | 10.0 | 20.0 | 30.0 | +10.0 (+9.0 to +11.0) |"
    assert line in encoders.cut({"sentences-cut-0": cut}) and encoders.cut({}) == ""
