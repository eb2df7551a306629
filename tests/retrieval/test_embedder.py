"""A sentence's vector depends only on the sentence, the layer and the pooling."""

import jax.numpy as jnp
import numpy as np
import pytest

from xlj import phrasebook
from xlj.config import ConfigError
from xlj.config.choices import POOLINGS
from xlj.data.tokenizer.layout import BOS, EOS
from xlj.inference import pretrained, row_batches
from xlj.models import encoder
from xlj.retrieval import embedder
from xlj.retrieval.embedder import Embedder

SENTENCES = ["The cat sleeps.", "", "Maria is reading a book in the garden.", "Good morning!"]


def pooled(hidden, pooling):
    """Pools [length, hidden] to [hidden], without padding."""
    if pooling == "first":
        return hidden[0]
    if pooling == "mean":
        return hidden.mean(0)
    return hidden[1:-1].mean(0) if len(hidden) > 2 else jnp.zeros(hidden.shape[1])


@pytest.mark.parametrize("pooling", POOLINGS)
@pytest.mark.parametrize("layers", [(0, 2), (3,)], ids=str)
def test_vectors_equal_the_encoders_of_each_sentence_alone(pooling, layers, random_encoder):
    embedder = Embedder(random_encoder, layers, pooling)
    found = embedder.embed(SENTENCES)
    assert found.shape == (len(layers), 4, 32) and embedder.truncated == 0
    for index, sentence in enumerate(SENTENCES):
        ids = random_encoder.vocabulary.encode_batch([sentence])[0]
        tokens = jnp.asarray([[BOS, *ids, EOS]])
        ones = jnp.ones_like(tokens)
        inputs = encoder.Inputs(tokens, jnp.arange(tokens.shape[1])[None], ones, ones)
        every = encoder.apply(random_encoder.params, random_encoder.model, inputs, all_layers=True)
        for place, layer in enumerate(layers):
            wanted = pooled(every[layer][0], pooling)
            np.testing.assert_allclose(found[place, index], wanted, rtol=1e-4, atol=1e-5)


def test_a_stream_has_the_same_vectors_and_reads_no_further_than_it_must(
    random_encoder, monkeypatch
):
    monkeypatch.setattr(embedder, "_CHUNK", 7)
    monkeypatch.setattr(row_batches, "_batch_tokens", lambda: 48)
    made, read, done = Embedder(random_encoder, (1, 2), "mean"), [], []
    lines = [phrasebook.pair(phrasebook.draw(3, k), "en", "de").source.text for k in range(40)]

    def reading():
        for line in lines:
            read.append(line)
            yield line

    stream = made.stream(reading(), done.append)
    first = next(stream)
    assert first.shape == (2, 7, 32) and len(read) == 7
    found = np.concatenate([first, *stream], axis=1)
    assert read == lines and sum(done) == 40 and len(done) > 12
    np.testing.assert_allclose(found, made.embed(lines), rtol=1e-4, atol=1e-5)
    alone = np.concatenate([made.embed([line]) for line in lines[:10]], axis=1)
    np.testing.assert_allclose(found[:, :10], alone, rtol=1e-4, atol=1e-5)


def test_long_sentences_are_cut_and_counted(random_encoder):
    embedder = Embedder(random_encoder, (1,), "mean")
    long = "a b c d e f g h " * 20
    vectors = embedder.embed([long, "short", long + "and more"])
    assert embedder.truncated == 2
    np.testing.assert_allclose(vectors[0, 0], vectors[0, 2], rtol=1e-5, atol=1e-6)


def test_a_layer_that_is_not_there_is_refused(random_encoder):
    with pytest.raises(ConfigError, match="layer 4 does not exist; the model has layers 0 to 3"):
        Embedder(random_encoder, (4,), "mean")


@pytest.mark.parity
def test_means_are_those_of_sentence_transformers(tmp_path):
    """The mean over all tokens but padding, as in the Pooling module."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    from tokenizers.implementations import BertWordPieceTokenizer

    lines = [phrasebook.pair(phrasebook.draw(4, k), "en", "de").source.text for k in range(60)]
    made = BertWordPieceTokenizer()
    made.train_from_iterator(lines, vocab_size=200)
    made.save_model(str(tmp_path))
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=made.get_vocab_size(), hidden_size=32, num_hidden_layers=3,
        num_attention_heads=4, intermediate_size=64, max_position_embeddings=80,
        initializer_range=0.2,
    )  # fmt: skip
    model = transformers.BertModel(config).eval()
    model.save_pretrained(tmp_path)
    found = Embedder(pretrained.load(tmp_path), (1, 3), "mean").embed(lines)

    tokenizer = transformers.BertTokenizer(str(tmp_path / "vocab.txt"))
    encoded = tokenizer(lines, padding=True, return_tensors="pt")
    real = encoded["attention_mask"][..., None].float()
    with torch.no_grad():
        every = model(**encoded, output_hidden_states=True).hidden_states
    for place, layer in enumerate((1, 3)):
        wanted = (every[layer] * real).sum(1) / real.sum(1)
        np.testing.assert_allclose(found[place], wanted.numpy(), atol=1e-4)
