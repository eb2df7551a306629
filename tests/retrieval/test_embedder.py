"""A sentence's vector depends only on the sentence, the layer and the pooling."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding

from xlj import phrasebook
from xlj.config import ConfigError
from xlj.config.choices import POOLINGS
from xlj.data.tokenizer.layout import BOS, EOS
from xlj.inference import pretrained, row_batches
from xlj.models import encoder
from xlj.retrieval import embedder as embedders
from xlj.retrieval import sentence_embedder
from xlj.retrieval.embedder import Embedder
from xlj.sharding.devices import AXES, REPLICATED

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
def test_vectors_equal_those_of_each_sentence_encoded_alone(pooling, layers, random_encoder):
    embedder = Embedder(random_encoder, layers, pooling)
    vectors = embedder.embed(SENTENCES)
    assert vectors.shape == (len(layers), 4, 32) and embedder.truncated == 0
    for sentence_index, sentence in enumerate(SENTENCES):
        ids = random_encoder.vocabulary.encode_batch([sentence])[0]
        tokens = jnp.asarray([[BOS, *ids, EOS]])
        ones = jnp.ones_like(tokens)
        inputs = encoder.Inputs(tokens, jnp.arange(tokens.shape[1])[None], ones, ones)
        all_layers = encoder.apply(
            random_encoder.params, random_encoder.model, inputs, all_layers=True
        )
        for layer_index, layer in enumerate(layers):
            expected = pooled(all_layers[layer][0], pooling)
            np.testing.assert_allclose(
                vectors[layer_index, sentence_index], expected, rtol=1e-4, atol=1e-5
            )


def test_a_stream_gives_the_same_vectors_and_reads_only_the_needed_lines(
    random_encoder, monkeypatch
):
    monkeypatch.setattr(sentence_embedder, "_CHUNK", 7)
    monkeypatch.setattr(row_batches, "_batch_tokens", lambda: 48)
    line_embedder, lines_read, finished = Embedder(random_encoder, (1, 2), "mean"), [], []
    lines = [phrasebook.pair(phrasebook.draw(3, k), "en", "de").source.text for k in range(40)]

    def read_lines():
        for line in lines:
            lines_read.append(line)
            yield line

    stream = line_embedder.stream(read_lines(), finished.append)
    first = next(stream)
    assert first.shape == (2, 7, 32) and len(lines_read) == 7
    vectors = np.concatenate([first, *stream], axis=1)
    assert lines_read == lines and sum(finished) == 40 and len(finished) > 12
    np.testing.assert_allclose(vectors, line_embedder.embed(lines), rtol=1e-4, atol=1e-5)
    alone = np.concatenate([line_embedder.embed([line]) for line in lines[:10]], axis=1)
    np.testing.assert_allclose(vectors[:, :10], alone, rtol=1e-4, atol=1e-5)


def test_long_sentences_are_truncated_and_counted(random_encoder):
    embedder = Embedder(random_encoder, (1,), "mean")
    long = "a b c d e f g h " * 20
    vectors = embedder.embed([long, "short", long + "and more"])
    assert embedder.truncated == 2
    np.testing.assert_allclose(vectors[0, 0], vectors[0, 2], rtol=1e-5, atol=1e-6)


def test_a_layer_that_the_model_does_not_have_is_refused(random_encoder):
    with pytest.raises(ConfigError, match="layer 4 does not exist; the model has layers 0 to 3"):
        Embedder(random_encoder, (4,), "mean")


@pytest.mark.parity
def test_means_equal_those_of_sentence_transformers(tmp_path):
    """Computes the mean over all tokens except padding, like the Pooling module."""
    transformers, torch = pytest.importorskip("transformers"), pytest.importorskip("torch")
    from tokenizers.implementations import BertWordPieceTokenizer

    lines = [phrasebook.pair(phrasebook.draw(4, k), "en", "de").source.text for k in range(60)]
    word_pieces = BertWordPieceTokenizer()
    word_pieces.train_from_iterator(lines, vocab_size=200)
    word_pieces.save_model(str(tmp_path))
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=word_pieces.get_vocab_size(), hidden_size=32, num_hidden_layers=3,
        num_attention_heads=4, intermediate_size=64, max_position_embeddings=80,
        initializer_range=0.2,
    )  # fmt: skip
    model = transformers.BertModel(config).eval()
    model.save_pretrained(tmp_path)
    vectors = Embedder(pretrained.load(tmp_path), (1, 3), "mean").embed(lines)

    tokenizer = transformers.BertTokenizer(str(tmp_path / "vocab.txt"))
    encoded = tokenizer(lines, padding=True, return_tensors="pt")
    mask = encoded["attention_mask"][..., None].float()
    with torch.no_grad():
        all_layers = model(**encoded, output_hidden_states=True).hidden_states
    for layer_index, layer in enumerate((1, 3)):
        expected = (all_layers[layer] * mask).sum(1) / mask.sum(1)
        np.testing.assert_allclose(vectors[layer_index], expected.numpy(), atol=1e-4)


def test_a_model_without_modules_is_embedded_by_the_mean_of_its_last_layer(random_encoder):
    assert random_encoder.sentence is None
    layers = random_encoder.model.layers
    expected = Embedder(random_encoder, [layers], "mean").embed(SENTENCES)
    found = embedders.by_modules(random_encoder)
    assert found.layers == (layers,)
    np.testing.assert_array_equal(found.embed(SENTENCES), expected)


@pytest.mark.parametrize("count", [2, 8])
def test_vectors_do_not_depend_on_the_number_of_devices(count, random_encoder, monkeypatch):
    """Bit for bit, if each device computes whole batches."""
    monkeypatch.setattr(row_batches, "_batch_tokens", lambda: 256)
    lines = [phrasebook.pair(phrasebook.draw(3, k), "en", "de").source.text for k in range(150)]
    lines += [" ".join(lines[k : k + 3]) for k in range(0, 150, 3)]
    mesh = Mesh(np.array(jax.devices()[:count]).reshape(count, 1), AXES)
    copies = jax.device_put(random_encoder.params, NamedSharding(mesh, REPLICATED))
    alone, spread = (
        Embedder(encoder, (3,), "mean", whole_batches=True)
        for encoder in (random_encoder, random_encoder._replace(params=copies))
    )
    fill, shapes = embedders.fill_rows, []
    monkeypatch.setattr(embedders, "fill_rows", lambda *of: shapes.append(of[3]) or fill(*of))
    vectors = spread.embed(lines)
    of_device = {(rows // count, width) for rows, width in shapes}
    shapes.clear()
    np.testing.assert_array_equal(vectors, alone.embed(lines))
    assert {*shapes} == of_device
