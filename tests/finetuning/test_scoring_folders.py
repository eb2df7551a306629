"""`train.steps=0` scores the head of a Hugging Face folder; predictions equal transformers'."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from xlj import convert, phrasebook
from xlj.api.loading import load
from xlj.checkpoints import stored_models
from xlj.config import ConfigError, finetuning
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.finetuning import task_runs
from xlj.interop import tokenizer_files

pytestmark = pytest.mark.parity
LINES = [phrasebook.pair(phrasebook.draw(4, k), "en", "de").source.text for k in range(120)]
LABELS = ("neutral", "entailment", "contradiction")  # not in alphabetical order


@pytest.fixture(scope="module")
def vocabulary():
    return Vocabulary(vocabulary_training.train({"en": LINES}, {"en": 1}, 200, 1.0))


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Files of labelled sentence pairs, in the format that the commands read."""
    folder = tmp_path_factory.mktemp("pairs")
    for split, first in (("train", 0), ("test", 60)):
        rows = zip(LINES[first : first + 40], LINES[first + 1 : first + 41], strict=True)
        text = [f"{a}\t{b}\t{LABELS[k % 3]}\n" for k, (a, b) in enumerate(rows)]
        (folder / f"{split}-en.tsv").write_text("".join(text))
    return folder


def make_config(folder, data, **task):
    config = finetuning.default()
    config.init_from, config.data.cache = str(folder), str(data / "rows")
    config.task.train, config.task.test = f"{data}/train-en.tsv", f"{data}/test-en.tsv"
    config.task.length, config.task.select, config.train.steps = 40, "last", 0
    for name, value in task.items():
        config.task[name] = value
    return finetuning.parse(config)


def save_hf_model(kind, path, vocabulary, ending="SequenceClassification"):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    torch.manual_seed(0)
    labels = LABELS[:2] if ending == "QuestionAnswering" else LABELS
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=vocabulary.size, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=48, max_position_embeddings=60, initializer_range=0.4,
        pad_token_id=1, bos_token_id=0, eos_token_id=2, id2label=dict(enumerate(labels)),
        label2id={name: i for i, name in enumerate(labels)}, type_vocab_size=1,
        num_labels=len(labels),
    )  # fmt: skip
    model = getattr(transformers, f"{kind}For{ending}")(config).eval()
    model.save_pretrained(path)
    tokenizer_files.write(vocabulary, path, 58)
    return model


def test_predictions_for_labelled_pairs_equal_those_of_transformers(tmp_path, vocabulary, data):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    model = save_hf_model("XLMRoberta", tmp_path / "model", vocabulary)
    outcome = task_runs.run(make_config(tmp_path / "model", data), tmp_path / "run")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    pairs = [(LINES[60 + k], LINES[61 + k]) for k in range(40)]
    encoded = tokenizer(*map(list, zip(*pairs, strict=True)), padding=True, return_tensors="pt")
    assert (encoded["input_ids"] == 2).sum() == 3 * 40
    with torch.no_grad():
        logits = model(**encoded).logits.numpy()
    expected = [LABELS[k] for k in logits.argmax(1)]
    assert len(set(expected)) > 1
    actual = (tmp_path / "run/untrained/predictions/test-en.tsv").read_text().split()
    assert actual == expected
    share = np.mean([name == LABELS[k % 3] for k, name in enumerate(expected)])
    assert outcome.runs[0].test == {"accuracy": {"en": pytest.approx(100 * share)}}
    assert set(outcome.baseline) == {"accuracy"}
    test_only = task_runs.run(
        make_config(tmp_path / "model", data, train="", select="all"), tmp_path / "alone"
    )
    assert test_only.runs[0].test == outcome.runs[0].test and not test_only.baseline


@pytest.mark.parametrize(
    "ending", ["SequenceClassification", "MultipleChoice", "QuestionAnswering"]
)
def test_predictions_for_new_text_equal_those_of_transformers(tmp_path, vocabulary, ending):
    """Like XLM-R's tokenizer, `xlj.predict` puts two `</s>` between parts, for each kind of task.

    Tests the Hugging Face folder and its import.
    """
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    model = save_hf_model("XLMRoberta", tmp_path / "model", vocabulary, ending)
    if ending == "SequenceClassification":
        file = tmp_path / "model" / "config.json"
        single_output = {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}}
        file.write_text(
            json.dumps(
                json.loads(file.read_text()) | single_output | {"problem_type": "regression"}
            )
        )
        tensors = load_file(tmp_path / "model" / "model.safetensors")
        for name in ("classifier.out_proj.weight", "classifier.out_proj.bias"):
            tensors[name] = tensors[name][:1]
        save_file(tensors, tmp_path / "model" / "model.safetensors", {"format": "pt"})
        model = type(model).from_pretrained(tmp_path / "model").eval()
    if ending == "QuestionAnswering":
        task = {"length": 57, "stride": 16, "question_length": 20, "answer_length": 8}
        (tmp_path / "model" / "task.json").write_text(json.dumps(task))
    assert (
        convert.main(["import", f"--source={tmp_path}/model", f"--output={tmp_path}/imported"]) == 0
    )
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    xlj_models = [load(tmp_path / name) for name in ("model", "imported")]
    for k in range(8):
        first, *others = (" ".join(line.split()[:3]) for line in LINES[k : k + 3])
        if ending != "MultipleChoice":
            others = others[:1]
        batch = tokenizer([first] * len(others), others, padding=True, return_tensors="pt")
        with torch.no_grad():
            if ending == "MultipleChoice":
                batch = {name: values[None] for name, values in batch.items()}
            output = model(**batch)
        for xlj_model in xlj_models:
            (prediction,) = xlj_model.predict([(first, *others)])
            if ending == "SequenceClassification":
                assert prediction["score"] == pytest.approx(output.logits.item(), abs=1e-4)
            elif ending == "MultipleChoice":
                expected = output.logits[0].softmax(0).tolist()
                np.testing.assert_allclose(prediction["probabilities"], expected, atol=1e-5)
            else:
                starts, ends = output.start_logits[0].numpy(), output.end_logits[0].numpy()
                begin = len(tokenizer(first)["input_ids"]) + 1
                pieces = tokenizer.convert_ids_to_tokens(batch["input_ids"][0])
                places = [k for k in range(begin, len(pieces) - 1) if pieces[k] != "\u2581"]
                sums = starts[places][:, None] + ends[places]
                spans = sums[np.triu_indices(len(sums))]
                assert prediction["score"] == pytest.approx(spans.max(), abs=1e-4)


def test_other_labels_and_a_folder_without_the_head_are_refused(tmp_path, vocabulary, data):
    save_hf_model("XLMRoberta", tmp_path / "model", vocabulary)
    with pytest.raises(ConfigError, match=r"task.labels is a,b, but the head of .* has neutral,"):
        task_runs.run(make_config(tmp_path / "model", data, labels="a,b"), tmp_path / "run")
    file = tmp_path / "model" / "config.json"
    config = json.loads(file.read_text()) | {"architectures": ["XLMRobertaModel"]}
    file.write_text(json.dumps(config))
    with pytest.raises(ConfigError, match="has no classification_head"):
        task_runs.run(make_config(tmp_path / "model", data), tmp_path / "run")


def test_a_classifier_of_ernie_m_is_read_like_one_of_xlm_r(tmp_path, vocabulary):
    save_hf_model("XLMRoberta", tmp_path / "model", vocabulary)
    expected = stored_models.find(tmp_path / "model")
    source, tensors = tmp_path / "ernie", {}
    source.mkdir()
    for name, tensor in load_file(tmp_path / "model" / "model.safetensors").items():
        for old, new in (
            ("roberta.", "ernie_m."),
            ("embeddings.LayerNorm", "embeddings.layer_norm"),
            ("encoder.layer.", "encoder.layers."),
            ("attention.self.query", "self_attn.self_attn.q_proj"),
            ("attention.self.key", "self_attn.self_attn.k_proj"),
            ("attention.self.value", "self_attn.self_attn.v_proj"),
            ("attention.output.dense", "self_attn.out_proj"),
            ("attention.output.LayerNorm", "norm1"),
            ("intermediate.dense", "linear1"),
            ("output.dense", "linear2"),
            ("output.LayerNorm", "norm2"),
            ("classifier.dense", "ernie_m.pooler.dense"),
            ("classifier.out_proj", "classifier"),
        ):
            name = name.replace(old, new)
        if "token_type" not in name:
            tensors[name] = tensor
    save_file(tensors, source / "model.safetensors")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    config |= {"model_type": "ernie_m", "architectures": ["ErnieMForSequenceClassification"]}
    (source / "config.json").write_text(json.dumps(config))
    (source / "sentencepiece.bpe.model").write_bytes(vocabulary.model)
    actual = stored_models.find(source)
    assert actual.labels == LABELS and "classification_head/output/kernel" in actual.leaves
    assert actual.leaves.keys() == expected.leaves.keys() - {"embeddings/token_type"}
    for name in actual.leaves:
        np.testing.assert_array_equal(actual.leaves[name], expected.leaves[name], name)
