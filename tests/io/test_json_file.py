"""JSON files are read unchanged; errors name file and line."""

import gzip
import json

import pytest

from xlj.config import ConfigError
from xlj.io import json_file

DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_values_are_read_unchanged(tmp_path, ending):
    value = {"a": [1, 2.5, None, True, "ž😀"], "b": {"c": 10**30}, "d": -(10**18)}
    raw = b"\xef\xbb\xbf" + json.dumps(value, indent=1).encode()
    path = tmp_path / f"a.json{ending}"
    path.write_bytes(gzip.compress(raw) if ending else raw)
    assert json_file.read(path) == json_file.read_object(path) == value
    assert json_file.parse("[1]", "") == [1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a.json:1: not valid JSON"),
        (b'{\n"a": ]', "a.json:2: not valid JSON"),
        (b'[1,\n2,\n"\xff"]', "a.json:3: the line is not UTF-8"),
        (b"{}{}", "a.json:1: not valid JSON"),
        (DEEP.encode(), "a.json: its JSON is nested too deep"),
        (b'{"a":' * 100_000, "a.json: its JSON is nested too deep"),
        (b"[" + b"9" * 5000 + b"]", "a.json: its JSON contains a number of 5,000 digits"),
        (b"[-" + b"9" * 400 + b"]", "a.json: its JSON contains a number of 401 digits"),
        (b"[1e999]", "a.json: its JSON contains '1e999', expected a finite number"),
        (b"[-Infinity]", "a.json: its JSON contains '-Infinity', expected a finite number"),
        (b"[NaN]", "a.json: its JSON contains 'NaN', expected a finite number"),
    ],
)
def test_invalid_json_is_one_short_error(tmp_path, content, message):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        json_file.read(path)
    text = str(caught.value)
    assert text.startswith(f"{tmp_path}/{message}") and len(text) < 300 and "\n" not in text


def test_infinity_and_nan_are_read_only_on_request():
    values = json_file.parse(json.dumps([float("inf"), float("nan")]), "", not_finite=True)
    assert values[0] == float("inf") and values[1] != values[1]
    with pytest.raises(ConfigError, match="x: its JSON contains a number of 5,000 digits"):
        json_file.parse("1" * 5000, "x", not_finite=True)


def test_a_file_that_is_too_large_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(json_file, "MAX_BYTES", 300_000)
    path = tmp_path / "a.json.gz"
    path.write_bytes(gzip.compress(b'"' + b"x" * 299_998 + b'"'))
    assert len(json_file.read(path)) == 299_998
    path.write_bytes(gzip.compress(b'"' + b"x" * 299_999 + b'"'))
    with pytest.raises(ConfigError, match=r"a\.json\.gz: more than 300,000 bytes of JSON"):
        json_file.read(path)


def test_read_object_refuses_values_that_are_not_objects(tmp_path):
    (tmp_path / "a.json").write_text("[]")
    with pytest.raises(ConfigError, match=r"a\.json: expected a JSON object"):
        json_file.read_object(tmp_path / "a.json")


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match=r"a\.json: cannot read this file"):
        json_file.read(tmp_path / "a.json")
