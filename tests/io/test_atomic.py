"""A written file is complete or absent, and an error of writing is one line."""

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from xlj.config import ConfigError
from xlj.io import atomic

ROOT = Path(__file__).parents[2]


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if os.getuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can mount a file system")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def list_files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_a_file_appears_complete(tmp_path):
    (tmp_path / "link").symlink_to("target")
    for name in ("plain", "link", "plain"):
        with atomic.writing(tmp_path / name) as file:
            file.write(b"one ")
            file.write(memoryview(bytes(1_000_000)))
            file.seek(0)
            file.write(b"two")
        assert (tmp_path / name).read_bytes() == b"two " + bytes(1_000_000)
    assert (tmp_path / "link").is_symlink() and list_files(tmp_path) == ["link", "plain", "target"]
    assert (tmp_path / "plain").stat().st_mode & 0o777 == 0o666 & ~umask()


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_write_that_fails_leaves_no_file(tmp_path):
    atomic.write(tmp_path / "a", b"old")
    with pytest.raises(KeyError), atomic.writing(tmp_path / "a") as file:
        file.write(b"new")
        raise KeyError
    with pytest.raises(KeyError), atomic.new_folder(tmp_path / "b") as folder:
        (folder / "c").touch()
        raise KeyError
    assert list_files(tmp_path) == ["a"] and (tmp_path / "a").read_bytes() == b"old"


def test_a_full_disk_is_an_error_and_no_file_remains(small_disk):
    with pytest.raises(ConfigError) as caught:
        atomic.write(small_disk / "a", bytes(100_000))
    assert str(caught.value) == f"cannot write {small_disk}/a: No space left on device"
    with pytest.raises(ConfigError, match="a: No space"), atomic.writing(small_disk / "a") as file:
        for _ in range(10_000):  # each write is smaller than the buffer
            file.write(bytes(100))
    with pytest.raises(ConfigError, match="x: No space"), atomic.new_folder(small_disk / "d") as d:
        atomic.write(d / "x", bytes(100_000))
    assert list_files(small_disk) == []
    atomic.write(small_disk / "a", bytes(1000))


def test_a_command_ends_with_one_line_and_code_2(small_disk):
    code = (
        "import sys; from pathlib import Path; from xlj.io import atomic\n"
        "from xlj.cli import command; from xlj.cli.parser import Parser\n"
        "write = lambda flags: atomic.write(Path(sys.argv[1]), bytes(100_000))\n"
        "sys.exit(command.run(Parser('write'), write, []))"
    )
    command = [sys.executable, "-c", code, str(small_disk / "a")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr == f"error: cannot write {small_disk}/a: No space left on device\n"
    assert list_files(small_disk) == []


def test_a_limit_on_the_size_of_files_is_an_error(tmp_path):
    code = (
        "import resource, signal, sys; from pathlib import Path; from xlj.io import atomic\n"
        "from xlj.cli import command; from xlj.cli.parser import Parser\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        "write = lambda flags: atomic.write(Path(sys.argv[1]), bytes(100_000))\n"
        "sys.exit(command.run(Parser('write'), write, []))"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "a")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and list_files(tmp_path) == []
    assert done.stderr == f"error: cannot write {tmp_path}/a: File too large\n"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_errors_of_the_disk_after_the_write_are_reported(tmp_path, monkeypatch, code, call):
    def fail(*arguments):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "fsync" if call == "fsync" else "replace", fail)
    with pytest.raises(ConfigError) as caught:
        atomic.write(tmp_path / "a", b"x")
    assert str(caught.value) == f"cannot write {tmp_path}/a: {os.strerror(code)}"
    assert list_files(tmp_path) == []


def test_paths_that_cannot_be_written_are_errors_with_a_reason(tmp_path):
    (tmp_path / "file").touch()
    reasons = {
        tmp_path / "file" / "a": "Not a directory",
        tmp_path / "none" / "a": "No such file or directory",
        tmp_path / ("x" * 300): "File name too long",
        Path("/proc/none"): "No such file or directory",
        tmp_path / "folder": "Is a directory",
    }
    (tmp_path / "folder").mkdir()
    for path, reason in reasons.items():
        with pytest.raises(ConfigError) as caught:
            atomic.write(path, b"x")
        assert str(caught.value) == f"cannot write {path}: {reason}"
    with pytest.raises(ConfigError, match="cannot write .*/file/a: Not a directory"):
        with atomic.new_folder(tmp_path / "file" / "a"):
            pass
    with pytest.raises(ConfigError, match="folder already exists; name a new folder"):
        with atomic.new_folder(tmp_path / "folder"):
            pass
    assert list_files(tmp_path) == ["file", "folder"]


def test_a_read_only_folder_is_an_error(tmp_path):
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,ro", "tmpfs", str(tmp_path)]
    if os.getuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can mount a file system")
    try:
        with pytest.raises(ConfigError) as caught:
            atomic.write(tmp_path / "a", b"x")
    finally:
        subprocess.run(["umount", str(tmp_path)], check=True)
    assert str(caught.value) == f"cannot write {tmp_path}/a: Read-only file system"


def test_writers_with_the_same_process_id_do_not_interfere(tmp_path):
    """Two containers that share a disk may both have process id 7."""
    errors = []

    def write(number: int) -> None:
        for _ in range(150):
            try:
                atomic.write(tmp_path / "a", bytes([number]) * 1000)
                with atomic.new_folder(tmp_path / f"folder{number}") as folder:
                    (folder / "x").touch()
                os.unlink(tmp_path / f"folder{number}" / "x")
                os.rmdir(tmp_path / f"folder{number}")
            except Exception as error:
                errors.append(error)

    writers = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert not errors and list_files(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() in (bytes(1000), bytes([1]) * 1000)
    with atomic.writing(tmp_path / "a"), atomic.new_folder(tmp_path / "b") as folder:
        assert len(list(tmp_path.glob(f"*{atomic.PART}"))) == 2  # a cleanup finds them
        assert folder.name.endswith(atomic.PART)


def test_errors_of_other_files_are_not_reported_as_write_errors(tmp_path):
    with pytest.raises(FileNotFoundError), atomic.writing(tmp_path / "a"):
        (tmp_path / "none").read_bytes()
