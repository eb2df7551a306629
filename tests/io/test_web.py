"""Files of web servers are read unchanged, also over broken connections."""

import gzip

import pytest
import servers

from xlj.config import ConfigError
from xlj.io import files, storage, web
from xlj.io.storage import to_path

LINES = [f"line {number} of the file" for number in range(200_000)]
CONTENT = "\n".join(LINES).encode()


@pytest.fixture(scope="module")
def served():
    contents = {"/a.txt": CONTENT, "/b.txt.gz": gzip.compress(CONTENT), "/empty.txt": b""}
    with servers.web(contents) as server:
        yield server


@pytest.fixture(autouse=True)
def fast(served, monkeypatch):
    served.ranges, served.cut, served.wait = True, 0, 0.0
    served.tags.clear()
    monkeypatch.setattr(web, "_PAUSE", 0.01)
    web._cached_facts.cache_clear()


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("name", ["/a.txt", "/b.txt.gz"])
def test_lines_equal_those_of_the_file(served, name, ranges):
    served.ranges = ranges
    assert list(files.lines(to_path(served.url + name))) == LINES


def test_consecutive_ranges_contain_every_line_once(served):
    path, cuts = to_path(f"{served.url}/a.txt"), [0, 1_000_000, 1_000_001, len(CONTENT)]
    assert files.can_be_split(path)
    actual = []
    for start, stop in zip(cuts, cuts[1:], strict=False):
        for block in files.range_blocks(path, start, stop):
            actual += block
    assert actual == LINES


def test_files_of_servers_without_ranges_are_not_split(served):
    served.ranges = False
    path = to_path(f"{served.url}/a.txt")
    assert not files.can_be_split(path)
    with path.open() as file, pytest.raises(OSError, match="not seekable"):
        file.seek(10)


def test_a_broken_connection_is_continued_where_it_broke(served):
    served.cut = 3
    assert to_path(f"{served.url}/a.txt").read_bytes() == CONTENT
    assert served.cut == 0 and len(set(served.asked[-3:])) == 3  # 3 different ranges


def test_a_broken_connection_is_an_error_if_the_server_has_no_ranges(served):
    served.ranges, served.cut = False, 2  # the first request only asks for the size
    with pytest.raises(ConfigError, match=r"a\.txt: cannot read this file \(after [\d,]+ of"):
        list(files.lines(to_path(f"{served.url}/a.txt")))


def test_a_file_that_changes_while_it_is_read_is_an_error(served):
    served.tags["/a.txt"] = '"1"'
    with to_path(f"{served.url}/a.txt").open() as file:
        served.tags["/a.txt"] = '"2"'
        with pytest.raises(OSError, match="changed while it was read"):
            file.read()


def test_a_slow_response_is_waited_for_until_the_timeout(served, monkeypatch):
    served.wait = 0.2
    assert to_path(f"{served.url}/a.txt").stat().st_size == len(CONTENT)
    monkeypatch.setattr(web, "TIMEOUT", 0.05)
    monkeypatch.setattr(web, "ATTEMPTS", 2)
    with pytest.raises(
        ConfigError, match=r"a\.txt cannot be read \(its server does not respond: .*timed out"
    ):
        storage.find_files(f"{served.url}/a.txt")


def test_sizes_and_versions_of_files(served):
    served.tags["/a.txt"] = '"of a"'
    url = f"{served.url}/a.txt"
    assert storage.identity(to_path(url)) == [url, len(CONTENT), '"of a"']
    assert to_path(f"{served.url}/empty.txt").read_bytes() == b""
    assert storage.find_files(f"{served.url}/none.txt") == []
    assert to_path("https://h/a.txt.gz?x=1.b").suffix == ".gz"
    with pytest.raises(ConfigError, match="does not list its files"):
        storage.find_files(f"{served.url}/*.txt")


def test_urls_of_other_kinds_are_refused():
    with pytest.raises(ConfigError, match=r"ftp://h/a: only https://, .* are supported"):
        to_path("ftp://h/a")
