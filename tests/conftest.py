"""Shared fixtures: a small real corpus, its rows, a tiny config, and 8 fake CPU devices."""

import os
from importlib import metadata
from pathlib import Path

# Tests spend most of their time on compilation. Without fusion emitters, on one thread and with few
# LLVM optimisations, compiling on a CPU takes half as long. Later releases of JAX do not have this
# flag, and XLA aborts on an unknown flag.
os.environ["XLA_FLAGS"] = " ".join(
    [
        *os.environ.get("XLA_FLAGS", "").split(),
        "--xla_force_host_platform_device_count=8",
        "--xla_cpu_parallel_codegen_split_count=1",
        "--xla_cpu_use_fusion_emitters=false"
        if metadata.version("jaxlib").startswith("0.10.")
        else "",
    ]
).strip()
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

# The test processes share compiled programs, so that each program is compiled once.
os.environ.setdefault(
    "JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / "build" / "cache" / "jax")
)
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")

# Unicode tables of Hypothesis.
os.environ.setdefault(
    "HYPOTHESIS_STORAGE_DIRECTORY", str(Path(__file__).parents[1] / "build/cache/hypothesis")
)

import collections
import ctypes
import fcntl
import functools
import gc
import importlib.util
import itertools
import resource
import shutil
import sys

import pytest
from hypothesis import settings

from xlj import config as schema
from xlj import phrasebook
from xlj.config import ConfigError, parse

# The same examples in each run, and no deadlines, since machines may be busy.
settings.register_profile("xlj", derandomize=True, database=None, deadline=None, max_examples=60)
settings.load_profile("xlj")

MAX_MEMORY = 6.0 if "cuda" in os.environ["JAX_PLATFORMS"] else 3.0
"""Maximum memory of a test process in GiB, including the libraries of CUDA."""


def pytest_collection_finish():
    """Leaves out the objects of libraries and tests when Python looks for garbage, and looks less
    often: tracing makes many objects that live long."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000)


def pytest_runtest_setup(item):
    if item.get_closest_marker("seqio"):
        for name in ("seqio", "tensorflow", "tensorflow_datasets"):
            if importlib.util.find_spec(name) is None:
                pytest.skip(f"{name} is not installed")
    if item.get_closest_marker("gpu"):
        import jax

        if jax.default_backend() != "gpu":
            pytest.skip("needs an NVIDIA GPU, pip install -e '.[cuda]', JAX_PLATFORMS=cuda,cpu")


def pytest_terminal_summary(terminalreporter):
    """Prints how many tests ran with each marker, so that a log shows which did not run."""
    lines = terminalreporter.config.getini("markers")
    markers = [name for line in lines if (name := line.partition(":")[0]).isidentifier()]
    ran = collections.Counter()
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, ()):
            if report.when == "call":
                ran.update(["all", *(name for name in markers if name in report.keywords)])
    terminalreporter.write_line(f"markers: {', '.join(f'{k} {n:,}' for k, n in ran.items())}")


@pytest.fixture(scope="session")
def peaks():
    """The peak memory of this process in GiB after each module. At the end of the session it must
    be less than `MAX_MEMORY` in each process."""
    gib: dict[str, float] = {}
    yield gib
    growth = [f"{peak:.1f} in {module}" for (module, peak), before in
            zip(gib.items(), [0, *gib.values()], strict=False) if peak > before + 0.2]  # fmt: skip
    assert max(gib.values(), default=0) < MAX_MEMORY, f"GiB of this process: {', '.join(growth)}"


@pytest.fixture(scope="module", autouse=True)
def memory(request, peaks):
    """Records the peak memory after a module. Frees compiled programs if the process is large:
    after each module, this would take a tenth of the time of the tests."""
    yield
    unit = 2**30 if sys.platform == "darwin" else 2**20
    peaks[request.node.nodeid] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
    if "jax" in sys.modules and current_memory() > 0.4 * MAX_MEMORY:
        free_memory()


@pytest.fixture(name="free_memory")
def _free_memory():
    """Frees the programs of earlier tests, for a test that needs more than half of the limit."""
    free_memory()


def free_memory():
    sys.modules["jax"].clear_caches()
    gc.collect()
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


def current_memory():
    """Returns the memory of this process in GiB, infinity if the system does not tell."""
    statistics = Path("/proc/self/statm")
    if not statistics.exists():
        return float("inf")
    return int(statistics.read_text().split()[1]) * resource.getpagesize() / 2**30


@pytest.fixture
def call(capsys):
    """Calls a command in this process: `call(align.main, *arguments)` returns its printed output.

    Earlier output is dropped. An error that the command prints is raised as a `ConfigError`.
    """

    def call(main, *arguments):
        capsys.readouterr()
        code, printed = main([str(argument) for argument in arguments]), capsys.readouterr()
        if code:
            assert code == 2
            raise ConfigError(printed.err.partition("error: ")[2].rstrip())
        return printed

    return call


@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    """A function that builds a folder in one test process, for all test processes."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # each process has a folder in the folder of the session

    def shared(name, build):
        with open(base / f"{name}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            folder = base / name
            if not folder.exists():
                unfinished = base / f"{name}.unfinished"
                build(unfinished)
                unfinished.rename(folder)
        return folder

    return shared


@pytest.fixture(scope="session")
def corpus(shared):
    """A folder with mono/{en,de,sw}.txt of different sizes and pairs/{en-de,en-sw}.tsv."""
    return shared("corpus", _write_corpus)


def _write_corpus(folder):
    (folder / "mono").mkdir(parents=True)
    (folder / "pairs").mkdir()
    for language, lines in (("en", 3000), ("de", 1500), ("sw", 500)):
        text = itertools.islice(phrasebook.text_lines(language), lines)
        (folder / "mono" / f"{language}.txt").write_text("\n".join(text) + "\n", encoding="utf-8")
    for pair, lines in (("en-de", 1500), ("en-sw", 700)):
        rows = itertools.islice(phrasebook.pair_lines(pair), lines)
        text = "".join(f"{source}\t{target}\n" for source, target in rows)
        (folder / "pairs" / f"{pair}.tsv").write_text(text, encoding="utf-8")


@pytest.fixture(scope="session")
def rows_folder(shared):
    """The cache folder for the rows that the tests of this session build."""
    return shared("rows", Path.mkdir)


@pytest.fixture
def devices(monkeypatch):
    """A function that sets the number of devices that later runs of this process use."""
    import jax

    all_devices = jax.local_devices()  # also where `one_device` hides the others

    def set_count(count):
        monkeypatch.setattr(jax, "devices", lambda *_: all_devices[:count])

    return set_count


@pytest.fixture(scope="module")
def one_device():
    """Limits the runs of a module to one device: their programs compile faster than those of a
    mesh."""
    import jax

    first = jax.devices()[:1]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax, "devices", lambda *_: first)
        yield


@pytest.fixture
def tiny(make_tiny):
    """An ml_collections config of MMLM and TLM that trains on `corpus` in a few seconds."""
    return make_tiny()


@pytest.fixture(scope="session")
def make_tiny(corpus, rows_folder):
    """A function that builds `tiny`, for fixtures with a larger scope than a test."""
    return functools.partial(_tiny, corpus, rows_folder)


def _tiny(corpus, rows_folder):
    config = schema.default()
    config.data.languages = "en,de,sw"
    config.data.mono = f"{corpus}/mono/{{language}}.txt"
    config.data.pairs = "en-de,en-sw"
    config.data.parallel = f"{corpus}/pairs/{{pair}}.tsv"
    config.data.cache = str(rows_folder)
    config.data.vocabulary_size = 400
    config.data.length = 32
    config.data.pair_length = 48
    config.data.held_out_share = 0.05
    config.model.layers = 2
    config.model.hidden = 32
    config.model.heads = 2
    config.model.intermediate = 64
    config.model.positions = 50
    config.objectives.mmlm.batch_size = 16
    config.objectives.tlm.batch_size = 16
    config.optimizer.learning_rate = 1e-3
    config.optimizer.clip_norm = 1.0
    config.train.steps = 6
    config.train.log_every = 2
    config.train.eval_every = 3
    config.train.eval_rows = 8
    config.train.checkpoint_every = 2
    return config


@pytest.fixture
def every(tiny):
    """`tiny` with every objective and every part of the model that they use."""
    for name in schema.registered():
        tiny.objectives[name].batch_size = 16
    tiny.objectives.xlco.queue = 32
    tiny.objectives.xlco.momentum = 0.9
    tiny.data.examples, tiny.data.passage_length = "phrasebook:{language}", 32
    contrast = tiny.objectives.contrast
    contrast.negatives, contrast.query_length = 2, 32
    contrast.guard, contrast.dense, contrast.dimensions = True, 24, "8=0.5"
    for name in ("distillation", "sentence_distillation", "text_distillation"):
        tiny.objectives[name].teacher = "a checkpoint"
    for name in ("sentence_distillation", "text_distillation"):  # as `start.adopt_model` sets it
        tiny.objectives[name].width = tiny.model.hidden
    tiny.objectives.generator.layers = 1
    tiny.model.position_bias = "gated"
    tiny.model.language_embeddings = "predicted"
    return tiny


@pytest.fixture
def store(tiny):
    """The rows of `tiny`, built once per session."""
    from xlj.data.rows.preparing import prepare_rows

    return prepare_rows(parse(tiny))


@pytest.fixture(scope="session")
def checkpoint(corpus, tmp_path_factory):
    """A checkpoint with random weights: 3 layers, rows of at most 128 tokens."""
    import jax
    import sentencepiece

    from xlj.checkpoints.writing import Checkpointer
    from xlj.data.rows.store import Corpus, Manifest
    from xlj.data.tokenizer.vocabulary import Vocabulary
    from xlj.training import state

    folder = tmp_path_factory.mktemp("checkpoint")
    sentencepiece.SentencePieceTrainer.train(
        input=f"{corpus}/mono/en.txt,{corpus}/mono/de.txt",
        model_prefix=str(folder / "pieces"),
        vocab_size=300,
        minloglevel=2,
    )
    vocabulary = Vocabulary.load(folder / "pieces.model")
    config = schema.default()
    config.data.languages, config.data.mono = "en", "phrasebook:{language}"
    config.data.length = config.data.pair_length = 32
    config.data.vocabulary_size = vocabulary.size
    config.model.layers, config.model.hidden, config.model.heads = 3, 32, 2
    config.model.intermediate, config.model.positions = 64, 130
    config.objectives.mmlm.batch_size, config.objectives.tlm.batch_size = 8, 0
    config = parse(config)
    fresh = jax.jit(lambda: state.init(config, Corpus(vocabulary.size, ("en",), (1,)), 0))()
    manifest = Manifest(vocabulary.size, vocabulary.digest, {}, ())
    checkpointer = Checkpointer(folder, config, manifest, vocabulary, keep=1)
    checkpointer.save(0, fresh.items())
    checkpointer.close()
    return folder


@pytest.fixture(scope="session")
def vocabulary(corpus):
    """A vocabulary of 400 pieces for the languages of the corpus."""
    import io

    import sentencepiece

    from xlj.data.tokenizer.vocabulary import Vocabulary

    lines = [
        line
        for file in sorted((corpus / "mono").iterdir())
        for line in file.read_text("utf-8").split("\n")[:1000]
    ]
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=model, vocab_size=400, minloglevel=2
    )
    return Vocabulary(model.getvalue())


@pytest.fixture(scope="session")
def random_encoder(vocabulary):
    """An encoder with random weights: three layers, and 40 positions, the first two for padding."""
    import jax

    from xlj.config import Model
    from xlj.inference.pretrained import Pretrained
    from xlj.models import encoder

    model = Model(layers=3, hidden=32, heads=2, intermediate=64, positions=40, init_std=0.2)
    init = jax.jit(encoder.init, static_argnums=(1, 2, 3))
    return Pretrained(init(jax.random.key(0), model, vocabulary.size, 1), model, vocabulary)


@pytest.fixture(scope="session")
def copying_encoder(random_encoder):
    """An encoder whose layers change vectors little and whose positions are zero, so that a word is
    most similar to itself."""
    import jax
    import jax.numpy as jnp

    params = dict(random_encoder.params)
    params["embeddings"] = dict(params["embeddings"])
    params["embeddings"]["position"] = jnp.zeros_like(params["embeddings"]["position"])
    params["layers"] = jax.tree_util.tree_map_with_path(
        lambda path, x: x * 0 if "kernel" in str(path) else x, params["layers"]
    )
    return random_encoder._replace(params=params)


@pytest.fixture
def trained(tiny, store, shared, tmp_path):
    """A copy of the workdir of a finished run of `tiny`, with checkpoints of steps 2 and 4.

    The fixture changes `tiny` to the config of the run.
    """
    tiny.train.steps, tiny.train.keep_checkpoints = 4, 9
    import jax

    from xlj.training import loop, start

    def train(workdir):
        with pytest.MonkeyPatch.context() as patch:  # in each test process, the same devices
            patch.setattr(jax, "devices", lambda *_: jax.local_devices())
            loop.train(start.prepare(parse(tiny), workdir, store))

    once = shared("trained", train)
    shutil.copytree(once, tmp_path / "run")
    return tmp_path / "run"
