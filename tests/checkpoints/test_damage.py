"""A damaged checkpoint is reported, or moved away and the one before used."""

import shutil

import pytest

from xlj.api import runs
from xlj.checkpoints import damage, reading
from xlj.checkpoints.reading import CheckpointError, DamagedError
from xlj.config import parse


def damaged(workdir, step, item):
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


def test_a_whole_checkpoint_is_verified_and_stays(trained, capsys):
    for actual in reading.list_all(trained):
        reading.verify(actual)
    damage.move_damaged(trained)
    assert capsys.readouterr().out == "" and reading.steps(trained) == [2, 4]
    assert not (trained / damage.FOLDER).exists()


@pytest.mark.parametrize("item", ["meta", "params", "optimizer", "progress", "vocabulary"])
def test_the_one_before_is_used(trained, capsys, item):
    damaged(trained, 4, item)
    damage.move_damaged(trained)
    output = capsys.readouterr().out
    assert output.startswith(f"{trained}/checkpoints/4") and "damaged" in output
    assert output.endswith(
        f"it was moved to {trained}/damaged/4; the run resumes from step 2 or earlier\n"
    )
    assert reading.steps(trained) == [2] and names(trained / "damaged") == ["4"]


def test_the_first_stays_and_older_ones_are_moved_too(trained, capsys):
    shutil.copytree(trained / "checkpoints" / "4", trained / "checkpoints" / "5")
    (trained / "damaged" / "4").mkdir(parents=True)
    damaged(trained, 4, "meta")
    damage.move_damaged(trained)  # the latest is intact, but every description is read
    assert reading.steps(trained) == [2, 5]
    assert names(trained / "damaged") == ["4", "4.1"]
    assert "resumes" not in capsys.readouterr().out
    damaged(trained, 2, "params")
    damaged(trained, 5, "params")
    damage.move_damaged(trained)
    assert reading.steps(trained) == [2]
    with pytest.raises(DamagedError):
        reading.verify(reading.find(trained))


def test_a_run_resumes_after_damage_only_by_config(tiny, store, trained, capsys):
    expected = reading.find(trained).meta["digests"]
    damaged(trained, 4, "optimizer")
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
