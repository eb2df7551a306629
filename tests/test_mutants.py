"""The lists in `tests/mutants` match the current code. `.ci/run` tests the mutants themselves."""

import subprocess
import sys
from pathlib import Path

import pytest
import related


@pytest.mark.slow
def test_named_and_equivalent_mutants_exist():
    mutants = Path(__file__).parent / "mutants"
    process = subprocess.run(
        [sys.executable, mutants, "--list", "--count=0"], capture_output=True, text=True
    )
    assert process.returncode == 0, process.stdout + process.stderr
    assert process.stdout.strip().startswith("0 mutants")


def test_the_tests_of_a_file_are_found(tmp_path):
    """The first is the module with the file's name, then modules that import it, then its area."""
    modules = {
        "tests/models/test_heads.py": "",
        "tests/models/test_other.py": "",
        "tests/data/test_heads.py": "from xlj.models import encoder, norms",
        "tests/objectives/test_a.py": "from xlj.models import heads",
        "tests/objectives/test_b.py": "def test():\n    from xlj.models.heads import predict",
        "tests/test_start.py": "import xlj.starting.flags",
    }
    for name, text in modules.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    a, b = "tests/objectives/test_a.py", "tests/objectives/test_b.py"
    first = "tests/models/test_heads.py"
    assert related.tests_of(tmp_path, "xlj/models/heads.py") == [first, a, b, "tests/models"]
    assert related.tests_of(tmp_path, "xlj/models/fused/norm.py") == ["tests/models"]
    of_folder = related.tests_of(tmp_path, "xlj/objectives/a/loss.py")
    assert of_folder == [a, "tests/objectives"]
    assert related.tests_of(tmp_path, "xlj/starting/running.py") == ["tests/test_start.py"]
    recipes = related.tests_of(tmp_path, "configs/xlm_e.py")
    assert recipes == ["tests/test_recipe_values.py", "tests/test_recipes.py"]
