"""A URL where a local path is required is an error that names the flag or the config key."""

from pathlib import Path

import pytest

import xlj
from xlj.checkpoints import stored_models
from xlj.cli import outputs
from xlj.config import ConfigError, finetuning, parse
from xlj.config.paths import local_path

URLS = ("gs://bucket/run", "abfs://bucket/run", "s3://b", "HDFS+x://b/c")


@pytest.mark.parametrize("url", URLS)
def test_urls_are_refused_as_local_paths(url):
    for path in (url, Path(url)):
        with pytest.raises(ConfigError, match=r"--workdir=.* is a URL; .* must be a local path"):
            local_path("--workdir", path)


def test_only_the_home_folder_in_local_paths_is_expanded():
    for path in ("runs/a:b", "/a//b", "C:/x", "a b/c", ""):
        assert local_path("x", path) == Path(path)
    assert local_path("x", "~/runs") == Path.home() / "runs"


def test_errors_for_urls_name_the_flag_or_the_key(tiny):
    with pytest.raises(ConfigError, match=r"--output=s3://b/x\.json is a URL"):
        outputs.check_output("output", "s3://b/x.json")
    with pytest.raises(ConfigError, match="init_from=abfs://bucket/run is a URL"):
        stored_models.find("abfs://bucket/run", "init_from")
    with pytest.raises(
        ConfigError, match="workdir=s3://b/run: Orbax cannot store checkpoints in s3:// buckets"
    ):
        xlj.pretrain(tiny, "s3://b/run")
    with pytest.raises(ConfigError, match="workdir=gs://bucket/: name a folder in the bucket"):
        xlj.pretrain(tiny, "gs://bucket/")
    for url, reason in (
        ("https://host/rows", "it must be a local folder, or a folder in a bucket"),
        ("gs://bucket", "name a folder in the bucket, gs://BUCKET/FOLDER"),
        ("gs:/bucket/rows", "name a folder in the bucket"),
    ):
        tiny.data.cache = url
        with pytest.raises(ConfigError, match=f"data.cache={url}: {reason}"):
            parse(tiny)
    config = finetuning.default()
    config.init_from, config.data.cache = "x", "gs://bucket/rows"
    config.task.train = config.task.dev = "{language}.tsv"
    with pytest.raises(ConfigError, match="cache=gs://bucket/rows is a URL"):
        finetuning.parse(config)
