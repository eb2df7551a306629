"""The sdist and the wheel: their files, their metadata, and commands run from the wheel."""

import os
import re
import subprocess
import sys
import tarfile
import zipfile
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import xlj

ROOT = Path(__file__).parents[1]
URL = "https://example.org/xlj"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sdist_and_site(tmp_path_factory):
    """The names of the files of the sdist, and a folder with the files of the wheel, which is made
    from the sdist as in a release."""
    folder = tmp_path_factory.mktemp("release")
    clone = folder / "clone"
    names = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "--deduplicate"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split("\n")  # fmt: skip
    for name in filter(None, names):
        if (ROOT / name).is_file():
            (clone / name).parent.mkdir(parents=True, exist_ok=True)
            (clone / name).write_bytes((ROOT / name).read_bytes())
    environment = {**os.environ, "XLJ_REPOSITORY": f"{URL}/"}
    environment.pop("XLJ_SEQIO", None)
    build = [sys.executable, "-m", "build", "--outdir", folder, clone]
    subprocess.run(build, env=environment, check=True, timeout=300, stdout=subprocess.DEVNULL)
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    with tarfile.open(sdist) as files:
        packed = {name.partition("/")[2] for name in files.getnames()}
    with zipfile.ZipFile(wheel) as files:
        files.extractall(folder / "site")
    return packed, folder / "site"


@pytest.fixture
def site(sdist_and_site):
    return sdist_and_site[1]


@pytest.fixture
def distribution(site):
    (information,) = site.glob("*.dist-info")
    return metadata.PathDistribution(information)


def test_an_sdist_has_what_a_reader_needs_and_no_tests(sdist_and_site):
    packed, _ = sdist_and_site
    assert packed >= {"LICENSE", "README.md", "CHANGELOG.md", "CITATION.cff", "configs/xlm.py"}
    assert not [name for name in packed if name.startswith(("tests", "docs", "build"))]


def test_a_wheel_has_the_default_requirements(distribution):
    """`XLJ_SEQIO=0` leaves out requirements in a clone; a wheel has them in its metadata."""
    markers = {
        requirement.name: str(requirement.marker or "")
        for requirement in map(Requirement, distribution.requires)
        if "extra" not in str(requirement.marker)
    }
    assert {"jax", "flax", "sentencepiece", "tokenizers"} <= markers.keys()
    for name in ("seqio", "tensorflow", "tensorflow-datasets"):
        assert markers[name] == 'python_version < "3.14"'


def test_the_metadata_name_the_pythons_and_the_repository(distribution):
    facts = distribution.metadata
    assert (facts["Version"], facts["License"]) == (xlj.__version__, "Apache-2.0")
    allowed = SpecifierSet(facts["Requires-Python"])
    pythons = {f"Programming Language :: Python :: {v}" for v in map("3.{}".format, range(8, 20))
               if allowed.contains(v)}  # fmt: skip
    named = {line for line in facts.get_all("Classifier") if "Python ::" in line}
    assert named == pythons
    links = dict(line.split(", ") for line in facts.get_all("Project-URL"))
    tag = f"{URL}/blob/v{xlj.__version__}"
    assert links.pop("Source") == URL
    assert links["Changelog"] == f"{tag}/CHANGELOG.md" and len(links) == 3
    assert all((ROOT / link.removeprefix(tag + "/")).is_file() for link in links.values())
    # A package index shows README.md without the files beside it.
    description = facts.get_payload()
    targets = re.findall(r"(!?)\[[^][]*\]\(([^)\s]+)\)", description)
    assert ("!", f"{URL}/raw/v{xlj.__version__}/docs/pictures/alignment.svg") in targets
    assert ("", f"{tag}/docs/experiments/multilingual_e5.md#ntrex") in targets
    assert all(target.startswith(("https://", "#")) for _, target in targets)


def test_a_wheel_has_the_recipes_and_the_assets_of_report_pages(site, tmp_path):
    """Runs commands from the files of the wheel, outside of the clone."""
    assets = {
        f.relative_to(ROOT) for end in ("css", "js") for f in (ROOT / "xlj").rglob(f"*.{end}")
    }
    assert len(assets) >= 3 and all((site / file).is_file() for file in assets)
    (scripts,) = site.glob("*.dist-info/entry_points.txt")
    assert "xlj = xlj.__main__:main" in scripts.read_text()
    code = (
        "import sys; sys.path.insert(0, sys.argv.pop(1)); "
        "from xlj.__main__ import main; sys.exit(main())"
    )
    for config, expected in (
        ("quickstart:tlm", "phrasebook"),
        ("configs/xlm_e.py:tiny", "gated"),
        ("finetune/udpos", "xtreme/udpos"),
    ):
        command = ["finetune", "--config.init_from=x"] if "/udpos" in config else ["train"]
        done = subprocess.run(
            [sys.executable, "-I", "-c", code, site, *command, f"--config={config}", "--check"],
            cwd=tmp_path, capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0 and expected in done.stdout, done.stderr
