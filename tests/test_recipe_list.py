"""The list of recipes (`xlj.recipes`), and shell completion (`xlj.completion`)."""

import re
import subprocess
from pathlib import Path

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
    assert sorted(entries) == recipes.names()
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


def sections(printed):
    """{what the recipes of a section start with: their names}."""
    parts = re.split(r"^start with (.+): xlj train --config=NAME$", printed, flags=re.M)[1:]
    names = [re.findall(r"^  (\w+)$", part, re.M) for part in parts[1::2]]
    return dict(zip(parts[::2], names, strict=True))


def test_the_list_is_sorted_by_what_a_run_starts_with(call):
    listed = sections(call(recipe_list.main).out)
    assert tuple(listed) == recipe_list.STARTS
    for start, expected in (
        ("nothing", {"quickstart", "comparison"}),
        ("your text", {"aligner", "one_gpu", "xlm_tiny"}),
        ("your text and a released model", {"adapt", "sentences", "meta_xlm_minilm"}),
        ("a large corpus", {"xlm_r_base", "modernbert_base", "ernie_m_small"}),
        ("a large corpus and a released model", {"infoxlm", "ernie_m_base", "xlm_align"}),
    ):
        assert expected <= set(listed[start])
    assert all(names == sorted(names) for names in listed.values())


def test_the_table_of_the_readme_has_the_same_sections(call):
    readme = (Path(__file__).parents[1] / "README.md").read_text("utf-8")
    table = readme.partition("\n## Recipes\n")[2].partition("\n\n| objective |")[0]
    starts = {}
    for line in table.split("\n"):
        if names := re.findall(r"\(configs/(\w+)\.py\)", line):
            starts.setdefault(line.split("|")[1].strip(), []).extend(names)
    listed = sections(call(recipe_list.main).out)
    assert list(starts) == list(listed)
    left_out = {"comparison", "meta_pretraining"}  # recipes for experiments
    assert {start: sorted(names) for start, names in starts.items()} == {
        start: sorted({*names} - left_out) for start, names in listed.items()
    }


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
