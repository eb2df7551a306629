"""The rows of docs/experiments/multilingual_e5.md: a function measures each of them.

A row is one data set in one language or pair, or one fine-tuning run.
"""

from __future__ import annotations

import functools
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import xlj
from xlj.api import data_sets
from xlj.api.data_sets import Scores, english_vectors, ntrex_sides, percent, tatoeba_sides
from xlj.evaluation.bootstrap import paired_bootstrap
from xlj.io import files
from xlj.retrieval import search
from xlj.word_alignment import gold_alignments, sentence_pairs
from xlj.word_alignment.gold_alignments import from_counts

TATOEBA = (
    "ara ben bul cmn deu ell est fra heb hun ind jav jpn kaz mal mar pes por rus swh tam tgl tha "
    "tur vie"
).split()
"""The languages of XTREME's Tatoeba that the data have: 25 of 36."""
NTREX = (
    "af am ar be bg bn ca cy da de el es fa fr ga gl gu he hi hr hy is ja kk kn lo lt lv mk mr ms "
    "mt my ne pa pl ro ru sk sl so sr-Cyrl sv sw ta th tr ur vi wo xh yo zh-CN zu"
).split()
ROUNDING = "jav kaz swh tha".split()
"""Languages of Tatoeba with few sentences, in which noise is measured."""
STS = "de en es fr ja nl pt ru".split()
ALIGNMENT = data_sets.ALIGNMENT_LICENCES
ENTITIES = (
    "ar az bg de en es et fa fr gu he hi hu id ja jv kk lt ml mr ms pa pl pt qu ro ru ta tl tr uk "
    "ur vi zh"
).split()
TAGS = "af ar bg de en es et fa fr hu id ja lt mr nl pt ro ru te tr uk ur vi wo zh".split()
PREFIXES = {"query:": "query: ", "no prefix": ""}
SETTINGS = {
    f"{encoding} {method}": (method, encoding == "together")
    for encoding in ("apart", "together")
    for method in ("argmax", "itermax", "match", "optimal_transport")
}
"""The method and the encoding of each way to align: `method` and `together` of `Encoder.align`."""
CPU = Path("/proc/cpuinfo")
TRAINED_IN = "bfloat16" if CPU.exists() and "amx_bf16" in CPU.read_text() else "float32"
"""The type in which rows train: the faster one of this machine. Only AMX is faster in bfloat16."""
BITS = {"bits": 16 if TRAINED_IN == "bfloat16" else 32}
"""The score of rows that says in which type they trained."""
LAYER = 8
"""The layer of XLM-Align and SimAlign, which is the default of `xlj.align`, for 12 layers."""
XLM_ALIGN, SIMALIGN = "together optimal_transport", "apart itermax"


def of_library(name: str, model: Path, data: Path) -> Scores:
    """Measures a row as `xlj card` does, with both prefixes.

    The model's card prescribes the prefix for tasks in which both sides are alike. mteb uses none.
    """
    return data_sets.find(data)[name](loaded(model), data_sets.Prompts(PREFIXES))


def of_library_rows(kind: str, languages: Iterable[str]) -> dict[str, Callable[..., Scores]]:
    names = [f"{kind}-{language}" for language in languages]
    return {name: partial(of_library, name) for name in names}


@functools.lru_cache(maxsize=2)
def loaded(model: Path, **settings: str) -> xlj.Encoder:
    """Loads an encoder, once for all rows of a command."""
    return xlj.load(model, **settings)


def error_rates(name: str, model: Path, data: Path) -> Scores:
    """Measures the alignment error rate of each layer, encoding and method.

    "difference" is the rate of SimAlign's settings minus the rate of XLM-Align's, with the 95 %
    interval of the paired bootstrap over sentences.
    """
    pairs = list(sentence_pairs.read(data / f"alignment/{name}.tsv.gz", with_gold=True))
    golds, encoder = [pair.gold for pair in pairs], loaded(model)
    counts = {}
    for setting, (method, together) in SETTINGS.items():
        aligner = encoder.aligner(range(encoder.layers + 1), method, together)
        by_layer = zip(*aligner.align(pairs), strict=True)
        counts[setting] = [gold_alignments.count(links, golds) for links in by_layer]

    def rate(of_pairs: Any) -> float:
        return from_counts(*of_pairs.sum(0)).aer

    first, second = (counts[setting][LAYER] for setting in (XLM_ALIGN, SIMALIGN))
    difference = paired_bootstrap(first, second, rate)
    rates = {name: [percent(rate(layer)) for layer in layers] for name, layers in counts.items()}
    return {"pairs": len(pairs), "difference": [percent(each) for each in difference], **rates}


def fine_tune(kind: str, seed: int, model: Path, data: Path) -> Scores:
    """Fine-tunes on English in steps of 8 rows, and scores the last step in each language.

    No checkpoint is selected on the test sets. `entities` and `tags` are tested on dev sets.
    """
    task = FINE_TUNING[kind]
    config = xlj.recipe(f"finetune/{task.recipe}")
    config.init_from = str(model)
    config.task.train = f"{data}/{task.train}"
    config.task.test = ",".join(f"{data}/{file}" for file in task.test)
    config.task.dev, config.task.select = "", "last"
    config.task.test_languages = ",".join(task.languages)
    config.task.batch_size, config.task.length, config.train.steps = 8, 128, str(task.steps)
    config.task.malformed = "skip"  # a word of WikiAnn's Tamil is only U+FEFF
    config.optimizer.learning_rate = 5e-5
    config.model.dtype = TRAINED_IN
    config.train.seed = seed
    with tempfile.TemporaryDirectory() as workdir:
        config.data.cache = f"{workdir}/rows"
        (run,) = xlj.fine_tune(config, workdir).runs
    scores = {language: round(score, 2) for language, score in run.test[task.metric].items()}
    return scores | BITS


def rounding(language: str, model: Path, data: Path) -> Scores:
    """Measures Tatoeba, into English and without a prefix, with noise as large as the rounding.

    Each value of a matrix gets uniform noise from minus to plus half the distance of two values of
    4 bits. The effect of the noise estimates the effect of the rounding, which cannot be measured
    without the exact weights.
    """
    sides, encoder = tatoeba_sides(language, data), loaded(model)
    noisy = (with_noise(encoder, seed) for seed in range(3))

    def accuracy(encoder: xlj.Encoder) -> float:
        nearest = search.nearest(*(encoder.embed(side) for side in sides))
        return percent(search.accuracy(nearest).source_to_target)

    return {
        "sentences": len(sides[0]),
        "without noise": accuracy(encoder),
        "with noise": [accuracy(each) for each in noisy],
    }


def with_noise(encoder: Any, seed: int) -> Any:
    """Returns an encoder whose 4-bit matrices have noise.

    The package rounds blocks of 32 values of a row of PyTorch's matrix, to multiples of an eighth
    of the largest value.
    """
    import jax

    rng = np.random.RandomState(seed)

    def change(path: Any, leaf: Any) -> Any:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        if not name.endswith("/kernel") and name != "embeddings/word":
            return leaf
        axis = -2 if name.endswith("/kernel") else -1  # xlj's kernels are [.., in, out]
        rows = np.moveaxis(np.array(leaf), axis, -1)
        blocks = rows.reshape(-1, 32)
        steps = np.abs(blocks).max(1, keepdims=True) / 8
        blocks = blocks + steps * rng.uniform(-0.5, 0.5, blocks.shape)
        return np.moveaxis(blocks.astype(np.float32).reshape(rows.shape), -1, axis)

    params = jax.tree_util.tree_map_with_path(change, encoder.pretrained.params)
    return xlj.Encoder(encoder.pretrained._replace(params=jax.tree.map(jax.numpy.asarray, params)))


class Way(NamedTuple):
    """A way to adapt the model: the new language, its pairs, the flags of `xlj adapt`, and whether
    the head for masked words is trained first, alone."""

    language: str
    pair: str = ""
    flags: tuple[str, ...] = ()
    head_first: bool = False


WAYS = {
    "yo": Way("yo", "en-yo"),
    "yo old pieces": Way("yo", "en-yo", ("--pieces=0",)),
    "yo text": Way("yo"),
    "yo text old pieces": Way("yo", "", ("--pieces=0",)),
    "yo head first": Way("yo", "en-yo", (), True),
    "wo": Way("wo", "fr-wo"),
}
OLD = ("en", "de", "fr")
"""The old languages whose text is trained on, and which are measured before and after."""
MEASURED = ("de", "fr", "yo", "wo")
"""The languages of NTREX whose translations are searched before and after an adaptation."""
ADAPTATION = (
    "--steps=150",
    *("--config.objectives.mmlm.batch_size=8", "--config.objectives.tlm.batch_size=4"),
    *("--config.objectives.mmlm.weight=0.2", "--config.objectives.tlm.weight=0.2"),
    "--config.objectives.retrieval.batch_size=8",
    *("--config.objectives.retrieval.temperature=0.02", "--config.optimizer.learning_rate=1e-4"),
    *("--config.train.eval_rows=8", f"--config.model.dtype={TRAINED_IN}"),
    "--config.train.eval_every=150",
    "--before_weight=0.5",
)


def adapted(name: str, seed: int, model: Path, data: Path) -> Path:
    """Adapts the model, or finishes its adaptation; returns the folder of `xlj adapt`."""
    way, output = WAYS[name], model.parent / "adapted" / f"{name.replace(' ', '-')}-{seed}"
    pairs = [f"--pairs={way.pair}", f"--parallel={data}/parallel/mafand/train/{{pair}}.tsv.gz"]
    # No sentence of the test sets is in the text; pairs of the news may repeat one.
    tests = ",".join(f"{data}/parallel/ntrex/test/en-{language}.tsv.gz" for language in MEASURED)
    start = with_head(seed, model, data) if way.head_first else model
    command = [
        *(sys.executable, "-m", "xlj.adapt", f"--from={start}", f"--languages={way.language}"),
        *(f"--mono={data}/mono/{{language}}.txt.gz", f"--replay={','.join(OLD)}"),
        *(pairs if way.pair else ()),
        *(f"--output={output}", f"--config.data.cache={output.parent}/rows"),
        *(f"--config.data.exclude={tests}", f"--config.train.seed={seed}", *ADAPTATION, *way.flags),
    ]
    subprocess.run(command, check=True, stdout=sys.stderr)  # in a process of its own for its memory
    return output


MODULES = ("modules.json", "sentence_bert_config.json", "1_Pooling", "2_Normalize")
"""The files and folders of the model's sentence modules."""


def with_head(seed: int, model: Path, data: Path) -> Path:
    """Trains only the head for masked words, on text of the old languages.

    Returns:
      A folder with this head and the sentence modules of `model`.
    """
    workdir = model.parent / "adapted" / f"head-{seed}"
    flags = {
        "init_from": model,
        "data.languages": ",".join(OLD),
        "data.mono": f"{data}/mono/{{language}}.txt.gz",
        "data.cache": workdir.parent / "rows",
        "objectives.mmlm.batch_size": 16,
        "optimizer.frozen": "embeddings,layers",
        "optimizer.learning_rate": 1e-3,
        "optimizer.warmup_steps": 10,
        "optimizer.decay_steps": 20,
        "model.dtype": TRAINED_IN,
        "train.steps": 100,
        "train.eval_rows": 8,
        "train.eval_every": 100,
        "train.checkpoint_every": 100,
        "train.seed": seed,
    }
    command = [sys.executable, "-m", "xlj.train", "--config=configs/adapt.py:text"]
    command += [f"--config.{name}={value}" for name, value in flags.items()]
    subprocess.run([*command, f"--workdir={workdir}"], check=True, stdout=sys.stderr)
    folder = workdir.with_name(f"with-{workdir.name}")
    command = [sys.executable, "-m", "xlj.convert", "export", f"--checkpoint={workdir}"]
    subprocess.run([*command, f"--output={folder}"], check=True, stdout=sys.stderr)
    for name in MODULES:  # an export with a head for masked words has no modules
        copy = shutil.copytree if (model / name).is_dir() else shutil.copy
        copy(model / name, folder / name)
    return folder


def adapt(name: str, seeds: Iterable[int], model: Path, data: Path) -> Scores:
    """Adapts the model, and measures it before and after on NTREX and on held-out text.

    A pair of scores has the values before and after, the means over the seeds. Accuracies are means
    of both directions, without a prefix. "difference" is the accuracy after minus before, with the
    95 % interval of the paired bootstrap over sentences.
    """
    outputs = [adapted(name, seed, model, data) for seed in seeds]
    records = [json.loads((each / "adaptation.json").read_text("utf-8")) for each in outputs]
    scores: Scores = {"steps": records[0]["step"], **BITS}
    for measure in ("pieces_per_word", "nats_per_character"):
        both = ([each[time].get(measure, {}) for each in records] for time in ("before", "after"))
        scores[measure] = [
            {key: round(statistics.mean(each[key] for each in runs), 3) for key in runs[0]}
            for runs in both
        ]
    for language in MEASURED:
        before = found(model, f"ntrex {language}", data)
        after = mean_found([each / "model" for each in outputs], f"ntrex {language}", data)
        difference = paired_bootstrap(before, after)
        scores[language] = [percent(before.mean()), percent(after.mean())]
        scores[f"{language}, difference"] = [percent(each) for each in difference]
    return scores


def pairs_of(file: Path) -> tuple[list[str], list[str]]:
    """Reads pairs of English and another language; returns the other sentences, and the English."""
    rows = [line.split("\t") for line in files.lines(file)]
    return [row[1] for row in rows], [row[0] for row in rows]


SIDES: dict[str, Callable[[str, Path], tuple[list[str], list[str]]]] = {
    "ntrex": ntrex_sides,
    "tatoeba": tatoeba_sides,
    "mafand": lambda language, data: pairs_of(data / f"parallel/mafand/test/en-{language}.tsv.gz"),
}
"""The functions (language, folder of the data) -> sentences of the language, and of English."""


def found(
    model: Path,
    name: str,
    data: Path,
    first: int | None = None,
    dimensions: int | None = None,
    **settings: str,
) -> np.ndarray:
    """Returns `hits` of a test set, such as "ntrex yo".

    They are stored beside the model, so that later rows compare models without computing them.

    Args:
      first: the number of sentences, the first ones; None for all.
      dimensions: the number of dimensions of each vector, the first ones; None for all.
      settings: of `xlj.load`.
    """
    test, _, language = name.partition(" ")
    choices = [str(each) for each in (name, first, dimensions, *settings.values()) if each]
    file = model.parent / f"found-by-{model.name}" / f"{' '.join(choices)}.npy"
    if not file.exists():
        sides = SIDES[test](language, data)
        values = hits(loaded(model, **settings), *(side[:first] for side in sides), dimensions)
        file.parent.mkdir(exist_ok=True)
        np.save(file, values)
    return np.load(file)


def mean_found(models: Iterable[Path], *args: Any, **settings: Any) -> np.ndarray:
    """Returns the mean of `found` over models that differ in the seed, float64 [sentences]."""
    return np.mean([found(model, *args, **settings) for model in models], 0)


def hits(
    encoder: xlj.Encoder,
    sentences: list[str],
    english: list[str],
    dimensions: int | None = None,
) -> np.ndarray:
    """Returns for each sentence in how many of both directions its translation is found, divided by
    two, float64 [sentences]."""
    vectors = encoder.encode(sentences), english_vectors(encoder, None, tuple(english))
    nearest = search.nearest(*(each[:, :dimensions] for each in vectors))
    lines = np.arange(len(english))
    return np.mean([side.indices[:, 0] == lines for side in nearest], 0)


LAYERS = {
    "every other layer": "0,2,4,6,8,11",
    "first layers": "0,1,2,3,4,5",
    "outer layers": "0,1,2,9,10,11",
}
"""Three choices of 6 of the 12 layers."""
HEALED_FOR = 9
"""The minutes of training of a healed model, at most."""
SMALL = ["--pieces=32000", f"--layers={LAYERS['first layers']}"]
TRIMMED = {
    "whole": [],
    "pieces": ["--pieces=32000"],
    **{name: [f"--layers={layers}"] for name, layers in LAYERS.items()},
    "pieces and first layers": SMALL,
    **{
        f"healed {seed}": [*SMALL, "--heal", f"--minutes={HEALED_FOR}", f"--seed={seed}"]
        for seed in range(3)
    },
}
"""The flags of `xlj convert trim` for each trimmed model."""
KEPT = {"en": "eng", "de": "deu", "fr": "fra", "sw": "swh"}
"""The languages whose pieces remain, with their names in Tatoeba."""
SENTENCES = 500
"""The number of sentences of a test set that trimmed models are measured on: the first ones."""


def trim(name: str, model: Path, data: Path) -> Path:
    """Trims the model, unless it is trimmed already; returns the folder of the new model."""
    output, flags = model.parent / "trimmed" / name.replace(" ", "-"), TRIMMED[name]
    if not flags:
        return model
    text = [f"{data}/mono/{language}.txt.gz" for language in KEPT]
    command = [
        *(sys.executable, "-m", "xlj.convert", "trim", f"--checkpoint={model}"),
        *(["--text", *text] if "--pieces=32000" in flags else ()),
        *(*flags, f"--output={output}"),
    ]
    if not output.exists():
        subprocess.run(command, check=True, stdout=sys.stderr)
    return output


def trimmed(name: str, model: Path, data: Path) -> Scores:
    """Trims the model, and measures its size, its speed and retrieval, without a prefix.

    The speed is in sentences per second of a core's time, on English sentences of NTREX. Accuracies
    are means of both directions, in %.
    """
    import jax

    folder = trim(name, model, data)
    encoder = loaded(folder)
    parameters = sum(leaf.size for leaf in jax.tree.leaves(encoder.pretrained.params))
    scores: Scores = {"parameters": parameters, "mb": round(4 * parameters / 1e6, 1)}
    for language, of_tatoeba in list(KEPT.items())[1:]:
        for test, code in (("ntrex", language), ("tatoeba", of_tatoeba)):
            of_sentences = found(folder, f"{test} {code}", data, SENTENCES)
            scores[f"{test}, {language}"] = percent(of_sentences.mean())
    _, english = ntrex_sides("de", data)
    began = time.process_time()
    encoder.embed(english[:SENTENCES])  # with the shapes of `hits`, which are compiled
    scores["speed"] = round(SENTENCES / (time.process_time() - began), 1)
    return scores


class Task(NamedTuple):
    """A fine-tuning task: its recipe, the templates of its files, its metric, its test languages
    and its steps."""

    recipe: str
    train: str
    test: tuple[str, ...]
    metric: str
    languages: list[str]
    steps: int = 1000


TREEBANKS, MASAKHAPOS = (
    "pos/xtreme-ud/{}.{{language}}.tsv.gz",
    "pos/masakhapos/{}.{{language}}.tsv.gz",
)
FINE_TUNING = {
    "entities": Task(
        "panx",
        "ner/panx/train.{language}.tsv.gz",
        ("ner/panx/dev.{language}.tsv.gz",),
        "chunk_f1",
        ENTITIES,
    ),
    "tags": Task(
        "udpos", TREEBANKS.format("train"), (TREEBANKS.format("dev"),), "word_class_f1", TAGS
    ),
    "new tags": Task(
        "udpos",
        TREEBANKS.format("train"),
        (MASAKHAPOS.format("test"), TREEBANKS.format("dev")),
        "word_class_f1",
        ["en", "wo", "yor"],
        300,
    ),
}
"""The tasks. "New tags" compares models before and after an adaptation to Yoruba or Wolof."""


def tag_adapted(way: str, model: Path, data: Path) -> Scores:
    """Fine-tunes an adapted model, or the model before, if `way` is "before"."""
    return fine_tune(
        "new tags", 0, model if way == "before" else adapted(way, 0, model, data) / "model", data
    )


ROWS: dict[str, Callable[[Path, Path], Scores]] = {
    **of_library_rows("tatoeba", TATOEBA),
    **of_library_rows("ntrex", NTREX),
    **{f"rounding-{language}": partial(rounding, language) for language in ROUNDING},
    "bucc-zh-en": partial(of_library, "bucc-zh-en"),
    **of_library_rows("sts", STS),
    **{f"aer-{name}": partial(error_rates, name) for name in ALIGNMENT},
    **{f"entities-{seed}": partial(fine_tune, "entities", seed) for seed in range(3)},
    "tags-0": partial(fine_tune, "tags", 0),
    **{f"adapted-yo-{seed}": partial(adapt, "yo", (seed,)) for seed in range(3)},
    "adapted-yo-mean of 3": partial(adapt, "yo", range(3)),
    **{f"adapted-{way}-0": partial(adapt, way, (0,)) for way in WAYS if way != "yo"},
    **{f"tagged-{way}": partial(tag_adapted, way) for way in ("before", "yo", "wo")},
    **{f"trimmed-{name}": partial(trimmed, name) for name in TRIMMED},
}
"""The function that measures each row, from the model's folder and the folder of the data."""
