"""`xlj.prepare` prints statistics of the text, and a command that trains without the text."""

import shlex

import pytest

from xlj import config as schema
from xlj import prepare
from xlj.cli import configs


@pytest.fixture
def recipe(tiny, tmp_path):
    """`tiny` as a config file."""
    path = tmp_path / "recipe.py"
    path.write_text(
        "import json\n"
        "from xlj import config as schema\n\n\n"
        "def get_config():\n"
        "    config = schema.default()\n"
        f"    config.update(json.loads('''{tiny.to_json()}'''))\n"
        "    return config\n",
        encoding="utf-8",
    )
    return path


def test_the_last_line_is_a_command_that_trains_from_the_rows_alone(recipe, store, capsys):
    text_flags = ["--config.data.held_out_share=0.05", f"--config.data.cache={store.path.parent}"]
    training_flags = ["--config.data.alpha=0.5", "--config.train.steps=3"]
    assert prepare.main([f"--config={recipe}", "--runner", "", *text_flags, *training_flags]) == 0
    report, line = capsys.readouterr().out.strip().rsplit("\n", 1)
    assert f"rows: {store.path}" in report and "without the text" in report
    *command, rows = shlex.split(line)
    assert command == ["python", "-m", "xlj.train", f"--config={recipe}", *training_flags]
    assert rows == f"--config.data.rows={store.path}"
    # The config is valid: the command sets no key of the text.
    config = configs.load(str(recipe), [*training_flags, rows], schema)
    assert config.data.rows == str(store.path)
