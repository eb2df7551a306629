"""Reads files of the Hugging Face hub, hf://, through huggingface_hub.

A URL is `hf://datasets/OWNER/NAME@REVISION/PATH`, or `hf://OWNER/NAME@REVISION/PATH` for a model.
A revision is a commit, a branch or a tag; without one it is the branch `main`. A branch is resolved
once per process. `pinned` replaces it by its commit, so that other processes read the same files.

huggingface_hub finds the login: `HF_TOKEN`, or the token that `hf auth login` has stored. Errors of
huggingface_hub are converted to `OSError`s; a missing huggingface_hub is a `ConfigError`.
"""

import bisect
import functools
import glob
import importlib
import io
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import unquote

from xlj.config import ConfigError
from xlj.io.quoting import shortened
from xlj.io.range_reader import open_ranges

T = TypeVar("T")

ATTEMPTS = 5
"""A request fails after this number of attempts."""
_PAUSE = 1.0  # seconds before the second attempt; each later pause is twice as long
_MAX_PAUSE = 300.0  # the hub counts requests in windows of five minutes
_URL = re.compile(
    r"hf://(?P<kind>datasets/|spaces/|models/)?(?P<name>(?!(?:datasets|spaces)/)[^/@#|]+/[^/@#|]+)"
    r"(@(?P<revision>refs/(convert|pr)/[^/#|]+|[^/#|]+))?(?=[/#|]|$)"
)
"""The part of a URL before the path. Templates may have text before the URL."""
_COMMIT = re.compile("[0-9a-f]{40}")
_MODEL_FILES = ("*.json", "*.model", "*.txt", "README.md")
_WEIGHTS = ("model*.safetensors", "*/model*.safetensors")


class _Place(NamedTuple):
    """A file or folder of a repository; `kind` is the `repo_type` of huggingface_hub."""

    kind: str
    name: str
    revision: str
    path: str


class _File(NamedTuple):
    """A file of a commit: its path, size in bytes, and the hash of its content."""

    path: str
    size: int
    version: str


def pinned(text: str) -> str:
    """Replaces the revision of each hf:// URL in a text by its commit.

    Raises:
      OSError: if the repository or revision does not exist or this user may not read it, or the
        server does not respond.
    """

    def replace(match: re.Match) -> str:
        place = _parse(match[0])
        return f"hf://{match['kind'] or ''}{match['name']}@{_commit_of(place)}"

    return _URL.sub(replace, text)


def without_revisions(text: str) -> str:
    """Removes the revision of each hf:// URL in a text."""
    return _URL.sub(lambda match: f"hf://{match['kind'] or ''}{match['name']}", text)


def stat(url: str) -> tuple[int, str]:
    """Returns the size of a file in bytes, and the hash of its content.

    Raises:
      FileNotFoundError: if the file does not exist.
      OSError: as `pinned`.
    """
    place = _with_commit(_parse(url))
    files = _listed(place, place.path.rpartition("/")[0])
    if files is None:
        file = _paths_info(place)
    else:
        file = next(iter(files[bisect.bisect_left(files, (place.path,)) :]), None)
    if file is None or file.path != place.path:
        raise FileNotFoundError(f"{url}: no such file")
    return file.size, file.version


@functools.lru_cache(maxsize=4096)
def _paths_info(place: _Place) -> _File | None:
    """Asks the hub for the size of a file of a commit, once per process."""
    infos = _call(place, lambda api: api.get_paths_info(place.name, [place.path], **_of(place)))
    return next((_file(info) for info in infos if hasattr(info, "blob_id")), None)


def can_seek(url: str) -> bool:
    """Returns True: all files can be read from any position."""
    return True


def find_objects(pattern: str) -> dict[str, tuple[int, str]]:
    """Returns the URLs of all files that match, sorted, with the size and hash of each.

    The URLs have the commit instead of a branch.

    Raises:
      OSError: as `pinned`.
    """
    place = _with_commit(_parse(pattern))
    start = glob.escape(place.path).partition("[")[0]  # the path before the first wildcard
    files = _files_below(place, start)
    expression = _expression(place.path)
    kind = "" if place.kind == "model" else f"{place.kind}s/"
    matches = {}
    for file in files[bisect.bisect_left(files, (start,)) :]:
        if not file.path.startswith(start):
            break
        if expression.fullmatch(file.path):
            url = f"hf://{kind}{place.name}@{place.revision}/{file.path}"
            matches[url] = (file.size, file.version)
    return matches


def list_ahead(start: str) -> None:
    """Lists the folder that contains all URLs with a common start, so that `find_objects` and
    `stat` send no request for each of them. Does nothing if the start ends before the path.

    Raises:
      OSError: as `pinned`.
    """
    match = _URL.match(start)
    if match and start[match.end() :].startswith("/"):
        _files_below(_with_commit(_parse(start)), start[match.end() + 1 :])


def read_range(url: str, start: int, stop: int) -> bytes:
    """Returns the bytes [start, stop) of a file.

    huggingface_hub repeats the request after a broken connection, a timeout, and the responses 429
    and 5xx.

    Raises:
      OSError: if the server does not send these bytes.
    """
    from huggingface_hub import constants, hf_hub_url
    from huggingface_hub.utils import build_hf_headers, hf_raise_for_status, http_backoff

    place = _with_commit(_parse(url))
    address = hf_hub_url(place.name, place.path, repo_type=place.kind, revision=place.revision)

    def request(_: Any) -> bytes:
        headers = {**build_hf_headers(), "Range": f"bytes={start}-{stop - 1}"}
        timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
        response = http_backoff("GET", address, headers=headers, timeout=timeout)
        hf_raise_for_status(response)
        if response.status_code != 206:
            raise OSError(f"{url}: the server does not support range requests")
        return response.content

    return _call(place, request, attempts=1)


def open_file(url: str) -> io.BufferedReader:
    """Opens a file for reading, one range per request."""
    return open_ranges(stat(url)[0], functools.partial(read_range, url))


def download(url: str) -> Path:
    """Downloads the folder of a model to the cache of huggingface_hub, and returns its path.

    It downloads weights as safetensors, the tokenizer and the configs, and no other weights.

    Raises:
      ConfigError: if the URL is not that of a model, or as `pinned`.
    """
    place = _parse(url)
    if place.kind != "model":
        raise ConfigError(f"{url}: a model has the form hf://OWNER/NAME@REVISION")
    folder = f"{place.path}/" if place.path else ""
    patterns = [f"{folder}{name}" for name in (*_MODEL_FILES, *_WEIGHTS)]
    try:
        place = _with_commit(place)
        snapshot = _call(
            place,
            lambda api: api.snapshot_download(
                place.name, revision=place.revision, allow_patterns=patterns
            ),
        )
    except OSError as error:
        raise ConfigError(f"{url} cannot be read ({error})") from error
    return Path(snapshot) / place.path


def _parse(url: str) -> _Place:
    match = _URL.match(url)
    if not match:
        raise ConfigError(
            f"{url}: expected hf://datasets/OWNER/NAME@REVISION/PATH, or hf://OWNER/NAME@REVISION "
            "for a model"
        )
    kind = (match["kind"] or "models/").removesuffix("s/")
    revision = unquote(match["revision"] or "main")
    return _Place(kind, match["name"], revision, url[match.end() :].strip("/"))


def _with_commit(place: _Place) -> _Place:
    return place._replace(revision=_commit_of(place))


def _commit_of(place: _Place) -> str:
    if _COMMIT.fullmatch(place.revision):
        return place.revision
    return _resolve(place._replace(path=""))


@functools.cache
def _resolve(place: _Place) -> str:
    """Asks the hub for the commit of a branch or tag, once per process."""
    commit: str = _call(place, lambda api: api.repo_info(place.name, **_of(place))).sha
    return commit


def _of(place: _Place) -> dict[str, str]:
    return {"revision": place.revision, "repo_type": place.kind}


_listings: dict[tuple[_Place, str], list[_File]] = {}
"""The sorted files below each folder (commit, folder) that was listed. Commits do not change."""


def _files_below(place: _Place, start: str) -> list[_File]:
    """Returns the sorted files below the folder of `start`, and perhaps others."""
    folder = start.rpartition("/")[0]
    files = _listed(place, folder)
    if files is None:
        try:
            infos = _call(
                place,
                lambda api: list(
                    api.list_repo_tree(place.name, folder or None, recursive=True, **_of(place))
                ),
            )
        except FileNotFoundError:
            infos = []
        files = sorted(_file(info) for info in infos if hasattr(info, "blob_id"))
        _listings[place._replace(path=""), folder] = files
    return files


def _listed(place: _Place, folder: str) -> list[_File] | None:
    """Returns the files below a folder if this folder or one above it was listed."""
    repository = place._replace(path="")
    while (files := _listings.get((repository, folder))) is None and folder:
        folder = folder.rpartition("/")[0]
    return files


def _file(info: Any) -> _File:
    return _File(info.path, info.size, info.lfs.sha256 if info.lfs else info.blob_id)


@functools.lru_cache(maxsize=4096)
def _expression(pattern: str) -> re.Pattern:
    from fsspec.utils import glob_translate

    try:
        return re.compile(glob_translate(pattern))
    except ValueError as error:
        raise ConfigError(f"{pattern}: {error}") from None


def _call(place: _Place, request: Callable[[Any], T], attempts: int = ATTEMPTS) -> T:
    """Calls huggingface_hub; repeats a request after responses that may be temporary.

    Raises:
      FileNotFoundError: if the commit has no such file or folder.
      OSError: for all other errors.
    """
    api, errors = _library()
    for attempt in range(attempts):
        pause = _PAUSE * 2**attempt
        try:
            return request(api)
        except errors.EntryNotFoundError:
            raise FileNotFoundError(f"{place.path}: no such file") from None
        except errors.HfHubHTTPError as error:
            status = error.response.status_code
            if reason := _describe(place, error, errors):
                raise OSError(reason) from None
            if (status < 500 and status not in (408, 429)) or attempt == attempts - 1:
                raise OSError(shortened(f"its server responds {status}: {error}")) from None
            after = error.response.headers.get("Retry-After", "")
            pause = min(max(pause, int(after) if after.isdigit() else 0), _MAX_PAUSE)
        except OSError:
            raise
        except Exception as error:  # httpx raises types that are no OSErrors
            if isinstance(error, ValueError) or attempt == attempts - 1:
                raise OSError(shortened(f"{type(error).__name__}: {error}")) from error
        time.sleep(pause)
    raise AssertionError("the last attempt returns or raises")


def _describe(place: _Place, error: Any, errors: Any) -> str:
    """Describes an error that the user can fix; empty for other errors."""
    what = f"{place.kind} {place.name}"
    login = "log in with `hf auth login`, or set HF_TOKEN"
    if isinstance(error, errors.GatedRepoError):
        return f"the {what} is gated: accept its terms on its page, then {login}"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"the {what} has no revision {place.revision}"
    if isinstance(error, errors.RepositoryNotFoundError):
        return f"the hub has no {what}, or it is private; if it is, {login}"
    if error.response.status_code in (401, 403):
        return f"the token may not read the {what}; {login}"
    return ""


@functools.cache
def _library() -> tuple[Any, Any]:
    """Returns an `HfApi` and the module of errors of huggingface_hub."""
    try:
        library = importlib.import_module("huggingface_hub")
        return library.HfApi(), importlib.import_module("huggingface_hub.errors")
    except ImportError as error:
        raise ConfigError(
            f"hf:// URLs need huggingface_hub ({error}): pip install -e '.[hub]'"
        ) from None
