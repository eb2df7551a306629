"""Buckets of emulators: objects are complete or absent, and at most one process holds a lock."""

import multiprocessing
import os
import signal
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest
import servers

from xlj.config import ConfigError
from xlj.io import atomic, buckets, files, storage
from xlj.io.atomic import GrowingFiles
from xlj.io.storage import to_path

pytestmark = pytest.mark.cloud


@pytest.fixture(scope="module", params=["gs", "s3"])
def bucket(request):
    with servers.bucket(request.param) as url_and_server:
        yield url_and_server


@pytest.fixture
def folder(bucket, request):
    return to_path(f"{bucket[0]}/{request.node.originalname}")


def test_written_objects_are_listed_and_read(folder):
    lines = [f"line {number}" for number in range(5000)]
    for name in ("b.txt", "a.txt", "c/d.txt"):
        atomic.write(folder / name, "\n".join(lines).encode())
    assert storage.find_files(f"{folder}/*.txt") == [folder / "a.txt", folder / "b.txt"]
    assert storage.find_files(f"{folder}/**/d.txt") == [folder / "c/d.txt"]
    assert storage.find_files(f"{folder}/none.txt") == []
    assert folder.sizes() == {"a.txt": 48889, "b.txt": 48889}
    path = folder / "a.txt"
    assert list(files.lines(path)) == lines
    actual = [*files.range_blocks(path, 0, 20_001), *files.range_blocks(path, 20_001, 48889)]
    assert sum(actual, []) == lines
    assert path.read_range(5, 11) == b"0\nline"
    before = storage.identity(path)  # from the file itself
    listed = storage.find_files(f"{folder}/*.txt")[0]
    assert before == storage.identity(listed) == [str(path), 48889, before[2]]
    atomic.write(path, b"x" * 48889)
    assert storage.identity(listed) == before != storage.identity(path)
    storage.find_files(str(path))
    assert before[:2] == storage.identity(path)[:2] and before[2] != storage.identity(path)[2]
    path.unlink()
    storage.remove_folder(folder / "c")
    assert not path.is_file() and not (folder / "c/d.txt").is_file()
    path.unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        path.read_bytes()


def test_an_object_that_becomes_shorter_while_it_is_read_is_an_error(folder):
    """A file that fsspec opens ends early, without an error."""
    path = folder / "a.bin"
    atomic.write(path, bytes(20 << 20))
    with path.open() as file:
        file.read(1000)
        atomic.write(path, bytes(5 << 20))
        with pytest.raises(OSError, match="ends after 8,388,608 of 20,971,520 bytes|range is not"):
            file.read()


def test_an_error_during_a_write_leaves_no_object(folder):
    with pytest.raises(KeyError), atomic.writing(folder / "a") as file:
        file.write(b"half of it")
        raise KeyError
    assert not (folder / "a").is_file()


def _write_until_killed(url):
    with atomic.writing(to_path(url)) as file:
        file.write(b"half of it")
        file.flush()
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_kill_during_a_write_leaves_the_old_object(folder):
    atomic.write(folder / "a", b"before")
    child = multiprocessing.get_context("spawn").Process(
        target=_write_until_killed, args=(f"{folder}/a",)
    )
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert (folder / "a").read_bytes() == b"before"


def test_a_read_waits_for_slow_responses(bucket, folder):
    atomic.write(folder / "a", b"all of it")
    _, server = bucket
    server.send_signal(signal.SIGSTOP)
    wake = threading.Timer(1.5, server.send_signal, (signal.SIGCONT,))
    wake.start()
    began = time.monotonic()
    assert (folder / "a").read_bytes() == b"all of it"
    assert time.monotonic() - began > 1
    wake.join()


def test_a_lock_is_released_at_the_end(folder):
    with storage.lock(folder):
        assert (folder / ".lock").is_file()
    assert not (folder / ".lock").is_file()


def test_a_missing_bucket_is_reported_before_any_work(bucket):
    scheme = bucket[0].partition(":")[0]
    with pytest.raises(ConfigError, match=rf"cannot write {scheme}://not-there/f/\.lock: "):
        with storage.lock(to_path(f"{scheme}://not-there/f")):
            raise AssertionError("the lock was acquired")


def test_a_second_holder_waits_for_the_lock(folder, capsys):
    order = []

    def other():
        with storage.lock(folder):
            order.append("other")

    thread = threading.Thread(target=other)
    with storage.lock(folder):
        thread.start()
        time.sleep(1.5)
        order.append("first")
    thread.join()
    assert order == ["first", "other"]
    assert "another process holds the lock" in capsys.readouterr().err


def test_the_lock_of_a_killed_holder_is_taken_over_but_not_that_of_an_active_one(
    folder, monkeypatch
):
    monkeypatch.setattr(buckets, "_HEARTBEAT", 0.2)
    monkeypatch.setattr(buckets, "_STALE_AFTER", 1.0)
    atomic.write(folder / ".lock", buckets._content("node7 12 a", 3))
    began = time.monotonic()
    acquired = []
    with storage.lock(folder):
        assert 0.9 < time.monotonic() - began < 10

        def other():
            with storage.lock(folder):
                acquired.append(time.monotonic())

        thread = threading.Thread(target=other)
        thread.start()
        time.sleep(2)
        assert not acquired  # heartbeats show that the holder is active
    thread.join()
    assert acquired


def test_google_buckets_get_one_request_to_create_a_lock_with_a_precondition(monkeypatch):
    """The emulator does not support preconditions, so this server is simulated."""
    servers.needed("gcsfs")
    requests = []

    class Refuses(BaseHTTPRequestHandler):
        def do_POST(self):
            requests.append(self.path)
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(412)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments):
            pass

    server = HTTPServer(("127.0.0.1", 0), Refuses)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    with servers.environment({**servers.GOOGLE, "STORAGE_EMULATOR_HOST": address}):
        with pytest.raises(FileExistsError):
            buckets.make("gs://abc/f/.lock", b"content")
    server.shutdown()
    server.server_close()
    assert ["ifGenerationMatch=0" in path for path in requests] == [True]


def test_without_the_extra_an_error_names_what_to_install(monkeypatch):
    monkeypatch.setitem(buckets._LIBRARIES, "gs", ("no_such_library", "X"))
    buckets._system.cache_clear()
    with pytest.raises(ConfigError, match=r"gs:// URLs need no_such_library .*-e '\.\[cloud\]'"):
        to_path("gs://abc/x").is_file()
    buckets._system.cache_clear()


def test_without_wait_an_active_holder_is_an_error_and_a_killed_one_loses_the_lock(
    folder, monkeypatch
):
    monkeypatch.setattr(buckets, "_HEARTBEAT", 0.2)
    monkeypatch.setattr(buckets, "_STALE_AFTER", 2.0)
    with storage.lock(folder):
        began = time.monotonic()
        with pytest.raises(BlockingIOError), storage.lock(folder, wait=False):
            raise AssertionError("two processes hold the lock")
        assert time.monotonic() - began < 1.5
    atomic.write(folder / ".lock", buckets._content("node7 12 a", 3))
    with storage.lock(folder, wait=False):
        assert b"node7" not in (folder / ".lock").read_bytes()


def test_a_folder_is_moved(folder):
    for name in ("old/a", "old/b/c", "older/d"):
        atomic.write(folder / name, name.encode())
    storage.move_folder(folder / "old", folder / "new", "a")
    names = [str(path)[len(str(folder)) + 1 :] for path in storage.find_files_below(folder, "**")]
    assert sorted(names) == ["new/a", "new/b/c", "older/d"]
    assert (folder / "new/b/c").read_bytes() == b"old/b/c"
    assert storage.exists(folder / "new") and not storage.exists(folder / "old")


def test_a_killed_move_leaves_no_folder_that_looks_complete(folder, monkeypatch):
    def interrupt(url):
        raise KeyboardInterrupt

    for name in ("old/a", "old/b"):
        atomic.write(folder / name, b"x")
    monkeypatch.setattr(buckets, "delete_below", interrupt)
    with pytest.raises(KeyboardInterrupt):
        storage.move_folder(folder / "old", folder / "new", "a")
    assert not (folder / "old/a").is_file() and (folder / "old/b").is_file()
    assert (folder / "new/a").is_file() and (folder / "new/b").is_file()


@pytest.mark.parametrize("content", [b"", b"[]", b"{}", b"\xff"])
def test_a_lock_with_invalid_content_becomes_stale(folder, monkeypatch, content):
    monkeypatch.setattr(buckets, "_HEARTBEAT", 0.1)
    monkeypatch.setattr(buckets, "_STALE_AFTER", 0.4)
    atomic.write(folder / ".lock", content)
    with storage.lock(folder, wait=False):
        assert (folder / ".lock").read_bytes() != content


def test_a_lock_that_was_lost_is_left_to_its_new_holder(folder, monkeypatch):
    monkeypatch.setattr(buckets, "_HEARTBEAT", 0.1)
    other = buckets._content("node7 12 a", 3)
    with storage.lock(folder):
        atomic.write(folder / ".lock", other)
        time.sleep(0.5)
    assert (folder / ".lock").read_bytes() == other


def test_the_original_error_is_raised_even_if_the_lock_cannot_be_released(folder, monkeypatch):
    def fail(*_, **__):
        raise OSError("the server is gone")

    with pytest.raises(ConfigError, match="the real reason"), storage.lock(folder):
        monkeypatch.setattr(buckets, "delete", fail)
        raise ConfigError("the real reason")


def test_growing_files_are_uploaded_and_continued(folder, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(atomic.time, "monotonic", lambda: clock[0])
    files = GrowingFiles(folder)
    with files.path("lines").open("a") as file:
        file.write("one\n")
    (files.local_folder / "events").mkdir()
    (files.local_folder / "events/x").write_bytes(b"x")
    files.send()
    assert not (folder / "lines").is_file()  # too soon
    clock[0] = 61.0
    files.send()
    assert (folder / "lines").read_bytes() == b"one\n"
    assert (folder / "events/x").read_bytes() == b"x"
    with files.path("lines").open("a") as file:
        file.write("two\n")
    files.close()
    assert not files.local_folder.exists()
    again = GrowingFiles(folder)
    assert again.path("lines").read_bytes() == b"one\ntwo\n"
    again.close()


def test_growing_files_of_a_local_folder_are_written_in_place(tmp_path):
    files = GrowingFiles(tmp_path)
    files.path("lines").write_bytes(b"one")
    files.send(now=True)
    files.close()
    assert (tmp_path / "lines").read_bytes() == b"one"
