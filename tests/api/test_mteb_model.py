"""mteb takes an encoder of `xlj.load` as a model; its scores equal those of the exported folder."""

import dataclasses
import json

import pytest

import xlj
from xlj import phrasebook
from xlj.api import mteb_model
from xlj.config import ConfigError

PROMPTS = {"query": "Frage: ", "document": "Text: ", "STS": "Satz: ", "other": "Andere: "}


@pytest.fixture(scope="module")
def folder(checkpoint, tmp_path_factory):
    """An exported sentence-transformers folder with prompts."""
    folder = tmp_path_factory.mktemp("exported") / "model"
    xlj.load(checkpoint).save_pretrained(folder, pooling="mean")
    settings = {"prompts": PROMPTS, "default_prompt_name": "other"}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    return folder


def tasks():
    """Returns tasks of retrieval, STS and bitext mining, which are made in memory."""
    mteb = pytest.importorskip("mteb")
    from datasets import Dataset, DatasetDict

    pairs = [phrasebook.pair(phrasebook.draw(5, n), "en", "de") for n in range(60)]
    english, german = (
        [getattr(pair, side).text for pair in pairs] for side in ("source", "target")
    )

    def describe(kind, score):
        return mteb.TaskMetadata(
            name=f"Phrases{kind}", type=kind, main_score=score, description="Phrases.",
            dataset={"path": "none", "revision": "1"}, reference=None, category="t2t",
            modalities=["text"], eval_splits=["test"], eval_langs=["eng-Latn"], date=None,
            domains=None, task_subtypes=None, license=None, annotations_creators=None,
            dialect=None, sample_creation=None, bibtex_citation="",
        )  # fmt: skip

    class Retrieval(mteb.abstasks.AbsTaskRetrieval):
        metadata = describe("Retrieval", "ndcg_at_10")

        def load_data(self, **options):
            records = [{"id": f"d{n}", "text": text, "title": english[-n]}
                       for n, text in enumerate(german)]  # fmt: skip
            queries = [{"id": f"q{n}", "text": text} for n, text in enumerate(english[:20])]
            relevant = {f"q{n}": {f"d{n}": 2, f"d{n + 20}": 1} for n in range(20)}
            split = {
                "queries": Dataset.from_list(queries),
                "corpus": Dataset.from_list(records),
                "relevant_docs": relevant,
                "top_ranked": None,
            }
            self.dataset, self.data_loaded = {"default": {"test": split}}, True

    class Similarity(mteb.abstasks.AbsTaskSTS):
        metadata = describe("STS", "cosine_spearman")

        def load_data(self, **options):
            columns = {"sentence1": english, "sentence2": german}
            columns["score"] = [n % 7 / 2 for n in range(60)]
            self.dataset = DatasetDict({"test": Dataset.from_dict(columns)})
            self.data_loaded = True

    class Bitext(mteb.abstasks.text.bitext_mining.AbsTaskBitextMining):
        metadata = describe("BitextMining", "f1")

        def load_data(self, **options):
            columns = {"sentence1": english, "sentence2": german}
            self.dataset = DatasetDict({"test": Dataset.from_dict(columns)})
            self.data_loaded = True

    return [Retrieval(), Similarity(), Bitext()]


@pytest.mark.parity
@pytest.mark.slow
def test_scores_equal_those_of_the_exported_folder(folder):
    mteb = pytest.importorskip("mteb")
    models = pytest.importorskip("sentence_transformers")

    def scores(model):
        result = mteb.evaluate(model, tasks(), cache=None, show_progress_bar=False)
        return {
            f"{task.task_name} {name}": value
            for task in result.task_results
            for name, value in task.scores["test"][0].items()
            if isinstance(value, float)
        }

    ours, others = scores(xlj.load(folder)), scores(models.SentenceTransformer(str(folder)))
    assert len(ours) > 50
    for name in ("Retrieval ndcg_at_10", "STS spearman", "STS pearson", "BitextMining f1"):
        assert 0.001 < abs(ours[f"Phrases{name}"]) < 0.999
    assert ours == pytest.approx(others, abs=5e-5, nan_ok=True)


@pytest.mark.parity
def test_prompts_are_those_of_the_type_and_the_revision_depends_on_them(folder):
    mteb = pytest.importorskip("mteb")
    encoder, of_task = xlj.load(folder), [task.metadata for task in tasks()]
    kinds = (mteb.types.PromptType.query, mteb.types.PromptType.document, None)
    assert [mteb_model.prompt(encoder.pretrained.sentence, of_task[0], kind) for kind in kinds] == [
        "Frage: ", "Text: ", None,
    ]  # fmt: skip
    assert mteb_model.prompt(encoder.pretrained.sentence, of_task[1], None) == "Satz: "
    without = encoder.pretrained._replace(sentence=None)
    assert [mteb_model.prompt(None, of_task[0], kind) for kind in kinds] == ["", "", None]
    metas = [xlj.Encoder(each, "runs/a").mteb_model_meta for each in (encoder.pretrained, without)]
    assert metas[0].name == "xlj/a" and metas[0].revision != metas[1].revision
    assert metas[0].revision == encoder.mteb_model_meta.revision


def test_other_inputs_than_text_are_errors():
    with pytest.raises(ConfigError, match="the task T has image, but xlj encodes text only"):
        mteb_model.texts_of([{"image": []}], "T")
    assert mteb_model.texts_of([{"text": ["a", "b"]}, {"text": ["c"]}], "T") == ["a", "b", "c"]


@pytest.mark.parity
def test_another_similarity_than_the_cosine_is_refused(folder):
    pytest.importorskip("mteb")
    loaded = xlj.load(folder).pretrained

    def encoder(name, steps):
        settings = {"similarity_fn_name": name}
        changes = {"settings": settings, "steps": steps}
        return xlj.Encoder(
            loaded._replace(sentence=dataclasses.replace(loaded.sentence, **changes))
        )

    with pytest.raises(ConfigError, match="names the similarity 'dot', but xlj computes cosines"):
        _ = encoder("dot", ()).mteb_model_meta
    for name, steps in (("dot", (None,)), ("cosine", ()), (None, ())):
        assert encoder(name, steps).mteb_model_meta.name == "xlj/encoder"


def test_only_an_encoder_of_a_task_has_predict(checkpoint):
    """mteb takes a model with `predict` for a cross-encoder, and refuses it."""
    encoder = xlj.load(checkpoint)
    assert not hasattr(encoder, "predict") and not hasattr(type(encoder), "predict")
    with pytest.raises(ConfigError, match="the model has no task head; expected a run of xlj fin"):
        encoder.predict("a")
    with pytest.raises(AttributeError, match="no attribute 'other'"):
        _ = encoder.other
