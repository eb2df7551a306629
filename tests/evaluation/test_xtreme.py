"""XTREME's tasks are scored from folders; skipped files are reported, wrong files are refused."""

import json

import pytest

from xlj.config import ConfigError
from xlj.evaluation import xtreme


@pytest.fixture
def folders(tmp_path):
    """Labels and predictions of a few tasks and languages."""

    def write(side, files):
        for name, content in files.items():
            file = tmp_path / side / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content if isinstance(content, str) else json.dumps(content))

    def squad(**golds):
        qas = [{"id": key, "answers": [{"text": text}]} for key, text in golds.items()]
        return {"data": [{"paragraphs": [{"qas": qas}]}]}

    write(
        "labels",
        {
            "xnli/test-en.tsv": "neutral\nentailment\n",
            "xnli/test-de.tsv": "neutral\nentailment\n",
            "udpos/test-en.tsv": "SCONJ\nSCONJ\nNOUN\n\nNOUN\n",
            "mlqa/test-de.json": squad(a="die Katze", b="ein Hund"),
            "mlqa/test-en.json": squad(a="the cat"),
            "xquad/test-de.json": squad(a="die Katze"),
            "bucc2018/test-de.tsv": "de-1\ten-1\nde-2\ten-2\n",
            "tatoeba/test-de.tsv": "1\n0\n",
        },
    )
    write(
        "predictions",
        {
            "xnli/test-en.tsv": "neutral\nneutral\n",
            "xnli/test-de.tsv": "entailment\nneutral\n",
            "udpos/test-en.tsv": "SCONJ\nCCONJ\nNOUN\n\nNOUN\n",
            "mlqa/test-de.json": {"a": "Katze", "b": "Hund der Nacht"},
            "mlqa/test-en.json": {"a": "cat"},
            "xquad/test-de.json": {"a": "Katze"},
            "bucc2018/test-de.tsv": "",
            "tatoeba/test-de.tsv": "1\n1\n",
        },
    )
    return tmp_path / "labels", tmp_path / "predictions"


@pytest.fixture
def scored(folders):
    """The result of each task, by name."""
    return {result.task.name: result for result in xtreme.score(*folders)[0]}


def test_tasks_are_in_the_order_of_xtreme(scored):
    assert list(scored) == ["xnli", "udpos", "xquad", "mlqa", "bucc2018", "tatoeba"]


def test_classification_scores_equal_values_by_hand(scored):
    assert scored["xnli"].metrics == {"accuracy": {"en": 50.0, "de": 0.0}}
    assert (scored["xnli"].score, scored["xnli"].transfer_gap) == (25.0, 50.0)


def test_tagging_scores_equal_values_by_hand(scored):
    assert scored["udpos"].score == pytest.approx(75)  # of four chunks, the second SCONJ is wrong


def test_question_answering_scores_equal_values_by_hand(scored):
    two_thirds = pytest.approx(200 / 3)
    assert scored["xquad"].metrics == {"exact_match": {"de": 0.0}, "f1": {"de": two_thirds}}
    assert scored["mlqa"].metrics == {
        "exact_match": {"en": 100.0, "de": 50.0},
        "f1": {"en": 100.0, "de": pytest.approx((100 + 200 / 3) / 2)},
    }
    assert scored["mlqa"].score == pytest.approx((75 + (100 + (100 + 200 / 3) / 2) / 2) / 2)
    assert scored["mlqa"].transfer_gap == 50  # the gap of exact match


def test_retrieval_scores_equal_values_by_hand(scored):
    assert scored["bucc2018"].score == 0 and scored["bucc2018"].transfer_gap is None
    assert scored["tatoeba"].score == 50


def test_skipped_tasks_and_files_are_reported(folders):
    (folders[1] / "mewslix").mkdir()
    (folders[1] / "xquad/test-ro.json").write_text("{}")
    results, notes = xtreme.score(*folders)
    text = "\n".join(notes)
    assert f"skipped pawsx: {folders[0]}/pawsx does not exist" in text
    assert "skipped mewslix: not a task of XTREME (xnli, pawsx" in text
    assert "xnli: no files for ar, bg, el" in text
    assert "test-ro.json: not a language of this task in XTREME" in text
    assert not any(result.is_complete for result in results)
    assert xtreme.overall(results) == ({}, None)
    result = xtreme.as_json(results)
    assert result["score"] is None and result["groups"] == {}
    assert result["tasks"]["bucc2018"]["f1"]["transfer_gap"] is None


def test_overall_scores_need_every_task_and_language():
    results = [
        xtreme.Result(
            task, {name: dict.fromkeys(task.languages, 10.0 * k) for name in task.metrics}
        )
        for k, task in enumerate(xtreme.TASKS)
    ]
    assert len(results) == 9
    groups, overall = xtreme.overall(results)
    assert groups == {"classification": 5, "tagging": 25, "qa": 50, "retrieval": 75}
    assert overall == 40
    groups, overall = xtreme.overall([result for result in results if result.task.name != "panx"])
    assert groups == {"classification": 5, "qa": 50, "retrieval": 75} and overall is None


def test_markdown_has_all_scores_in_tables(folders):
    results, _ = xtreme.score(*folders)
    result = xtreme.as_markdown(results)
    assert "\n| score | 25.0 | 75.0 | 33.3 | 83.3 | 0.0 | 50.0 |  |\n" in result
    assert "\n| transfer gap | 50.0 |  |  | 50.0 |  |  |  |\n" in result
    assert "## xnli\n\n|  | en | de | average | gap |\n" in result
    assert "\n| accuracy | 50.0 | 0.0 | 25.0 | 50.0 |\n" in result
    assert "\n| EM | 100.0 | 50.0 | 75.0 | 50.0 |\n" in result
    assert xtreme.panels(results)["mlqa: F1"]["en"] == 100


@pytest.mark.parametrize(
    "name, content, message",
    [
        (
            "xnli/test-de.tsv",
            None,
            r"xnli/test-de\.tsv is missing, but the file of this name",
        ),
        (
            "xnli/test-ar.tsv",
            "neutral\n",
            r"labels/xnli/test-ar\.tsv is missing, but the file of this name",
        ),
        (
            "xnli/test-de.tsv",
            "neutral\n0\n",
            r"xnli/test-de\.tsv:2: '0'; expected entail",
        ),
        (
            "udpos/test-en.tsv",
            "a\n",
            r"test-en\.tsv:1: 'a'; expected a universal part-of-speech",
        ),
        ("tatoeba/test-de.tsv", "1\n0.5\n", r"test-de\.tsv:2: '0\.5'; expected an index"),
        ("bucc2018/test-de.tsv", "de-1 en-1\n", r"test-de\.tsv:1: .*; expected a pair of ids"),
        ("mlqa/test-de.json", '{"a": ""}', r"answers 1 of the 2 questions .*, but not 'b'; write"),
        ("mlqa/test-en.json", '{"a": "", "z": ""}', r"'z' is not a question of .*labels/mlqa"),
    ],
)
def test_errors_name_the_file(folders, name, content, message):
    file = folders[1] / name
    file.unlink() if content is None else file.write_text(content)
    with pytest.raises(ConfigError, match=message):
        xtreme.score(*folders)


def test_folders_without_anything_to_score_are_refused(folders, tmp_path):
    with pytest.raises(ConfigError, match="nowhere is not a folder"):
        xtreme.score(folders[0], tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="have no task in common"):
        xtreme.score(folders[0], tmp_path / "empty")
    (tmp_path / "empty/xnli").mkdir()
    with pytest.raises(ConfigError, match=r"no file test-LANGUAGE\.tsv"):
        xtreme.score(tmp_path / "empty", tmp_path / "empty")
    (folders[0] / "bucc2018/test-de.tsv").write_text("")
    with pytest.raises(ConfigError, match=r"labels/bucc2018/test-de\.tsv is empty"):
        xtreme.score(*folders)
