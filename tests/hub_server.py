"""A server that speaks the protocol of the Hugging Face hub, with faults, for tests.

It serves repo_info, the tree in pages, paths-info, and resolve with ranges, which redirects to a
second host without the token. Start it with `hub`, and huggingface_hub in a fresh process with
`HF_ENDPOINT`, since huggingface_hub reads this variable at import.
"""

import contextlib
import hashlib
import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

PAGE = 1000
"""Entries of a page of a tree."""


class Hub:
    """The state of the server.

    Attributes:
      commits: the files of each commit, {(repository, commit): {path: content}}. A repository is
        `datasets/OWNER/NAME` or `models/OWNER/NAME`.
      branches: the commit of each branch, {(repository, branch): commit}.
      token: the token that every request to the hub must have; empty for none.
      faults: a list of (text, fault). The first entry whose text is in the path of a request is
        removed, and the request gets the fault: a status code, `cut` (the response ends after half
        of the body) or `slow` (the response starts after `slow_seconds`).
      requests: (host, method, path, Range header) of each request. Host is `hub` or `files`.
      leaks: the paths of requests to the second host that had the token.
      after: (path) -> anything, called once after the first request for a commit; None for nothing.
      url: the address.
    """

    def __init__(self):
        self.commits, self.branches, self.token = {}, {}, ""
        self.faults, self.requests, self.leaks = [], [], []
        self.slow_seconds, self.url, self.files_url = 3.0, "", ""
        self.after = None

    def push(self, repository, files, branch="main"):
        """Adds a commit with these files to a branch, and returns the commit."""
        content = json.dumps(
            [repository, sorted((n, len(c)) for n, c in files.items()), len(self.commits)]
        )
        commit = hashlib.sha1(content.encode()).hexdigest()
        self.commits[repository, commit] = dict(files)
        self.branches[repository, branch] = commit
        return commit

    def fault(self, path):
        """Returns the fault of a request, and removes it."""
        for number, (text, fault) in enumerate(self.faults):
            if text in path:
                del self.faults[number]
                return fault
        return None

    def files(self, repository, revision):
        """Returns (commit, files) of a revision; None for an unknown one."""
        commit = self.branches.get((repository, revision), revision)
        files = self.commits.get((repository, commit))
        return None if files is None else (commit, files)


@contextlib.contextmanager
def hub():
    """Starts the hub and its second host; yields the `Hub`."""
    state = Hub()
    with _serve(_handler(state, _Pages)) as state.url, _serve(_handler(state, _Files)) as files:
        state.files_url = files.replace("127.0.0.1", "localhost")  # another host for HTTP clients
        yield state


@contextlib.contextmanager
def _serve(handler):
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _handler(state, base):
    return type("Handler", (base,), {"state": state})


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    host = ""

    def do_GET(self):
        self.answer()

    def do_HEAD(self):
        self.answer()

    def do_POST(self):
        self.body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        self.answer()

    def answer(self):
        state = self.state
        state.requests.append((self.host, self.command, self.path, self.headers.get("Range")))
        self.fault = state.fault(f"{self.host}:{self.path}")
        if isinstance(self.fault, int):
            return self.reply(self.fault, b"{}")
        if self.fault == "slow":
            time.sleep(state.slow_seconds)
        self.respond()

    def reply(self, status, body, headers=()):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        with contextlib.suppress(ConnectionError):
            if self.fault == "cut":
                self.wfile.write(body[: len(body) // 2])
                self.close_connection = True
            else:
                self.wfile.write(body)

    def json(self, value, headers=()):
        self.reply(
            200, json.dumps(value).encode(), {"Content-Type": "application/json"} | dict(headers)
        )

    def error(self, status, code):
        self.reply(status, b"{}", {"X-Error-Code": code})

    def log_message(self, *arguments):
        pass


class _Pages(_Handler):
    """The hub: /api/... and /.../resolve/..."""

    host = "hub"

    def respond(self):
        state, url = self.state, urlsplit(self.path)
        if state.token and self.headers.get("Authorization") != f"Bearer {state.token}":
            return self.error(401, "RepoNotFound")
        api = re.fullmatch(
            r"/api/((?:datasets|models)/[^/]+/[^/]+)/(revision|tree|paths-info)/([^/]+)/?(.*)",
            url.path,
        )
        resolve = re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.*)", url.path)
        if not api and not resolve:
            return self.error(404, "RepoNotFound")
        if api:
            repository, revision, rest = api[1], unquote(api[3]), unquote(api[4])
        else:
            repository = f"{resolve[1] or 'models/'}{resolve[2]}"
            revision, rest = unquote(resolve[3]), unquote(resolve[4])
        if repository not in {name for name, _ in state.commits}:
            return self.error(401 if not state.token else 404, "RepoNotFound")
        if (found := state.files(repository, revision)) is None:
            return self.error(404, "RevisionNotFound")
        commit, files = found
        if resolve:
            return self.resolve(commit, files, rest)
        getattr(self, api[2].replace("-", "_"))(
            repository, commit, files, rest, parse_qs(url.query)
        )

    def revision(self, repository, commit, files, rest, query):
        name = repository.partition("/")[2]
        siblings = [{"rfilename": path} for path in sorted(files)]
        self.json(
            {
                "id": name,
                "sha": commit,
                "siblings": siblings,
                "tags": [],
                "private": False,
                "downloads": 0,
                "likes": 0,
            }
        )
        after, self.state.after = self.state.after, None
        if after:
            after(self.path)

    def tree(self, repository, commit, files, rest, query):
        prefix = f"{rest}/" if rest else ""
        entries, is_deep = {}, query.get("recursive", [""])[0].lower() in ("true", "1")
        for path, content in files.items():
            if not path.startswith(prefix):
                continue
            parts = path[len(prefix) :].split("/")
            for depth in range(1, len(parts)):
                folder = prefix + "/".join(parts[:depth])
                if is_deep or depth == 1:
                    entries[folder] = {
                        "type": "directory",
                        "oid": "0" * 40,
                        "size": 0,
                        "path": folder,
                    }
            if is_deep or len(parts) == 1:
                entries[path] = _entry(path, content)
        if rest and not entries:
            return self.error(404, "EntryNotFound")
        first = int(query.get("cursor", ["0"])[0])
        names = sorted(entries)
        headers = {}
        if first + PAGE < len(names):
            address = self.path.partition("?")[0]
            link = f"{self.state.url}{address}?recursive={is_deep}&cursor={first + PAGE}"
            headers["Link"] = f'<{link}>; rel="next"'
        self.json([entries[name] for name in names[first : first + PAGE]], headers)

    def paths_info(self, repository, commit, files, rest, query):
        try:
            paths = json.loads(self.body)["paths"]
        except ValueError:
            paths = parse_qs(self.body)["paths"]
        self.json([_entry(path, files[path]) for path in paths if path in files])

    def resolve(self, commit, files, path):
        if path not in files:
            return self.error(404, "EntryNotFound")
        content = files[path]
        headers = {
            "X-Repo-Commit": commit,
            "ETag": f'"{_oid(content)}"',
            "X-Linked-Size": str(len(content)),
            "X-Linked-ETag": f'"{_oid(content)}"',
        }
        key = f"/{commit}/{path}"
        headers["Location"] = f"{self.state.files_url}{key}?from={self.path.partition('/')[2][:8]}"
        self.reply(302, b"", headers)


class _Files(_Handler):
    """The second host, which has the content of files."""

    host = "files"

    def respond(self):
        if self.headers.get("Authorization"):
            self.state.leaks.append(self.path)
        commit, path = unquote(urlsplit(self.path).path)[1:].split("/", 1)
        content = next(f[path] for (_, c), f in self.state.commits.items() if c == commit)
        asked = self.headers.get("Range")
        if not asked:
            return self.reply(200, content)
        first, _, last = asked.removeprefix("bytes=").partition("-")
        start, stop = int(first), min(int(last or len(content)) + 1, len(content))
        if start >= len(content):
            return self.reply(416, b"")
        where = {"Content-Range": f"bytes {start}-{stop - 1}/{len(content)}"}
        self.reply(206, content[start:stop], where)


def _oid(content):
    return hashlib.sha256(content).hexdigest()


def _entry(path, content):
    entry = {
        "type": "file",
        "oid": hashlib.sha1(content).hexdigest(),
        "size": len(content),
        "path": path,
    }
    if len(content) > 10_000:
        entry["lfs"] = {"oid": _oid(content), "size": len(content), "pointerSize": 130}
    return entry
