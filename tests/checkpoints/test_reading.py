"""A damaged checkpoint is an error, or it is moved and the run uses the previous one."""

import shutil

import pytest

from xlj.api import runs
from xlj.checkpoints import reading
from xlj.checkpoints.reading import CheckpointError, DamagedError
from xlj.config import parse


def flip_bits(workdir, step, item):
    """Flips bits in the middle of every data file; some files of Orbax are never read."""
    folder = workdir / "checkpoints" / str(step) / item
    files = [folder / "metadata"] if item == "meta" else folder.rglob("d/*")
    for file in list(files):
        content = bytearray(file.read_bytes())
        middle = len(content) // 2
        content[middle : middle + 64] = bytes(byte ^ 0x55 for byte in content[middle : middle + 64])
        file.write_bytes(content)


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def test_intact_checkpoints_pass_verification_and_are_not_moved(trained, capsys):
    for checkpoint in reading.list_all(trained):
        reading.verify(checkpoint)
    reading.move_damaged(trained)
    assert capsys.readouterr().out == "" and reading.steps(trained) == [2, 4]
    assert not (trained / reading.FOLDER).exists()


@pytest.mark.parametrize("item", ["meta", "params", "optimizer", "progress", "vocabulary"])
def test_a_damaged_checkpoint_is_moved_and_the_previous_one_is_used(trained, capsys, item):
    flip_bits(trained, 4, item)
    reading.move_damaged(trained)
    output = capsys.readouterr().out
    assert output.startswith(f"{trained}/checkpoints/4") and "damaged" in output
    assert output.endswith(
        f"it was moved to {trained}/damaged/4; the run resumes from step 2 or earlier\n"
    )
    assert reading.steps(trained) == [2] and names(trained / "damaged") == ["4"]


def test_older_damaged_checkpoints_are_moved_too_but_the_first_one_stays(trained, capsys):
    shutil.copytree(trained / "checkpoints" / "4", trained / "checkpoints" / "5")
    (trained / "damaged" / "4").mkdir(parents=True)
    flip_bits(trained, 4, "meta")
    reading.move_damaged(trained)  # the latest is intact, but all metadata is read
    assert reading.steps(trained) == [2, 5]
    assert names(trained / "damaged") == ["4", "4.1"]
    assert "resumes" not in capsys.readouterr().out
    flip_bits(trained, 2, "params")
    flip_bits(trained, 5, "params")
    reading.move_damaged(trained)
    assert reading.steps(trained) == [2]
    with pytest.raises(DamagedError):
        reading.verify(reading.find(trained))


@pytest.mark.slow
def test_a_run_resumes_after_damage_only_if_the_config_allows_it(tiny, store, trained, capsys):
    expected = reading.find(trained).meta["digests"]
    flip_bits(trained, 4, "optimizer")
    tiny.train.steps = 5  # so that the state is read
    tiny.optimizer.schedule = "constant"
    tiny.train.allow_change = "optimizer.schedule"
    with pytest.raises(CheckpointError, match=r"damaged.*config\.train\.damaged_checkpoint=before"):
        runs.pretrain(parse(tiny), trained)
    assert reading.steps(trained) == [2, 4]
    tiny.train.steps, tiny.optimizer.schedule = 4, "linear"
    tiny.train.damaged_checkpoint = "before"
    runs.pretrain(parse(tiny), trained)
    assert "the run resumes from step 2" in capsys.readouterr().out
    assert reading.find(trained).meta["digests"] == expected
