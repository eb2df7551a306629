"""What the tokenizers library raises becomes an error; interrupts stay what they are."""

import os

import pytest

from xlj.config import ConfigError
from xlj.data.tokenizer.tokenizer_json import explained


class PanicException(BaseException):
    """As PyO3's, which is made anew by each library."""


@pytest.mark.parametrize("error", [PanicException("a\n b"), Exception("a b"), ValueError("a b")])
def test_its_errors_are_explained(error):
    with pytest.raises(ConfigError, match=r"^is broken \(a b\)$"), explained("is broken"):
        raise error


def test_notes_of_rust_are_not_shown(capfd):
    with explained("is broken"):
        os.write(2, b"thread '<unnamed>' panicked")
    os.write(2, b"after")
    assert capfd.readouterr().err == "after"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, ConfigError("mine")])
def test_others_pass(error):
    with pytest.raises(BaseException) as caught, explained("is broken"):
        raise error
    assert type(caught.value) is (error if isinstance(error, type) else ConfigError)
    assert "broken" not in str(caught.value)
