"""The default options of alignment follow from what the model was trained on."""

import dataclasses
import json

import pytest

import xlj
from xlj.checkpoints import stored_models
from xlj.config.choices import AlignmentOptions
from xlj.conversion.exporting import export
from xlj.conversion.importing import import_folder
from xlj.training.start import Start
from xlj.word_alignment import defaults


@pytest.mark.parametrize("on_pairs", [False, True])
def test_a_model_trained_on_pairs_encodes_them_together(random_encoder, on_pairs):
    model = random_encoder._replace(trained_on_pairs=on_pairs)
    chosen = defaults.resolve(AlignmentOptions(prior=2.0), model)
    by_model = ("optimal_transport", "together") if on_pairs else ("argmax", "apart")
    assert chosen == AlignmentOptions(*by_model, 2, 2.0)
    explicit = AlignmentOptions("itermax", "apart" if on_pairs else "together", 0)
    assert defaults.resolve(explicit, model) == explicit
    text = defaults.describe(chosen, model)
    assert f"by {by_model[0]}, sentences encoded {by_model[1]}, layer 2" in text
    assert ("was trained on pairs" in text) == on_pairs


def test_checkpoints_and_folders_record_training_on_pairs(trained, checkpoint, tmp_path):
    """`trained` has MMLM and TLM, `checkpoint` only MMLM."""
    for path, on_pairs in ((trained, True), (checkpoint, False)):
        assert stored_models.find(path).trained_on_pairs == on_pairs
        folder, imported = (tmp_path / f"{name}-{on_pairs}" for name in ("folder", "imported"))
        export(str(path), folder)
        assert ("trained_on_pairs" in json.loads((folder / "config.json").read_text())) == on_pairs
        import_folder(folder, imported)
        for source in map(stored_models.find, (folder, imported)):
            assert source.trained_on_pairs == on_pairs


def test_a_run_inherits_training_on_pairs_with_the_layers(trained, checkpoint, tiny):
    from xlj.config import parse

    def start(source, config):
        return Start(config, None, None, None, source, {}, None, None, [])

    tiny.objectives.tlm.batch_size = 0
    tiny.data.pairs = tiny.data.parallel = ""
    tiny.init_from = str(trained)
    config, on_pairs = parse(tiny), stored_models.find(trained)
    assert start(on_pairs, config).trained_on_pairs
    assert not start(stored_models.find(checkpoint), config).trained_on_pairs
    transfer = dataclasses.replace(config.transfer, parts=("embeddings",))
    assert not start(on_pairs, dataclasses.replace(config, transfer=transfer)).trained_on_pairs
    resumed = dataclasses.replace(start(None, config), latest=on_pairs.checkpoint)
    assert resumed.trained_on_pairs


@pytest.mark.slow
def test_checkpoints_of_a_run_on_text_record_that_it_started_from_a_model_of_pairs(
    trained, tiny, tmp_path
):
    tiny.objectives.tlm.batch_size = 0
    tiny.data.pairs = tiny.data.parallel = ""
    tiny.init_from, tiny.transfer.model = str(trained), "init_from"
    tiny.train.steps = tiny.train.checkpoint_every = tiny.train.eval_every = 2
    xlj.pretrain(tiny, tmp_path / "text")
    assert stored_models.find(tmp_path / "text").trained_on_pairs
