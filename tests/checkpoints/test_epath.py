"""Orbax opens files without TensorFlow, also in buckets."""

import subprocess
import sys

import pytest
import servers

CODE = """
import sys, xlj.checkpoints.reading
from etils import epath
path = epath.Path(sys.argv[1]) / "a"
path.write_text("there")
assert path.read_text() == "there"
assert "tensorflow" not in sys.modules
"""


@pytest.mark.cloud
def test_files_of_a_bucket_are_opened_without_tensorflow():
    with servers.bucket("gs") as (url, _):
        subprocess.run([sys.executable, "-c", CODE, url], check=True, timeout=120)
