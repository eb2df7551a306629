"""Local servers that replace web servers and buckets in tests."""

import contextlib
import importlib.util
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

GOOGLE = {
    "GOOGLE_AUTH_TOKEN_FOR_TESTING": "token",
    "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # sends requests that the emulator lacks
}
"""Environment variables that gcsfs needs to use the emulator instead of Google's servers."""


class Web:
    """The state of a web server: its files, its behaviour, and the requests that it received.

    Attributes:
      files: the content of each file by its path, for example `/a.txt`.
      ranges: whether the server supports Range headers.
      tags: the ETags of files, by path; a file needs none.
      cut: the number of coming responses that the server breaks off after the first half of the
        body. Bodies of one byte are not broken off or counted.
      wait: seconds before each response.
      asked: the Range headers of all requests, in order; None for a request without one.
      url: the address of the server.
    """

    def __init__(self, files):
        self.files, self.ranges, self.tags = files, True, {}
        self.cut, self.wait, self.asked = 0, 0.0, []
        self.url = ""


@contextlib.contextmanager
def web(files):
    """Starts a web server with these files; yields its `Web`."""
    state = Web(files)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            time.sleep(state.wait)
            content, path = state.files.get(self.path), self.path
            range_header = self.headers.get("Range")
            state.asked.append(range_header)
            if content is None:
                self.send_error(404)
                return
            start, stop = 0, len(content)
            if range_header and state.ranges:
                first, _, last = range_header.removeprefix("bytes=").partition("-")
                start, stop = int(first), min(int(last) + 1 if last else stop, stop)
                if start >= len(content):
                    self.send_response(416)
                    self.end_headers()
                    return
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
            else:
                self.send_response(200)
            self.send_header("Content-Length", str(stop - start))
            if path in state.tags:
                self.send_header("ETag", state.tags[path])
            self.end_headers()
            body = content[start:stop]
            if state.cut and len(body) > 1:
                state.cut -= 1
                body = body[: len(body) // 2]
            with contextlib.suppress(ConnectionError):
                self.wfile.write(body)

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    state.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()


def needed(*modules):
    """Skips the test if one of the modules is not installed."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)}: pip install -e '.[cloud,emulators]'")


@contextlib.contextmanager
def bucket(scheme):
    """Starts an emulator; yields the URL of an empty bucket and the process of the emulator.

    Until the end, environment variables direct the clients to the emulator.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    address = f"http://127.0.0.1:{port}"
    name = f"test-{port}"
    if scheme == "gs":
        needed("gcsfs", "gcp_storage_emulator")
        program = str(Path(__file__).with_name("google_emulator.py"))
        command = [program, "start", "--in-memory", "--quiet", f"--port={port}"]
        variables = {
            "STORAGE_EMULATOR_HOST": address,
            "TENSORSTORE_GCS_HTTP_URL": address,
            **GOOGLE,
        }
        create_bucket = (f"{address}/b?project=test", "POST", f'{{"name": "{name}"}}'.encode())
    else:
        needed("s3fs", "moto")
        command = ["-m", "moto.server", "-p", str(port)]
        variables = {
            "AWS_ENDPOINT_URL": address,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
        }
        create_bucket = (f"{address}/{name}", "PUT", b"")
    server = subprocess.Popen(
        [sys.executable, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _create_when_ready(server, *create_bucket)
        with environment(variables):
            yield f"{scheme}://{name}", server
    finally:
        server.kill()
        server.wait()


def _create_when_ready(server, url, method, body):
    """Sends the request that creates the bucket, again until the emulator accepts connections."""
    for _ in range(300):
        assert server.poll() is None, "the emulator exited"
        headers = {"Content-Type": "application/json"}
        try:
            urllib.request.urlopen(
                urllib.request.Request(url, body, headers, method=method), timeout=10
            ).close()
            return
        except urllib.error.HTTPError:
            raise
        except OSError:
            time.sleep(0.1)
    raise AssertionError("the emulator does not answer")


@contextlib.contextmanager
def environment(variables):
    """Sets environment variables, and clears the cache of file systems of other servers."""
    from xlj.io import buckets

    old_values = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    buckets._system.cache_clear()
    try:
        yield
    finally:
        for name, value in old_values.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
        buckets._system.cache_clear()
