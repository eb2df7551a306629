"""Files, commands, recipes, config keys and flags that the documentation names exist."""

import ast
import importlib
import importlib.util
import re
import types
from pathlib import Path

import pytest

from xlj import config as schema
from xlj.__main__ import COMMANDS
from xlj.config import finetuning

ROOT = Path(__file__).parents[1]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(path for path in (ROOT / "launch").iterdir() if path.is_file()),
]
KEYS = {name for module in (schema, finetuning) for name, _ in module.keys()}
UNWANTED = (
    "anew|as it lies|at hand|by heart|by itself|goes on|hangs? on|hence|in the place of each|lest"
    "|mends?|nobody|of chance|of itself|stands?|take it away|theirs|told|unless said|which of them"
    "|whereof|whoever"
)
"""Words of a private dialect that older pages and code used."""
CODE = [
    path
    for folder in ("xlj", "configs", "launch", "docs", "tests")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "grammars" not in path.parts  # words of eight languages
    and path != Path(__file__)
]
STORED = ("stands before", "stands in data.exclude")
"""Reasons in the manifests of rows, which reports print in other words."""
INPUTS = ("~nobody/x", "a list\\n   goes on")
"""Inputs of tests."""

page = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


def find_all(pattern, path):
    return set(re.findall(pattern, path.read_text("utf-8")))


def test_configs_page_is_up_to_date():
    spec = importlib.util.spec_from_file_location("make_configs", ROOT / "docs/make_configs.py")
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    assert maker.FILE.read_text("utf-8") == maker.render(), "run python docs/make_configs.py"


def test_each_file_says_what_it_is():
    """The listing of a folder is read with the first line of each file."""
    for file in (ROOT / "xlj").rglob("*.py"):
        assert ast.get_docstring(ast.parse(file.read_text("utf-8"))), file


def test_the_scaling_page_has_rows_for_every_recipe_of_a_paper(tmp_path):
    """An empty folder has no figures, so all rows of the page stay the same."""
    spec = importlib.util.spec_from_file_location("make_scaling", ROOT / "docs/make_scaling.py")
    maker = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(maker)
    text = maker.PAGE.read_text("utf-8")
    assert maker.page(tmp_path) == text and "not made" not in text
    others = {"quickstart", "xlm_tiny", "one_gpu", "comparison", "ernie_m_ablations", "aligner"}
    others |= {"meta_pretraining"}  # XLM-R base with fewer ids
    others |= {
        "adapt",
        "align_adapt",
        "sentences",
    }  # have the sizes of the model that they start from
    assert {file.stem for file in (ROOT / "configs").glob("*.py")} - others == {*maker.RECIPES}


@page
def test_relative_links_resolve(page):
    links = find_all(r"\]\(([^)#\s]+)[^)]*\)", page)
    broken = [x for x in links if "://" not in x and not (page.parent / x).exists()]
    assert not broken


@page
def test_python_code_parses(page):
    for code in re.findall(r"^```python\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.M):
        ast.parse(code)


@pytest.mark.parametrize(
    "path", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda path: str(path.relative_to(ROOT))
)
def test_pages_are_in_plain_words(path):
    unwanted = re.findall(rf"(?i)\b(?:{UNWANTED})\b", path.read_text("utf-8"))
    assert not unwanted, f"{path.name}: write it in plain words"


def test_code_is_in_plain_words():
    """Tests names, docstrings, comments and messages."""
    unwanted = []
    for path in CODE:
        text = path.read_text("utf-8")
        for stored in STORED:
            text = text.replace(f'"{stored}"', "")
        for given in INPUTS:
            text = text.replace(given, "")
        for number, line in enumerate(text.split("\n"), 1):
            if re.search(rf"(?i)\b(?:{UNWANTED})\b", line):
                unwanted.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert not unwanted


def test_every_page_is_in_the_sites_navigation():
    listed = re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text("utf-8"), re.MULTILINE)
    docs = ROOT / "docs"
    assert sorted(listed) == sorted(str(page.relative_to(docs)) for page in docs.rglob("*.md"))


@pytest.mark.parametrize(
    "query, name",
    [
        ("own text", "tutorials/own_text.md"),
        ("resum", "train.md"),
        ("resume fewer gpus", "train.md"),
        ("add language xlm", "adapt.md"),
        ("export model", "convert.md"),
        ("objective", "objectives.md"),
        ("write objective", "own_objective.md"),
        ("config keys", "configs.md"),
        ("out of memory", "train.md"),
        ("oom", "train.md"),
        ("start mmbert", "train.md"),
        ("continue pretraining", "train.md"),
        ("ner", "finetune.md"),
        ("named entity", "finetune.md"),
        ("export sentence transformers", "convert.md"),
        ("extend vocabulary", "convert.md"),
        ("objective retrieval", "objectives.md"),
        ("pharaoh", "align.md"),
        ("licence", "faq.md"),
        ("license", "faq.md"),
        ("licence", "index.md"),
        ("citation", "index.md"),
        ("onnx", "convert.md"),
        ("onnx", "faq.md"),
        ("serve", "serve.md"),
        ("labse", "faq.md"),
        ("faq", "faq.md"),
    ],
)
def test_the_sites_search_finds_a_page_by_its_headings(query, name):
    """The search finds words that begin with a word of the query, and ranks headings first."""
    headings = re.findall(r"^#+ (.+)$", (ROOT / "docs" / name).read_text("utf-8"), re.MULTILINE)
    words = [re.findall(r"\w+", heading.lower()) for heading in headings]
    assert any(
        all(any(word.startswith(part) for word in heading) for part in query.split())
        for heading in words
    )
    # By default the search ignores stop words, and "own" is one.
    assert "search: {pipeline: [trimmer]}" in (ROOT / "mkdocs.yml").read_text("utf-8")


@pytest.mark.parametrize("repository", ["", "https://example.org/xlj/"])
def test_links_out_of_the_site_lead_to_the_repository(repository, caplog):
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs/site_hooks.py")
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    config = {"docs_dir": str(ROOT / "docs"), "repo_url": repository}
    page = types.SimpleNamespace(file=types.SimpleNamespace(src_uri="tutorials/own_text.md"))
    unchanged = (
        "[a](../data.md#x) [b](#c) [d](https://example.org/e.py) ![f](../meta_xlm_minilm.png)"
    )
    text = f"{unchanged} [recipe](../../configs/xlm.py#L1) [`maker`](../make_configs.py)"
    changed = hook.on_page_markdown(text, page, config, None)
    start = "https://example.org/xlj/blob/main"
    recipe, maker = f"({start}/configs/xlm.py#L1)", f"({start}/docs/make_configs.py)"
    links = f"[recipe]{recipe} [`maker`]{maker}" if repository else "recipe `maker`"
    assert changed == f"{unchanged} {links}"
    result = types.SimpleNamespace(file=types.SimpleNamespace(src_uri="results.md"), meta={})
    assert hook.on_page_markdown("", result, config, None) == ""
    assert result.meta == {"search": {"boost": 0.3}}
    assert not caplog.records
    hook.on_page_markdown("[x](../../configs/none.py) [y](../../../there)", page, config, None)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]


def test_the_site_breaks_no_word_of_code_and_folds_its_menu():
    """A browser breaks a line after a hyphen. `navigation.sections` would open all groups."""
    spec = importlib.util.spec_from_file_location("site_hooks", ROOT / "docs/site_hooks.py")
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    block, long = "<pre><code>a -b\n</code></pre>", f"<code>{'x' * 30}</code>"
    html = f"<p>9 % of <code>--int8 train.steps=9 % 2</code> {long}</p>{block}<td>a\\|b</td>"
    marked = "<code><span>--int8</span> <span>train</span>.<span>steps</span>=9 % 2</code>"
    expected = html.replace("<code>--int8 train.steps=9 % 2</code>", marked)
    expected = expected.replace("9 % of", "9\u00a0% of").replace("\\|", "|")
    assert hook.on_page_content(html, None, None, None) == expected
    rule = ".md-typeset :not(pre) > code > span { white-space: nowrap; }"
    assert rule in (ROOT / "docs/site.css").read_text()
    assert "navigation.sections" not in (ROOT / "mkdocs.yml").read_text("utf-8")


SHORT = r"(?:`|^ {4}(?:[^\n|]*\| )?|;\s+do\s+)xlj "
"""What is before the name of a command in code."""


@page
def test_commands_exist(page):
    names = find_all(r"python -m xlj\.(\w+)", page)
    assert not [name for name in names if not (ROOT / f"xlj/{name}.py").is_file()]
    short = re.findall(rf"(?m){SHORT}([a-z][\w-]*)", page.read_text("utf-8"))
    assert {*short} <= {*COMMANDS}


MEASURED = re.compile(
    r"(?<![\w.,-])(\d[\d,]*(?:\.\d+)?)"
    r"(?: times|[\s-]?(?:%|points|tokens/s|sentences/s|minutes|MB|GB|GiB))"
)
"""A number that was measured, with its unit."""
SUMMARIES = [ROOT / "README.md", *(ROOT / f"docs/{n}.md" for n in ("index", "beside_others"))]
"""The pages that repeat results of other pages."""


@pytest.mark.parametrize("page", SUMMARIES, ids=lambda path: path.stem)
def test_numbers_of_a_summary_are_on_the_page_to_which_its_paragraph_links(page):
    """A number may be rounded. Each paragraph links to the results of its numbers."""
    text = re.sub(r"(?ms)^```.*?^```", "", page.read_text("utf-8"))
    paragraphs = re.split(r"\n\s*\n|\n(?=- |\|)", text)
    checked = 0
    for paragraph in paragraphs:
        links = re.findall(r"\(((?:docs/)?(?:benchmarks|results|experiments/\w+)\.md)", paragraph)
        linked = " ".join((page.parent / link).read_text("utf-8") for link in links)
        known = {number.replace(",", "") for number in re.findall(r"\d[\d,]*(?:\.\d+)?", linked)}
        for number in MEASURED.findall(re.sub(r"\]\([^)]*\)|`[^`]*`", "]", paragraph)):
            plain = number.replace(",", "")
            digits = len(plain.partition(".")[2])
            assert plain in {f"{float(each):.{digits}f}" for each in known}, (number, paragraph)
            checked += 1
    assert checked > 3


@page
def test_recipes_exist(page):
    recipes = find_all(r"configs/(\w+)\.py", page) - {"NAME", "mine"}  # the reader's own
    assert not [name for name in recipes if not (ROOT / f"configs/{name}.py").is_file()]
    for name, chosen in find_all(r"configs/(\w+)\.py:([\w,]+)", page):
        known = {"tiny", "modern", *getattr(importlib.import_module(name), "VARIANTS", {})}
        assert set(chosen.split(",")) <= known


@pytest.mark.parametrize("file", sorted((ROOT / "configs").glob("*.py")), ids=lambda f: f.stem)
def test_recipes_name_all_their_variants_and_only_existing_keys(file):
    module = importlib.import_module(file.stem)
    names = {"tiny", *getattr(module, "VARIANTS", {})}
    assert names <= set(re.findall(r"[`:](\w+)`", module.__doc__)) | {"tiny"}
    assert find_all(rf"configs/{file.stem}\.py:([\w]+)", file) <= names
    keys = find_all(r"--config\.([\w.]+)=", file)
    assert not keys - KEYS


@page
def test_config_keys_are_in_the_schema(page):
    keys = find_all(r"--config\.([\w.]+)=", page) - {"KEY"}
    sections = tuple(f"{name.rpartition('.')[0]}." for name in KEYS if "." in name)
    keys |= {
        name for name in find_all(r"`([a-z_.]+)(?:=[^`]*)?`", page) if name.startswith(sections)
    }
    keys = {name for name in keys if not name.endswith((".safetensors", ".json"))}  # files
    keys -= find_all(r"unknown config key ([\w.]+);", page)  # an example of a typo
    for own in find_all(r'@register\("(\w+)"\)', page):  # the page writes an objective
        keys = {key for key in keys if not key.startswith(f"objectives.{own}.")}
    known = {*KEYS, *(section.removesuffix(".") for section in sections)}
    assert not [key for key in keys if key not in known and not key.startswith("phases.")]


@page
def test_flags_belong_to_a_command(page):
    flags = find_all(r"(?<![\w-])--(\w+)", page)
    files = [*(ROOT / "xlj").glob("*.py"), *(ROOT / "xlj/cli").glob("*.py")]
    known = "\n".join(file.read_text("utf-8") for file in files)
    command = rf"(?m)(?:python -m xlj\.|{SHORT}).*(?:\\\n.*)*"
    lines = re.findall(command, page.read_text("utf-8"))
    used = {flag for flag in flags for line in lines if f" --{flag}" in line} - {"config", "help"}
    assert not [flag for flag in used if not re.search(rf'"(--)?{flag}"', known)]


def test_continuous_integration_runs_the_test_command_of_the_readme():
    readme, script = (ROOT / "README.md").read_text("utf-8"), (ROOT / ".ci/run").read_text("utf-8")
    test_command = "pip install -e '.[test]' && pytest"
    assert test_command in readme and test_command in script
