"""Checks of output paths: an output never overwrites an input of the same command."""

import os
import shutil
from types import SimpleNamespace

import pytest

from xlj import align, embed, evaluate, finetune, mine, report, retrieve, sweep, train
from xlj.cli import outputs
from xlj.cli.outputs import check_folder, check_output
from xlj.config import ConfigError


@pytest.fixture
def text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "text.tsv"
    path.write_text("one two\teins zwei\nthree\tdrei\n")
    return path


def assert_refused(output, *inputs):
    with pytest.raises(ConfigError, match=f"--output={output} would overwrite"):
        check_output("output", output, inputs)


def test_an_output_must_not_be_an_input_under_another_name(text, tmp_path):
    (tmp_path / "link").symlink_to("text.tsv")
    os.link(text, tmp_path / "hard")
    (tmp_path / "folder").symlink_to(".")
    for output in (text, "text.tsv", "./text.tsv", "link", "hard", "folder/text.tsv"):
        assert_refused(output, ("gold", None), ("input", text))
        assert_refused("text.tsv", ("input", output))
    (tmp_path / "dangling").symlink_to("none.tsv")
    assert_refused("none.tsv", ("scores", "dangling"))  # another output, which does not exist yet
    check_output("output", "none.tsv", [("input", text), ("gold", "other.tsv")])


def test_an_output_must_not_be_the_file_that_is_standard_input(text):
    saved_input = os.dup(0)
    try:
        with text.open() as file:
            os.dup2(file.fileno(), 0)
        assert_refused("text.tsv", ("input", "-"))
        check_output("output", "none.tsv", [("input", "-")])
    finally:
        os.dup2(saved_input, 0)
        os.close(saved_input)


@pytest.mark.parametrize(
    "file", ["checkpoints/3/meta/a", "config.json", "model.safetensors", "vocab.txt"]
)
def test_an_output_must_not_be_a_file_of_a_model(tmp_path, file):
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).touch()
    assert_refused(tmp_path / file, ("checkpoint", tmp_path))
    check_output("output", tmp_path / "new.json", [("checkpoint", tmp_path)])
    (tmp_path / "words.jsonl").touch()  # the output of an earlier run of the command
    check_output("output", tmp_path / "words.jsonl", [("checkpoint", tmp_path)])


def test_an_output_must_not_be_a_file_of_a_checkpoint_folder(tmp_path):
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta/a").touch()
    assert_refused(tmp_path / "meta/a", ("checkpoint", tmp_path))


def test_an_output_folder_must_not_be_below_a_file(text, tmp_path):
    check_folder("folder", tmp_path)
    check_folder("folder", "new/folder")
    for path in ("text.tsv", "text.tsv/new/folder"):
        with pytest.raises(ConfigError, match=f"--folder={path}: .*text.tsv is a file"):
            check_folder("folder", path)


def test_symbolic_links_that_form_a_cycle_are_refused(text):
    os.symlink("there", "here")
    os.symlink("here", "there")
    for path in ("here", "there/file"):
        with pytest.raises(
            ConfigError, match=f"--output={path}: the symbolic links of this path form a cycle"
        ):
            check_output("output", path)
        with pytest.raises(
            ConfigError, match=f"--folder={path}: the symbolic links of this path form a cycle"
        ):
            check_folder("folder", path)


def test_file_names_that_are_too_long_are_refused(text):
    for name in ("a" * 300, "a" * 300 + "/file"):
        with pytest.raises(ConfigError, match="--output=a+[^:]*: File name too long"):
            check_output("output", name)


@pytest.mark.parametrize(
    "main, arguments",
    [
        (align.main, ["--input=text.tsv", "--output=text.tsv"]),
        (align.main, ["--input=text.tsv", "--gold=gold", "--output=gold"]),
        (align.main, ["--input=text.tsv", "--gold", "--layers=all", "--output=text.tsv"]),
        (align.main, ["--input=text.tsv", "--gold=g.png", "--layers=all", "--plot=g.png"]),
        (
            align.main,
            ["--input=text.tsv", "--gold", "--layers=all", "--output=x.png", "--plot=x.png"],
        ),
        (embed.main, ["--input=text.tsv", "--output=text.tsv"]),
        (mine.main, ["--source=text.tsv", "--target=gold", "--threshold=1", "--output=text.tsv"]),
        (mine.main, ["--source=gold", "--target=text.tsv", "--threshold=1", "--output=text.tsv"]),
        (mine.main, ["--source=text.tsv", "--target=text.tsv", "--gold=gold", "--output=gold"]),
        (retrieve.main, ["--source=text.tsv", "--target=gold", "--output=text.tsv"]),
        (retrieve.main, ["--source=gold", "--target=text.tsv", "--output=text.tsv"]),
        (retrieve.main, ["--source=text.tsv", "--target=text.tsv", "--gold=gold", "--output=gold"]),
        (retrieve.main, ["--source=g.png", "--target=gold", "--layers=all", "--plot=g.png"]),
        (
            retrieve.main,
            ["--source={language}", "--target=en", "--output={language}.tsv", "--gold=text.tsv"]
            + ["--languages=de,text"],
        ),
    ],
)
def test_commands_refuse_to_overwrite_inputs_before_any_work(call, text, tmp_path, main, arguments):
    for name in ("gold", "g.png"):
        shutil.copy(text, tmp_path / name)
    with pytest.raises(ConfigError, match="would overwrite --"):
        call(main, "--checkpoint=none", *arguments)
    assert all((tmp_path / name).read_bytes() == text.read_bytes() for name in ("gold", "g.png"))


def test_evaluate_does_not_overwrite_labels_or_predictions(call, tmp_path):
    for side in ("labels", "predictions"):
        (tmp_path / side / "xquad").mkdir(parents=True)
        (tmp_path / side / "xquad/test-en.json").write_text("{}")
    folders = [f"--xtreme_{side}={tmp_path / side}" for side in ("labels", "predictions")]
    for side in ("labels", "predictions"):
        output = tmp_path / side / "xquad/test-en.json"
        with pytest.raises(ConfigError, match=f"would overwrite --xtreme_{side}="):
            call(evaluate.main, *folders, f"--output={output}")
        assert output.read_text() == "{}"


def test_a_report_does_not_overwrite_its_inputs(call, tmp_path):
    for name in ("config.json", "metrics.jsonl", "words.jsonl"):
        (tmp_path / name).write_text('{"step": 1}\n')
        with pytest.raises(ConfigError, match=f"would overwrite {tmp_path / name};"):
            call(report.main, tmp_path, f"--output={tmp_path / name}")
        assert (tmp_path / name).read_text() == '{"step": 1}\n'
    call(report.main, tmp_path, f"--output={tmp_path / 'report.html'}")


def test_submissions_and_plots_with_invalid_paths_are_refused_before_the_run(
    call, checkpoint, tmp_path
):
    for split in ("train", "test"):
        (tmp_path / "animals").mkdir(exist_ok=True)
        (tmp_path / f"animals/{split}-en.tsv").write_text("a\tb\tyes\nb\ta\tno\n")
    splits = {"train": "train", "dev": "train", "test": "test"}
    keys = [f"--config.task.{key}={tmp_path}/animals/{split}-{{language}}.tsv"
            for key, split in splits.items()]  # fmt: skip
    keys += ["--config.task.languages=en", "--config.task.test_languages=en"]
    recipe = tmp_path / "animals.py"
    recipe.write_text(
        "from xlj.config import finetuning\n\n\ndef get_config():\n"
        "    return finetuning.default()\n"
    )
    arguments = [f"--config={recipe}", f"--config.init_from={checkpoint}", *keys]
    arguments += [f"--workdir={tmp_path / 'run'}"]
    with pytest.raises(ConfigError, match="--submission=.*test-en.tsv would overwrite"):
        call(finetune.main, *arguments, f"--submission={tmp_path}")
    (tmp_path / "test-en.svg").symlink_to("animals/test-en.tsv")
    with pytest.raises(ConfigError, match="--plot=.*: the file name must end in"):
        call(finetune.main, *arguments, f"--plot={tmp_path / 'test-en.svg'}")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="--submission=.*file/animals: .*file is a file"):
        call(finetune.main, *arguments, f"--submission={tmp_path / 'file'}")
    assert not (tmp_path / "run").exists()


def test_a_workdir_or_sweep_folder_that_is_a_file_is_refused(call, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="--workdir=.* is a file, not a folder"):
        call(train.main, "--config=configs/quickstart.py", f"--workdir={tmp_path / 'file'}")
    with pytest.raises(ConfigError, match="--folder=.* is a file, not a folder"):
        file = f"--folder={tmp_path / 'file'}"
        call(sweep.main, "--config=configs/sweeps/learning_rate.py", file)


def test_the_error_names_the_output_and_the_input(call, text):
    content = text.read_bytes()
    with pytest.raises(ConfigError) as error:
        call(embed.main, "--checkpoint=none", "--input=text.tsv", "--output=text.tsv")
    assert str(error.value) == (
        "--output=text.tsv would overwrite --input=text.tsv; use another name"
    )
    assert content and text.read_bytes() == content


@pytest.mark.parametrize(
    "paths, terminal, expected",
    [
        (("-",), True, True),
        ((None, "-"), True, True),
        (("-",), False, None),
        (("a", None), True, None),
    ],
)
def test_bars_do_not_share_the_lines_of_results(paths, terminal, expected, monkeypatch):
    monkeypatch.setattr(outputs.sys, "stdout", SimpleNamespace(isatty=lambda: terminal))
    assert outputs.hides_bar(*paths) is expected
