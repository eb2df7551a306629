"""Tests of docs/architecture.md: subpackages import only lower layers and allowed libraries."""

import ast
import functools
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "xlj"

LAYERS = (
    "config",
    "options",
    "io",
    "families",
    "phrasebook",
    "contracts",
    "sharding",
    "distributed",
    "alignment_math",
    "data",
    "models",
    "objectives",
    "interop",
    "optimizers",
    "checkpoints",
    "training",
    "inference",
    "word_alignment",
    "retrieval",
    "document_alignment",
    "evaluation",
    "tasks",
    "finetuning",
    "conversion",
    "tools",
    "api",
    "adaptation",
    "cli",
    "commands",
    "remote_code",
)
"""Subpackages from the lowest layer up: each imports only from itself and from lower layers.

`options` are the modules `objectives/*/options.py`. The schema of configs reads them without JAX.
"""

IMPORTERS = {
    "absl": ("cli",),
    "apache_beam": ("data",),
    "chex": ("contracts", "models"),
    "faiss": ("retrieval",),
    "flax": ("models", "objectives"),
    "fsspec": ("io",),
    "google": ("interop",),
    "huggingface_hub": ("io",),
    "jax": (
        "contracts",
        "sharding",
        "distributed",
        "alignment_math",
        "models",
        "objectives",
        "interop",
        "optimizers",
        "checkpoints",
        "training",
        "inference",
        "word_alignment",
        "retrieval",
        "evaluation",
        "tasks",
        "finetuning",
        "conversion",
        "tools",
        "api",
        "adaptation",
        "commands",
    ),
    "matplotlib": ("evaluation",),
    "mteb": ("api",),
    "onnx": ("interop",),
    "onnxruntime": ("inference",),
    "optax": ("optimizers",),
    "orbax": ("checkpoints",),
    "pyarrow": ("data",),
    "safetensors": ("interop",),
    "scipy": ("alignment_math",),
    "seqio": ("data",),
    "sentencepiece": ("data", "interop"),
    "tensorboard": ("checkpoints",),
    "tensorflow": ("data",),
    "tensorflow_datasets": ("data",),
    "tokenizers": ("data", "interop"),
    "simalign": ("tools",),
    "sentence_transformers": ("tools",),
    "torch": ("tools", "remote_code"),
    "transformers": ("tools", "remote_code"),
}
"""The only subpackages that may import each external library."""

HEAVY = (
    "jax",
    "xlj.contracts",
    "xlj.sharding",
    "xlj.distributed.hosts",
    "xlj.alignment_math",
    "xlj.data",
    "xlj.models",
    "xlj.objectives",
    "xlj.interop",
    "xlj.optimizers",
    "xlj.checkpoints",
    "xlj.training",
    "xlj.inference",
    "xlj.word_alignment",
    "xlj.retrieval",
    "xlj.document_alignment",
    "xlj.evaluation",
    "xlj.finetuning",
    "xlj.conversion",
    "xlj.tools",
    "xlj.api",
    "xlj.adaptation",
)
"""Modules that are slow to import."""

INSIDE_FUNCTIONS = {
    "alignment_math": ("scipy",),
    "api": ("mteb",),
    "data": ("apache_beam", "seqio", "tensorflow", "tensorflow_datasets", "tokenizers"),
    "cli": HEAVY,
    "commands": HEAVY,
    "evaluation": ("matplotlib",),
    "inference": ("onnxruntime",),
    "interop": ("onnx", "tokenizers"),
    "io": ("fsspec", "huggingface_hub"),
    "tasks": ("jax", "xlj.models", "xlj.objectives"),
}
"""Modules that a subpackage imports only inside functions.

So rows are read without TensorFlow, and --help is fast.
"""

MODULES = {
    ".".join(file.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): file
    for file in sorted(PACKAGE.rglob("*.py"))
}
COMMANDS = sorted(
    name
    for name, file in MODULES.items()
    if '__name__ == "__main__"' in file.read_text("utf-8") and name != "xlj.__main__"
)
REMOTE_CODE = "xlj.interop.remote_code"
"""Code that runs where xlj is not installed: it imports nothing of xlj, and nothing imports it."""
WITHOUT_CONFIG = {
    "xlj.align",
    "xlj.align_documents",
    "xlj.card",
    "xlj.completion",
    "xlj.convert",
    "xlj.embed",
    "xlj.evaluate",
    "xlj.mine",
    "xlj.predict",
    "xlj.recipes",
    "xlj.report",
    "xlj.retrieve",
    "xlj.score",
    "xlj.search",
    "xlj.sweep",
}
"""Commands without --config.KEY flags."""


def subpackage_of(module):
    if module == "xlj":
        return "config"
    if module.startswith(REMOTE_CODE):
        return "remote_code"
    if re.fullmatch(r"xlj\.objectives\.\w+\.options", module):
        return "options"
    parts = module.split(".")
    return "commands" if len(parts) == 2 and (PACKAGE / f"{parts[1]}.py").is_file() else parts[1]


def imports_of(file):
    """Yields (imported module, whether importing the file imports it) for each import.

    Imports inside functions and under `if TYPE_CHECKING` do not run with the file.
    """
    tree = ast.parse(file.read_text("utf-8"))
    inner = {
        node
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        or isinstance(function, ast.If)
        and ast.unparse(function.test) == "TYPE_CHECKING"
        for node in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level:
            # transformers finds the other files of remote code by the relative imports.
            assert file.parent.name == "remote_code", f"{file}:{node.lineno}: relative import"
            continue
        elif isinstance(node, ast.ImportFrom):
            full = [f"{node.module}.{alias.name}" for alias in node.names]
            names = [name if name in MODULES else str(node.module) for name in full]
        else:
            continue
        for name in names:
            yield name, node not in inner


def test_every_subpackage_has_a_layer():
    assert {subpackage_of(module) for module in MODULES} == set(LAYERS)


@pytest.mark.parametrize("module", MODULES)
def test_modules_import_only_lower_layers_and_allowed_libraries(module):
    subpackage = subpackage_of(module)
    for name, top_level in () if module == "xlj" else imports_of(MODULES[module]):
        library = name.split(".")[0]
        if library == "xlj":
            target = subpackage_of(name)
            assert LAYERS.index(target) <= LAYERS.index(subpackage), (
                f"{module} imports {name} from a higher layer"
            )
        else:
            assert subpackage in IMPORTERS.get(library, LAYERS), (
                f"{module} may not import {library}"
            )
        lazy = INSIDE_FUNCTIONS.get(subpackage, ())
        if top_level and any(name == other or name.startswith(f"{other}.") for other in lazy):
            raise AssertionError(f"{module}: {name} must be imported inside functions")


def test_config_modules_import_each_other_only_at_the_top_level():
    """An import under `if TYPE_CHECKING` could hide a cycle between the schema and its sections."""
    for module, file in MODULES.items():
        if module.startswith("xlj.config"):
            imported = {name for name, _ in imports_of(file) if name.startswith("xlj")}
            assert imported == {
                n for n, top_level in imports_of(file) if top_level and n in imported
            }


def test_remote_code_imports_only_torch_and_transformers():
    files = [file for module, file in MODULES.items() if module.startswith(REMOTE_CODE)]
    assert {file.stem for file in files} == {"__init__", "configuration_xlj", "modeling_xlj"}
    libraries = {name.split(".")[0] for file in files for name, _ in imports_of(file)}
    assert libraries == {"math", "torch", "transformers"}


def test_reference_implementations_import_only_numpy():
    """Tests compare xlj with them, so the implementations import neither xlj nor JAX."""
    files = (ROOT / "tests/references").glob("*.py")
    libraries = {name.split(".")[0] for file in files for name, _ in imports_of(file)}
    assert libraries == {"math", "numpy", "references"}


def run(*arguments):
    done = subprocess.run(
        [sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize("module", ["xlj.models.encoder", "jax._src.core"])
def test_deprecated_features_that_xlj_uses_are_errors(module):
    """Tests `filterwarnings` in pyproject.toml."""
    warn = functools.partial(warnings.warn_explicit, filename="", lineno=1, module=module)
    with pytest.raises(DeprecationWarning):
        warn("jax.numpy.old is deprecated", DeprecationWarning)
    warn("The Pallas Triton backend is deprecated and will be removed", DeprecationWarning)


def test_training_needs_no_tensorflow(tmp_path):
    """TensorBoard imports TensorFlow if it is installed, but not to write events."""
    code = (
        "import sys, xlj.training.loop, xlj.data.rows.preparing; from pathlib import Path; "
        "from xlj.io.atomic import GrowingFiles; from xlj.checkpoints.metrics import Metrics; "
        f"Metrics(GrowingFiles(Path({str(tmp_path)!r})), 0).log(1, {{'x': 1.0}}); "
        "print(*sys.modules, sep='\\n')"
    )
    loaded = set(run("-c", code).stdout.split())
    assert {"jax", "orbax.checkpoint", "tensorboard"} <= loaded
    assert not {"tensorflow", "seqio", "tensorflow_datasets", "apache_beam"} & loaded


def test_using_an_encoder_needs_no_optimizer(checkpoint):
    """Imports would take most of the time of a command whose programs are already compiled."""
    code = (
        f"import sys, xlj; model = xlj.load({str(checkpoint)!r}); model.embed(['a cat']); "
        "model.align([('a cat', 'eine Katze')]); print(*sys.modules, sep='\\n')"
    )
    loaded = set(run("-c", code).stdout.split())
    assert {"jax", "orbax.checkpoint", "xlj.word_alignment.methods"} <= loaded
    for name in ("optax", "scipy", "tensorflow", "xlj.training.loop", "xlj.objectives.dwa.loss"):
        assert name not in loaded
    assert not [n for n in loaded if re.match(r"xlj\.(training\.(step|optimizer)|optimizer)", n)]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_printed_without_importing_jax(command):
    done = run("-X", "importtime", "-m", command, "--help")
    assert f"python -m {command}" in done.stdout
    assert ("--config.train.seed" in done.stdout) == (command not in WITHOUT_CONFIG)
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "xlj.config" in loaded
    assert not {"jax", "flax", "tensorflow", "seqio"} & loaded


def test_only_lowering_has_barriers_and_branches_on_the_platform():
    """Apart from attention and fused norms, which choose an implementation for the platform."""
    for module, file in MODULES.items():
        if re.match(
            r"xlj\.(models|objectives|optimizers)\.(?!.*attention|fused_|pallas$|block$)", module
        ):
            found = re.search(r"optimization_barrier|platform\(\) [!=]=", file.read_text("utf-8"))
            assert not found or module == "xlj.models.lowering", f"{module}: {found}"


def test_options_of_an_objective_can_be_imported_first_and_without_jax():
    """They import the package `config`, whose table of objectives names them."""
    code = (
        "import sys, xlj.objectives.dwa.options; from xlj.config import registered; "
        "print(*registered(), *sys.modules, sep='\\n')"
    )
    loaded = run("-c", code).stdout.split()
    assert loaded[:3] == ["mmlm", "tlm", "camlm"] and "xlj.objectives.word_hmm.options" in loaded
    assert not {"jax", "flax", "numpy"} & set(loaded)


def test_the_list_of_commands_has_the_main_commands():
    assert {"xlj.train", "xlj.prepare", "xlj.bench", "xlj.align"} <= set(COMMANDS)


def test_importing_xlj_imports_no_submodules_and_no_large_libraries():
    """Public names are imported on first use; the imports in the file are for type checkers."""
    loaded = set(run("-c", "import sys, xlj; print(*sys.modules, sep='\\n')").stdout.split())
    assert {name for name in loaded if name.startswith("xlj")} == {"xlj"}
    assert not {"jax", "numpy", "absl", "ml_collections"} & loaded


LONGEST = 60
"""The most lines of a function, including inner functions but not its docstring.

A long docstring (arguments, shapes, errors) is no reason to split a function.
"""

LONG = {
    "xlj.models.attention.triton.backward": "three kernels of the same blocks",
    "xlj.models.attention.tpu.forward": "a kernel, whose loops share its blocks",
    "xlj.models.attention.tpu.backward": "a kernel, whose loops share its blocks",
    "xlj.models.attention.tpu.backward.kernel": "its loops share its blocks",
    "xlj.models.fused_norm._of_add_norm": "a kernel, and the layout of its blocks",
}
"""Functions that may be longer, and why. The parts of a kernel read and write the same blocks."""


def functions_of(tree, prefix):
    for node in ast.iter_child_nodes(tree):
        inner = prefix
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            inner = f"{prefix}.{node.name}"
            if not isinstance(node, ast.ClassDef):
                lines = node.end_lineno - node.lineno + 1
                if ast.get_docstring(node):
                    lines -= node.body[0].end_lineno - node.body[0].lineno + 1
                yield inner, lines
        yield from functions_of(node, inner)


def test_only_the_listed_functions_are_long():
    long_functions = {
        name: lines
        for module, file in MODULES.items()
        for name, lines in functions_of(ast.parse(file.read_text("utf-8")), module)
        if lines > LONGEST
    }
    assert set(long_functions) == set(LONG), (
        f"longer than {LONGEST} lines, or listed but no longer so"
    )
