"""Hashes cover what text, vocabulary and rows depend on, and nothing else."""

import types

from xlj.config import Config, Data, Objectives
from xlj.config.objectives.mlm import MultilingualMLM, TranslationLM
from xlj.data.rows.recipe import recipe_of
from xlj.data.text.checking import check_text

READ = Objectives(
    options={"mmlm": MultilingualMLM(batch_rows=1), "tlm": TranslationLM(batch_rows=1)}
)


def test_text_vocabulary_and_rows_depend_on_content_only(tmp_path, monkeypatch):
    for name, text in (("en", "a\nb\n"), ("copy", "a\nb\n"), ("other", "a\nc\n")):
        (tmp_path / f"{name}.txt").write_text(text)
    monkeypatch.setattr(
        "xlj.data.rows.recipe.Vocabulary.load", lambda path: types.SimpleNamespace(digest=path)
    )

    def names(**change) -> tuple[str, str, str]:
        files = tuple(f"{tmp_path}/{name}.txt" for name in change.pop("mono", ("en",)))
        fields = {"cache": str(tmp_path / "cache"), "vocabulary": "v", "vocabulary_size": 100}
        fields |= {"languages": ("en",), "mono": files, **change}
        asked = Config(data=Data(**fields), objectives=READ)
        found = recipe_of(asked, check_text(asked.data))
        return found.text_folder.name, found.vocabulary_file.name, found.folder.name

    base = names()
    none = [
        {"mono": ("copy",)},
        {"workers": 7},
        {"alpha": 0.1},
        {"cache": str(tmp_path / "c2")},
        {"pair_length": 64},  # there are no pairs
    ]
    every = [
        {"mono": ("other",)},
        {"mono": ("en", "other")},
        {"held_out_lines": 5},
        {"languages": ("de",)},
    ]
    rows = [{"length": 64}, {"vocabulary": "w"}]
    assert {names(**change) for change in none} == {base}
    assert all(not set(base) & set(names(**change)) for change in every)
    assert all(names(**change)[:2] == base[:2] for change in rows)
    assert len({names(**change) for change in [*none, *every, *rows]}) == 1 + len(every) + len(rows)
    # The settings of a trained vocabulary name its file; rows know its content only.
    text, vocabulary, folder = names(vocabulary_size=101)
    assert (text, folder) == (base[0], base[2]) and vocabulary != base[1]
