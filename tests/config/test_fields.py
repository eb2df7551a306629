"""Config sections check their values when they are built, also from Python."""

import dataclasses

import pytest

from xlj.config import Config, ConfigError, Data, Model, Optimizer, Options, Train, option
from xlj.config.fields import Section, keys_of
from xlj.config.sections import RetrievalEvaluation
from xlj.objectives.supervised.options import SUPERVISED


class Warmth(Options):
    """Options of a user-defined objective."""


@dataclasses.dataclass(frozen=True)
class Heat(Warmth):
    kind: str = option("dry", "of heat", choices=("dry", "wet"))


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: Model(position_bias="learned"), r"^model\.position_bias is 'learned'; .*none, t5"),
        (lambda: Model(layers=-3), r"^model\.layers is -3; it must be at least 1$"),
        (lambda: Model(dropout=0.95), r"^model\.dropout is 0\.95; it must be from 0 to 0\.9$"),
        (lambda: Model(scan_layers=1), r"^model\.scan_layers is 1 \(int\); it must be bool$"),
        (lambda: Data(pairs=(1,)), r"^data\.pairs is \(1,\); it must be names separated by commas"),
        (lambda: dataclasses.replace(Train(), log_every=0), r"^train\.log_every is 0; "),
        (lambda: RetrievalEvaluation(layer=-2), r"^evaluation\.retrieval\.layer is -2; "),
        (lambda: Config(init_from=3), r"^init_from is 3 \(int\); it must be str$"),
        (lambda: Optimizer(b1=1.0), r"^optimizer\.b1 is 1\.0; "),
        (lambda: Optimizer(warmup_steps="10 %%"), r"^optimizer\.warmup_steps is '10 %%'; "),
        (lambda: Train(steps="10%"), r"^train\.steps is '10%'; .* unit tok \(.*\) or ep \(.*\)$"),
        (lambda: Train(eval_every="3ep"), r"^train\.eval_every is '3ep'; .* unit % \(.*\)$"),
        (lambda: SUPERVISED["tagging"](batch_size=-1), r"^task\.batch_size is -1; "),
        (lambda: Heat(kind="wett"), r"^objectives\.kind is 'wett'; .*did you mean wet\?"),
    ],
)
def test_sections_built_in_python_check_their_values(build, message):
    with pytest.raises(ConfigError, match=message):
        build()


def test_values_are_converted_to_the_types_of_their_keys():
    assert isinstance(Optimizer(learning_rate=1).learning_rate, float)
    assert Data(languages=["en", "de"]) == Data(languages="en, de") == Data(languages=("en", "de"))


def sections_with_paths(section, prefix=""):
    """Yields (path, section) of each section of a config."""
    yield prefix, section
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        parts = value.items() if "sections" in field.metadata else [(field.name, value)]
        for name, part in parts:
            if dataclasses.is_dataclass(part):
                yield from sections_with_paths(part, f"{prefix}.{name}".lstrip("."))


def test_errors_name_the_full_key_in_every_section():
    config = Config()
    known = {path for path, _ in keys_of(type(config))}
    checked = 0
    for path, section in sections_with_paths(config):
        assert isinstance(section, Section)
        for field in dataclasses.fields(section):
            key = f"{path}.{field.name}".lstrip(".")
            if key in known and "choices" in field.metadata:
                with pytest.raises(ConfigError, match=rf"^{key} is 0j"):
                    dataclasses.replace(section, **{field.name: 0j})
                checked += 1
    assert checked > 150
