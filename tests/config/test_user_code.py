"""User functions are imported by MODULE:FUNCTION; errors name the config key."""

import pytest

from xlj.config import ConfigError
from xlj.config.user_code import check_arguments, function_of


def test_a_function_is_imported_by_its_name():
    assert function_of("os.path:basename", "a.key")("x/y") == "y"


@pytest.mark.parametrize("name, error", [
    ("no_such:f", "a.key=no_such:f: No module named 'no_such'"),
    ("json:no_such", "a.key=json:no_such: module 'json' has no attribute 'no_such'"),
    ("json", "a.key=json is not a function; name one as module:function"),
    (":f", "a.key=:f is not a function; name one as module:function"),
    ("json:__doc__", "a.key=json:__doc__ is not a function; name one as module:function"),
    ("broken_module:f", "a.key=broken_module:f: ZeroDivisionError: division by zero"),
])  # fmt: skip
def test_errors_for_names_that_are_not_functions(name, error, tmp_path, monkeypatch):
    (tmp_path / "broken_module.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError) as raised:
        function_of(name, "a.key")
    assert str(raised.value) == error


def test_a_function_that_takes_other_arguments_is_refused():
    check_arguments("os.path:basename", "a.key", ("path",))
    with pytest.raises(ConfigError, match=r"must take the arguments \(query, key\): too many"):
        check_arguments("os.path:basename", "a.key", ("query", "key"))
