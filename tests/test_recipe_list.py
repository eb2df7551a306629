"""The list of recipes (`xlj.recipes`), and shell completion (`xlj.completion`)."""

import subprocess

import pytest

from xlj import completion
from xlj import recipes as recipe_list
from xlj.config import recipes


def test_the_list_shows_what_each_recipe_is_what_it_needs_and_its_duration(call):
    lines = call(recipe_list.main).out.split("\n")
    entries = {
        line.strip(): number
        for number, line in enumerate(lines)
        if line[:3].strip() and line[:2] == "  "
    }
    assert list(entries) == sorted(recipes.names(), key=lambda name: (name.count("/"), name))
    assert max(map(len, lines)) <= 80
    text = " ".join(" ".join(lines).split())
    for expected in (
        "aligner A word aligner from parallel text alone, in minutes (ours). needs: your text "
        "(data.parallel) takes: about 5 minutes on 2 CPU cores, for up to 50,000 pairs",
        "on a laptop. needs: nothing else takes: about 4 minutes on 2 CPU cores",
        "needs: checkpoints/xlm_r_large, data/cc100/{language}.txt.xz (data.mono), data/parallel",
        "takes: about 150 days of one H100 (estimated)",
        "needs: an encoder (init_from), data/xtreme/udpos/train-{language}.tsv takes: 10 epochs",
    ):
        assert expected in text


@pytest.mark.parametrize(
    "line, expected",
    [
        ("xlj tr", "train"),
        ("xlj train --config=xlm_ti", "xlm_tiny"),
        ("xlj finetune --config=finetune/xn", "finetune/xnli"),
        ("xlj train --config.data.pair_l", "--config.data.pair_length="),
        ("xlj align --method=opt", "optimal_transport"),
        ("xlj convert ext", "extend"),
        ("xlj embed --nothing", ""),
    ],
)
def test_bash_completes_commands_recipes_flags_and_values(call, tmp_path, line, expected):
    script = call(completion.main, "bash").out
    (tmp_path / "xlj.sh").write_text(script)
    code = (
        'source "$1"; COMP_LINE="$2"; COMP_POINT=${#2}; COMP_WORDS=($2); '
        'COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _xlj; echo "${COMPREPLY[*]}"'
    )
    command = ["bash", "--norc", "-c", code, "-", tmp_path / "xlj.sh", line]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == f"{expected}\n"


def test_the_zsh_script_has_the_same_words(call):
    script = call(completion.main, "zsh").out
    assert script.endswith("compdef _xlj xlj\n\n") and "--config=quickstart " in script
