"""The loss of masked words equals that of a plain loop over words, whatever the batches."""

import itertools

import jax
import numpy as np
import pytest
from references.encoder import encode, float64
from references.heads import prediction

from xlj import phrasebook
from xlj.config import Model
from xlj.data.text.cleaning import WORD
from xlj.data.tokenizer import vocabulary_training
from xlj.data.tokenizer.layout import BOS, EOS, UNK
from xlj.data.tokenizer.vocabulary import Vocabulary
from xlj.evaluation import word_loss
from xlj.inference.pretrained import Pretrained
from xlj.models import encoder
from xlj.objectives.mlm.head import init_prediction
from xlj.sharding import meshes, trees

pytestmark = pytest.mark.usefixtures("one_device")

LINES = [
    *itertools.islice(phrasebook.text_lines("en"), 4),
    "a b c d e f g h i j k l m n o p q r s t u v w x y z and so on it goes",
    "one",
    "Ελληνικά and one",  # no piece has Greek letters, so they become <unk>
]


@pytest.fixture(scope="module")
def pretrained():
    model = Model(layers=2, hidden=16, heads=2, intermediate=32, positions=40, init_std=0.3)
    lines = {"en": list(itertools.islice(phrasebook.text_lines("en"), 400))}
    vocabulary = Vocabulary(vocabulary_training.train(lines, {"en": 1}, 300, 1.0))
    params = encoder.init(jax.random.key(0), model, vocabulary.size, 0)
    params["prediction_head"] = init_prediction(jax.random.key(1), model, vocabulary.size)
    params = jax.device_put(params, trees.replicated(meshes.one_device()))
    return Pretrained(params, model, vocabulary)


def loop_over_words(pretrained, lines):
    """Returns nats, characters, words, and words with <unk>. Masks every seventh word at a time."""
    params, model, vocabulary, *_ = pretrained
    params = float64(params)
    nats = characters = words = unknown = 0
    for line in lines:
        encoded, spans = vocabulary.encode_with_spans([line])
        ids, begins = encoded.ids.tolist(), spans[:, 0].tolist()
        line_words = []  # (pieces, characters) of each word
        end = 0
        for match in WORD.finditer(line):  # a word's first piece begins at the space
            inside = [i for i, at in enumerate(begins) if end <= at < match.end()]
            end = match.end()
            if inside[-1] >= model.positions - 4:  # <s>, </s>, and two positions for padding
                break
            line_words.append((inside, len(match[0])))
        ids = ids[: line_words[-1][0][-1] + 1]
        known = [word for word in line_words if UNK not in [ids[i] for i in word[0]]]
        words, unknown = words + len(line_words), unknown + len(line_words) - len(known)
        characters += sum(size for _, size in known)
        for group in range(7):
            places = [i for pieces, _ in known[group::7] for i in pieces]
            if places:
                masked = [vocabulary.mask if i in places else ids[i] for i in range(len(ids))]
                tokens = [BOS, *masked, EOS]
                hidden = encode(params, model, [tokens], [[0, 0]])[-1][0]
                table = params["embeddings"]["word"]
                logits = prediction(params["prediction_head"], table, model, hidden)
                total = np.log(np.exp(logits).sum(-1))
                nats += sum(total[i + 1] - logits[i + 1, ids[i]] for i in places)
    return nats, characters, words, unknown


def test_the_loss_equals_that_of_a_loop_over_words(pretrained):
    nats, characters, words, unknown = loop_over_words(pretrained, LINES)
    assert unknown
    finished_rows = []
    loss = word_loss.measure(pretrained, {"en": LINES}, finished_rows.append)["en"]
    assert (loss.characters, loss.unknown) == (characters, unknown / words)
    assert loss.nats == pytest.approx(nats, rel=1e-5)
    assert loss.per_character == pytest.approx(nats / characters, rel=1e-5)
    assert sum(finished_rows) == sum(min(7, len(WORD.findall(line))) for line in LINES[:-1]) + 2


def test_texts_have_the_same_losses_in_shared_batches_and_alone(pretrained):
    texts = {
        "many": LINES,
        **{str(number): [line] for number, line in enumerate(LINES)},
        "none": [],
    }
    together = word_loss.measure(pretrained, texts)
    assert list(together) == list(texts)
    for name, lines in texts.items():
        alone = word_loss.measure(pretrained, {name: lines})[name]
        assert together[name].nats == pytest.approx(alone.nats, rel=1e-5)
        assert together[name][1:] == alone[1:]
    each = [together[str(number)].nats for number in range(len(LINES))]
    assert together["many"].nats == pytest.approx(sum(each), rel=1e-5)
    assert len(set(each)) == len(each)


def test_texts_in_shared_batches_compile_few_shapes(pretrained, monkeypatch):
    texts = {str(number): LINES[: number + 3] for number in range(4)}
    shapes = []
    losses = word_loss._losses
    monkeypatch.setattr(
        word_loss,
        "_losses",
        lambda params, *arrays, **options: (
            shapes.append(tuple(array.shape for array in arrays))
            or losses(params, *arrays, **options)
        ),
    )
    word_loss.measure(pretrained, texts)
    together = len(set(shapes))
    shapes.clear()
    word_loss.measure(pretrained, {"all": sum(texts.values(), [])})
    assert together == len(set(shapes))


def test_lines_without_a_known_word_have_no_loss(pretrained):
    for lines in ([], ["Ελληνικά"]):
        loss = word_loss.measure(pretrained, {"el": lines})["el"]
        assert (loss.nats, loss.characters) == (0, 0)
        assert np.isnan(loss.per_character)


def test_scripts_without_spaces_have_words_of_two_characters():
    assert WORD.findall("我们今天 go ไปโรงเรียน.") == [
        "我们",
        "今天",
        "go",
        "ไป",
        "โร",
        "งเ",
        "รี",
        "ยน",
        ".",
    ]
