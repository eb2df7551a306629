"""`xlj.adapt` refuses wrong flags before any work, and sets keys of its recipe from its flags."""

import json

import pytest

from xlj import adapt
from xlj.config import ConfigError

FLAGS = {
    "from": "DIR", "languages": "sw", "mono": "corpus/{language}.txt", "pairs": "en-sw",
    "parallel": "corpus/{pair}.tsv", "output": "out",
}  # fmt: skip


@pytest.mark.parametrize(
    "changes, match",
    [
        ({"parallel": None}, "--pairs and --parallel must be set together"),
        ({"pairs": None}, "--pairs and --parallel must be set together"),
        ({"pairs": None, "parallel": None, "test": "t/{pair}.tsv"}, "--test needs --pairs"),
        ({"replay": "en,sw"}, "--replay=sw: --languages also has sw"),
        ({"languages": "sw,,yo"}, "a name is empty or appears twice"),
        ({"languages": "sw,sw"}, "a name is empty or appears twice"),
        ({"pairs": "english"}, "--pairs=english: a pair must be two languages"),
        ({"replay_share": "1"}, "1 must be above 0 and below 1"),
        ({"replay_share": "x"}, "invalid float value: 'x'"),
        ({"pieces": "-1"}, "-1 is below 0"),
        ({"sentences": "", "replay": None}, "--sentences needs --pairs .*, and --replay"),
        ({"prompt": "query: "}, "--prompt needs --sentences"),
        ({"from": None}, "required: --from"),
        ({"from": "nothing_here"}, "--from=nothing_here"),
        ({"config": "nothing"}, "there is no such file|no such recipe"),
        ({"config.model.layers": "3"}, "model.layers .*transfer.model=init_from"),
    ],
)
def test_wrong_flags_are_refused(call, tmp_path, monkeypatch, changes, match):
    monkeypatch.chdir(tmp_path)
    flags = [
        f"--{name}={value}" if value else f"--{name}"
        for name, value in (FLAGS | changes).items()
        if value is not None
    ]
    with pytest.raises(ConfigError, match=match):
        call(adapt.main, *flags)
    assert not (tmp_path / "out/run").exists()


def test_flags_set_the_keys_of_the_recipe(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus/en.txt").write_text("A line.\n")  # with English text, English is replayed
    flags = FLAGS | {"pairs": "en-sw,de-yo", "test": "test/{pair}.tsv", "languages": "sw,yo"}
    flags["config.data.exclude"] = "more.txt"  # excluded as well as the test sets
    text = call(adapt.main, *(f"--{k}={v}" for k, v in flags.items()), "--check").out
    config = json.loads(text)
    assert config["init_from"] == "DIR"
    assert config["transfer"]["model"] == "init_from"
    assert config["data"]["languages"] == ["en", "sw", "yo"]
    assert config["data"]["pairs"] == ["en-sw", "de-yo"]
    assert config["data"]["exclude"] == ["more.txt", "test/en-sw.tsv", "test/de-yo.tsv"]
    assert config["evaluation"]["retrieval"]["source"] == ["test/{pair}.tsv"]


def test_a_sentence_encoder_is_its_own_teacher(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = [f"--{k}={v}" for k, v in (FLAGS | {"pairs": "en-sw,sw-de", "prompt": "a: "}).items()]
    printed = call(adapt.main, *flags, "--sentences", "--replay=en", "--check").out
    objectives = json.loads(printed)["objectives"]
    on = {n: o for n, o in objectives.items() if isinstance(o, dict) and o.get("batch_size")}
    assert list(on) == ["sentence_distillation", "text_distillation"]
    assert on["sentence_distillation"]["languages"] == ["en", "de"]
    for options in on.values():
        assert options["teacher"] == "DIR" and options["teacher_prompt"] == "a: "


def test_without_pairs_no_objective_reads_pairs(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    flags = {k: v for k, v in FLAGS.items() if k not in ("pairs", "parallel")}
    text = call(adapt.main, *(f"--{k}={v}" for k, v in flags.items()), "--check").out
    config = json.loads(text)
    active = [
        n for n, o in config["objectives"].items() if isinstance(o, dict) and o.get("batch_size")
    ]
    assert active == ["mmlm"]
    assert config["data"]["pairs"] == config["data"]["parallel"] == []
