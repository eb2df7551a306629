"""xlj.prepare prints statistics of the text, and the command that trains without the text."""

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


def test_the_last_line_trains_from_the_rows_alone(recipe, store, capsys):
    of_text = ["--config.data.held_out_share=0.05", f"--config.data.cache={store.path.parent}"]
    kept = ["--config.data.alpha=0.5", "--config.train.steps=3"]
    assert prepare.main([f"--config={recipe}", "--runner", "", *of_text, *kept]) == 0
    report, line = capsys.readouterr().out.strip().rsplit("\n", 1)
    assert f"rows: {store.path}" in report and "without the text" in report
    *command, rows = shlex.split(line)
    assert command == ["python", "-m", "xlj.train", f"--config={recipe}", *kept]
    assert rows == f"--config.data.rows={store.path}"
    config = configs.load(str(recipe), [*kept, rows], schema)  # no key of text is set by hand
    assert config.data.rows == str(store.path)
