"""Templates name labelled sources, and each source is read as examples of the task.

Label sets of a task, and errors for examples that do not match them.
"""

import dataclasses
import json
import sys

import pytest
import servers

from xlj.config import ConfigError
from xlj.config.task import Task
from xlj.data.labelled import task_sources
from xlj.data.labelled.examples import LinkedPair, Question, Sentences, Words


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "en.tsv").write_text("a\tyes\nb\tno\n")
    (tmp_path / "de.tsv").write_text("c\tno\n")
    (tmp_path / "more.de.tsv").write_text("d\t-\n")
    (tmp_path / "empty.tsv").write_text("")
    (tmp_path / "blank.conll").write_text("\n\n")
    return tmp_path


def test_templates_are_filled_and_may_lack_a_file_for_some_languages(folder):
    task = Task(
        kind="classification",
        test=(f"{folder}/{{language}}.tsv", f"{folder}/more.{{language}}.tsv"),
    )
    assert task_sources.resolve(task, "test", ("en", "de")) == {
        "en": [f"{folder}/en.tsv"],
        "de": [f"{folder}/de.tsv", f"{folder}/more.de.tsv"],
    }
    assert task_sources.resolve(task, "dev", ("en",)) == {"en": []}


def test_sources_may_be_urls(folder):
    task = Task(kind="classification", columns=("premise", "hypothesis", "label"))
    content = "premise\thypothesis\tlabel\nit rains\tit is wet\tyes\n"
    (folder / "here.tsv").write_text(content)
    with servers.web({"/en.tsv": content.encode()}) as web:
        task = dataclasses.replace(task, train=(f"{web.url}/{{language}}.tsv",))
        assert task_sources.resolve(task, "train", ("en",)) == {"en": [f"{web.url}/en.tsv"]}
        actual = task_sources.read(f"{web.url}/en.tsv", "en", task)
    (expected,) = task_sources.read(str(folder / "here.tsv"), "en", task)
    assert [example.texts for example in actual] == [expected.texts]
    assert [example.label for example in actual] == ["yes"] == [expected.label]


def test_one_error_names_all_missing_sources(folder):
    task = Task(
        kind="classification", train=(f"{folder}/{{language}}.tsv", f"{folder}/x.{{language}}")
    )
    with pytest.raises(ConfigError) as error:
        task_sources.resolve(task, "train", ("en", "de", "fr"))
    for part in (
        "languages=fr has no source in task.train; tried",
        "x.{language} matches none of the 3 languages; tried",
        "x.fr",
    ):
        assert part in str(error.value)


@pytest.mark.seqio
def test_one_tfds_source_may_have_all_languages():
    for template, kind in (
        ("tfds:xnli#validation", "classification"),
        ("tfds:tydi_qa#train", "question_answering"),
    ):
        actual = task_sources.resolve(Task(kind=kind, dev=(template,)), "dev", ("en", "sw"))
        assert actual == {"en": [template], "sw": [template]}
    assert "tensorflow" not in sys.modules


def test_a_tfds_source_is_refused_if_tfds_is_not_installed(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    task = Task(
        kind="classification",
        train=("phrasebook:nli/{language}#train",),
        dev=("tfds:xnli#validation",),
    )
    assert task_sources.resolve(task, "train", ("en",)) == {"en": ["phrasebook:nli/en#train"]}
    with pytest.raises(ConfigError, match="reading tfds:xnli#validation needs tensorflow_datasets"):
        task_sources.resolve(task, "dev", ("en",))


@pytest.mark.parametrize(
    "template, kind, message",
    [
        ("tfds:paws_x_wiki/en#train", "classification", "several languages the same"),
        ("tfds:tydi_qa#validation-en", "question_answering", "several languages the same"),
        ("tfds:xnli#test", "tagging", "has examples of task.kind=classification, not tagging"),
        ("tfds:xnli", "classification", "tfds:NAME#SPLIT"),
        ("tfds:glue/{language}#train", "classification", "of TFDS are mlqa, paws_x_wiki"),
        ("phrasebook:nli#train", "classification", "phrasebook:TASK/{language}#SPLIT"),
        ("phrasebook:news/{language}#train", "classification", "TASK is one of nli, "),
        ("phrasebook:nli/{language}#validation", "classification", "SPLIT is one of train, dev, t"),
        ("phrasebook:tags/{language}#train", "classification", "task.kind=tagging"),
        (
            "phrasebook:nli/{language}#train",
            "classification",
            "languages=eo has no source in .*nli/eo",
        ),
        ("{lang}.tsv", "classification", r"task.train=.*unknown placeholder \{lang\}"),
    ],
)
def test_invalid_templates_are_refused(template, kind, message):
    with pytest.raises(ConfigError, match=message):
        task_sources.resolve(Task(kind=kind, train=(template,)), "train", ("en", "eo"))


NLI = "language\tgold_label\tsentence1\tsentence2\n"
NLI += "".join(f"{c}\tneutral\t{c} 1\t{c} 2\n" for c in ("en", "de", "zh-CN", "zh-TW", "en"))
TYDI = {"question": "Q?", "context": "C", "answers": {"text": ["C"], "answer_start": [0]}}
CHOICES = {"premise": "p", "choices": ["a", "b"], "label": 0}


@pytest.mark.parametrize(
    "kind, name, content, codes",
    [
        ("classification", "dev.tsv", NLI, {"en": 2, "de": 1, "de-DE": 1, "zh_cn": 1, "EN": 2}),
        (
            "regression",
            "dev.jsonl",
            [{"text": "a", "score": 1, "lang": code} for code in ("swh_Latn", "yor_Latn")],
            {"swh_Latn": 1, "yor-Latn": 1, "swh": 1},
        ),
        (
            "question_answering",
            "dev.json",
            [TYDI | {"id": f"{name}-{i}-0"} for i, name in enumerate(("english", "swahili"))],
            {"en": 1, "sw": 1},
        ),
        (
            "question_answering",
            "dev.json",
            [TYDI | {"id": i, "language": name} for i, name in enumerate(("Korean", "telugu"))],
            {"ko": 1, "te": 1},
        ),
        (
            "tagging",
            "dev.jsonl",
            [{"tokens": ["a"], "tags": ["X"], "lang": code} for code in ("hau", "hau", "ibo")],
            {"hau": 2, "ibo": 1},
        ),
        (
            "multiple_choice",
            "dev.jsonl",
            [CHOICES | {"dialect": code} for code in ("eng_Latn", "deu_Latn")],
            {"deu_Latn": 1, "eng_Latn": 1},
        ),
    ],
)
def test_a_file_of_several_languages_gives_each_its_own(
    tmp_path, capsys, kind, name, content, codes
):
    lines = content if isinstance(content, str) else "\n".join(map(json.dumps, content)) + "\n"
    (tmp_path / name).write_text(lines)
    task = Task(kind=kind, test=(f"{tmp_path}/{name}",))
    assert task_sources.resolve(task, "test", tuple(codes)) == dict.fromkeys(codes, [*task.test])
    everything = task_sources.read(task.test[0], "xx", Task(kind=kind, test=("{language}",)))
    for code, count in codes.items():
        assert len(task_sources.read(task.test[0], code, task)) == count
        assert f"{count} of {len(everything)} examples are in {code}" in capsys.readouterr().err
    for code in ("xx", "zh"):
        with pytest.raises(
            ConfigError, match=f"{name}: the file has examples of .*, but .* {code};"
        ):
            task_sources.read(task.test[0], code, task)


def test_a_file_that_names_one_language_or_none_is_read_for_one_language(folder):
    (folder / "one.tsv").write_text("lang\ttext\tlabel\nen\ta\tx\nen\tb\ty\n")
    for name in ("one.tsv", "en.tsv"):
        task = Task(kind="classification", test=(f"{folder}/{name}",))
        assert len(task_sources.read(task.test[0], "de", task)) == 2
        assert task_sources.resolve(task, "test", ("de",)) == {"de": [*task.test]}
        with pytest.raises(ConfigError, match="gives several languages the same source"):
            task_sources.resolve(task, "test", ("de", "en"))


def test_each_kind_has_its_reader(folder):
    labelled = Task(kind="classification", labels=("no", "yes"))
    assert [one.label for one in task_sources.read(f"{folder}/en.tsv", "en", labelled)] == [
        "yes",
        "no",
    ]
    assert task_sources.read(f"{folder}/more.de.tsv", "de", labelled)[0].label is None
    (words,) = task_sources.read(f"{folder}/en.tsv", "en", Task(kind="tagging"))
    assert words.tags == ("yes", "no")


@pytest.mark.parametrize(
    "name, task, message",
    [
        ("empty.tsv", Task(kind="classification"), "empty.tsv contains no examples"),
        ("blank.conll", Task(kind="tagging"), "blank.conll contains no examples"),
        (
            "en.tsv",
            Task(kind="classification", labels=("yes", "non")),
            "en.tsv:2: 'no' is not a label .*did you mean non",
        ),
        ("en.tsv", Task(kind="question_answering"), "en.tsv:1: not valid JSON"),
        ("nowhere.tsv", Task(kind="classification"), "nowhere.tsv: cannot read this file"),
    ],
)
def test_invalid_sources_are_refused(folder, name, task, message):
    with pytest.raises(ConfigError, match=message):
        task_sources.read(f"{folder}/{name}", "en", task)


@pytest.mark.parametrize("name", task_sources.PHRASEBOOK)
def test_every_phrasebook_task_is_read_with_places(name):
    of_type = {Sentences: "classification", Words: "tagging", Question: "question_answering"}
    of_type[LinkedPair] = "word_links"
    kind = of_type[task_sources.PHRASEBOOK[name]]
    language = "de-sw" if kind == "word_links" else "sw"
    task = Task(kind=kind, dev=(f"phrasebook:{name}/{{language}}#dev",))
    ((source,),) = task_sources.resolve(task, "dev", (language,)).values()
    examples = task_sources.read(source, language, task)
    places = [example.place for example in examples]
    assert places[0] == f"phrasebook:{name}/{language}#dev:1"
    assert len(set(places)) == len(places) == 500
    if kind == "word_links":
        assert all(example.sure and not example.possible for example in examples)
    if kind == "question_answering":
        assert [example.identity for example in examples] == [f"dev-{i}" for i in range(1, 501)]


PAIRS = [Sentences(("a",), "no", "f:1"), Sentences(("b",), "yes", "f:2")]
WORDS = [Words(("a", "b"), ("X", "O"), "g:1"), Words(("c",), ("O",), "g:4")]
QUESTIONS = [Question("1", "?", "c", (), "h")]


def test_labels_of_training_data_are_sorted_and_configured_labels_keep_their_order():
    assert task_sources.label_set(reversed(PAIRS), ()) == ("no", "yes")
    assert task_sources.label_set(WORDS, ()) == ("O", "X")
    assert task_sources.label_set(PAIRS, ("yes", "maybe", "no")) == ("yes", "maybe", "no")
    assert task_sources.label_set(QUESTIONS, ()) == ()


def test_unknown_labels_are_refused_with_their_place():
    with pytest.raises(ConfigError, match="f:2: 'yes' is not a label .* has no, yess .*mean yess"):
        task_sources.label_set(PAIRS, ("no", "yess"))
    with pytest.raises(
        ConfigError, match="g:1: 'X' of 'a' is not a label of the task, which has O "
    ):
        task_sources.check_labels(WORDS, ("O",))
    task_sources.check_labels([*WORDS, Words(("c",), None, "g:9")], ("O", "X"))


def test_examples_without_labels_cannot_train():
    for example, missing in (
        (Sentences(("a",), None, "f:3"), "label"),
        (Words(("a",), None, "f:3"), "tags"),
        (Question("1", "?", "c", None, "f:3"), "answers; mark .* with is_impossible"),
    ):
        with pytest.raises(ConfigError, match=f"f:3: this example has no {missing}"):
            task_sources.label_set([example], ())
    task_sources.require_labels(QUESTIONS)


def test_labelled_and_unlabelled_examples_must_not_be_mixed():
    for examples in (PAIRS, WORDS, QUESTIONS, [Sentences(("a",), None, "f:3")] * 2):
        task_sources.check_all_or_none(examples)
    with pytest.raises(
        ConfigError,
        match="f:3: this example has no label, but the example at f:1 has; label all "
        ".*; task.malformed=skip skips",
    ):
        task_sources.check_all_or_none([*PAIRS, Sentences(("a",), None, "f:3")])
    with pytest.raises(
        ConfigError, match="g:2: this example has no answers, but the example at h has; mark"
    ):
        task_sources.check_all_or_none([Question("2", "?", "c", None, "g:2"), *QUESTIONS])


def test_a_task_with_only_one_label_is_refused():
    with pytest.raises(ConfigError, match=r"f:1: 'no' is the only label of the task"):
        task_sources.label_set(PAIRS[:1], ("no",))
    with pytest.raises(ConfigError, match="is the only label of the task"):
        task_sources.label_set(PAIRS[:1], ())
