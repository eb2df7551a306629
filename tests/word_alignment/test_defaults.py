"""The default options of alignment follow from what the model was trained on."""

import dataclasses
import json
import shutil

import pytest

import xlj
from xlj import align
from xlj.checkpoints import reading, stored_models, writing
from xlj.config import ConfigError, build
from xlj.config.choices import AlignmentOptions
from xlj.conversion.exporting import export
from xlj.conversion.importing import import_folder, store
from xlj.training.start import Start
from xlj.word_alignment import defaults, methods


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


def write(path, encoder, options, entries):
    """Writes a checkpoint with options of alignment and these entries of its description."""
    sections = {"model": encoder.model, "evaluation": {"alignment": options}}
    config = build(json.loads(json.dumps(sections, default=dataclasses.asdict)))
    writing.write_params(path, encoder.params, config, encoder.vocabulary, ["en"], entries)


@pytest.fixture(scope="module")
def aligner(random_encoder, tmp_path_factory):
    """The path of a checkpoint with its options of alignment, among them the layer that its run
    chose. `folder` beside it is its export."""
    path = tmp_path_factory.mktemp("aligner") / "checkpoint"
    options = AlignmentOptions("itermax", "apart", -1, 1.5)
    write(path, random_encoder, options, {reading.ALIGNED_LAYER: 3})
    export(str(path), path.with_name("folder"))
    return path, dataclasses.replace(options, layer=3)


def test_conversions_keep_the_options_of_alignment_and_the_layer_if_it_remains(
    random_encoder, aligner, tmp_path
):
    path, options = aligner
    import_folder(path.with_name("folder"), tmp_path / "imported")
    for whole in (path, path.with_name("folder"), tmp_path / "imported"):
        assert stored_models.find(whole).alignment == options, whole
    export(str(path), tmp_path / "cut", layer=2)
    source = stored_models.find(path)
    shallow = dataclasses.replace(source.model, layers=2)
    store(tmp_path / "trimmed", source, random_encoder.params, shallow, random_encoder.vocabulary)
    for name in ("cut", "trimmed"):
        without = dataclasses.replace(options, layer=-1)
        assert stored_models.find(tmp_path / name).alignment == without, name


def test_a_folder_without_the_head_of_a_method_has_the_default_method(random_encoder, tmp_path):
    """Exports leave out the head that `hmm` needs."""
    hmm, argmax = AlignmentOptions("hmm", "apart", 0), AlignmentOptions("argmax", "apart", 3)
    write(tmp_path / "checkpoint", random_encoder, hmm, {})
    export(str(tmp_path / "checkpoint"), tmp_path / "folder")
    for name, options in (("checkpoint", hmm), ("folder", AlignmentOptions())):
        assert stored_models.find(tmp_path / name).alignment == options
    assert methods.usable(hmm, {"layers": 1}) == AlignmentOptions()
    assert methods.usable(hmm, {"layers": 1, "word_hmm_head": 2}) == hmm
    assert methods.usable(argmax, {}) == argmax
    assert methods.usable(AlignmentOptions(), {}) == AlignmentOptions()


def test_a_folder_aligns_as_its_checkpoint(aligner, tmp_path, call):
    path, folder = aligner[0], aligner[0].with_name("folder")
    (tmp_path / "pairs.tsv").write_text("der Hund schläft heute\tthe dog sleeps today\n")
    run = (align.main, f"--input={tmp_path}/pairs.tsv", "--output=-", "--scores")
    links = [call(*run, f"--checkpoint={model}") for model in (path, folder)]
    assert links[0].out and links[0].out == links[1].out
    assert "by itermax, sentences encoded apart, layer 3" in links[1].err
    assert call(*run, f"--checkpoint={folder}", "--layer=2").out != links[0].out


@pytest.mark.parametrize(
    "recorded, message",
    [
        (["argmax"], r"\['argmax'\] is not a JSON object"),
        ({"layer": 4}, "layer is 4; it must be at most 3"),
        ({"layer": "3"}, "layer is '3'"),
        ({"method": "argmin"}, "did you mean argmax"),
        ({"layers": 3}, "layers; did you mean layer"),
    ],
)
def test_impossible_options_in_a_folder_are_an_error(aligner, tmp_path, recorded, message):
    folder = shutil.copytree(aligner[0].with_name("folder"), tmp_path / "folder")
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"word_alignment": recorded}))
    with pytest.raises(ConfigError, match=f"config.json: word_alignment: .*{message}"):
        stored_models.find(folder)


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
