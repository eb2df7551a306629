"""Every pretraining recipe has the values of its paper, which this file repeats.

If a paper does not state a value, this file has the value that xlj uses (docs/fidelity.md).
"""

import importlib
import re

import mmbert_base
import pytest
import xlm_r_base
from test_papers import PAGE as PAPERS

from xlj import config as schema
from xlj.config import parse
from xlj.config.fields import lookup
from xlj.config.sections import MATCHING_RULES

PAIRS = {"parallel": ("data/parallel/{pair}.tsv.gz",)}
ADAM = {"b1": 0.9, "b2": 0.98, "epsilon": 1e-6, "weight_decay": 0.01, "schedule": "linear"}
BASE = {"layers": 12, "hidden": 768, "heads": 12, "intermediate": 3072}
ALL_MASKED = {"mask_share": 1.0, "random_share": 0.0}
LARGE = {"layers": 24, "hidden": 1024, "heads": 16, "intermediate": 4096}


def flat(**sections):
    """{section.key: value}; a section of a section is written `a__b`."""
    return {
        f"{section.replace('__', '.')}.{key}": value
        for section, values in sections.items()
        for key, value in values.items()
    }


XLM_R = flat(  # Conneau et al., 2020, Table 8 and section 3; RoBERTa (Liu et al., 2019), Table 9
    model=BASE | {"dropout": 0.1, "attention_dropout": 0.1, "norm": "post"},
    data={"alpha": 0.3, "vocabulary_size": 250_002, "length": 512}
    | {"mono": ("data/cc100/{language}.txt.xz",)},
    objectives__mmlm={"batch_size": 8192, "weight": 1.0},
    objectives__masking={"rate": 0.15, "pair_rate": 0.0, "mask_share": 0.8, "random_share": 0.1},
    optimizer=ADAM | {"learning_rate": 6e-4, "warmup_steps": 24_000, "clip_norm": 0.0},
    train={"steps": 1_500_000},
)
XLM_R_TLM = (
    XLM_R
    | flat(  # InfoXLM's released command
        model={"dropout": 0.0, "attention_dropout": 0.0},
        data={"alpha": 0.7, "pair_length": 512, "mono": ("data/ccnet/{language}.txt.xz",)} | PAIRS,
        objectives={"normalisation": "global"},
        objectives__mmlm={"batch_size": 2048},
        objectives__tlm={"batch_size": 256, "weight": 1.0},
        optimizer={"learning_rate": 2e-4, "warmup_steps": 10_000, "clip_norm": 1.0},
        train={"steps": 200_000},
    )
    | {"init_from": "checkpoints/xlm_r_base"}
)
ERNIE_M = (
    XLM_R
    | flat(  # Ouyang et al., 2021, section 4
        model={"language_embeddings": "predicted"},
        data={"pair_length": 512} | PAIRS,
        objectives__mmlm={"batch_size": 2048},
        objectives__tlm={"batch_size": 256, "weight": 1.0},
        objectives__camlm={"batch_size": 256, "weight": 1.0},
        objectives__btmlm={"pseudo_ratio": 0.2, "target_alpha": 0.0, "generation": "argmax"},
        optimizer={"learning_rate": 2e-4, "warmup_steps": 10_000, "clip_norm": 1.0},
        train={"steps": 200_000},
    )
    | {
        "init_from": "checkpoints/xlm_r_base",
        "phases": {
            "back_translation": {
                "start_step": 100_000,
                "objectives": {"btmlm": {"batch_size": 256}},
            }
        },
    }
)
XLM_ALIGN = XLM_R_TLM | flat(  # Chi et al., 2021, section 4.1 and Table 11
    data={"mono": ("data/wiki/{language}.txt.gz", "data/ccnet/{language}.txt.xz")},
    objectives__tlm={"batch_size": 0},
    objectives__dwa={"batch_size": 256, "weight": 1.0}
    | {"label_layer": 10, "query_layer": 12, "sinkhorn_iterations": 2, "filtering": True}
    | {"queries": "masked"},
    train={"steps": 150_000},
)
ABLATION = XLM_ALIGN | flat(  # XLM-Align, section 5
    train={"steps": 50_000},
    objectives__mmlm={"batch_size": 256},
    objectives__dwa={"batch_size": 32},
)
XLM_E = XLM_R | flat(  # Chi et al., 2022, section 4.1, Appendix A and Table 6
    model={"position_bias": "gated"},
    data={"alpha": 0.7, "pair_length": 512} | PAIRS,
    objectives={"normalisation": "per_objective"},
    objectives__mmlm={"batch_size": 0},
    **{f"objectives__{task}": {"batch_size": 2048, "weight": 50.0} for task in ("mrtd", "trtd")},
    objectives__masking=ALL_MASKED | {"rate": 0.15},
    objectives__generator={"layers": 4, "embeddings": "shared"},
    optimizer={"learning_rate": 5e-4, "warmup_steps": 10_000, "clip_norm": 2.0},
    train={"steps": 125_000},
)
META_XLM = (
    XLM_R
    | flat(  # Chi et al., 2021, Appendix A and Table 7; section 3.2
        data={"alpha": 0.7, "mono": ("data/wiki/{language}.txt.gz",)}
        | {"vocabulary": "checkpoints/xlm-roberta-base/sentencepiece.bpe.model"},
        transfer={"vocabulary": "matched", "rules": ("exact", "normalised", "dictionary")}
        | {"dictionaries": (), "unmatched": "random", "parts": ("body", "embeddings")},
        objectives__mmlm={"batch_size": 64},
        optimizer={"learning_rate": 1e-4, "warmup_steps": 10_000, "clip_norm": 1.0},
        train={"steps": 200_000},
    )
    | {"init_from": "checkpoints/roberta-base"}
)
FROM_SCRATCH = {"init_from": "", "transfer.vocabulary": "same"} | flat(
    transfer={"rules": MATCHING_RULES}  # unused
)
XLM = flat(  # Lample and Conneau, 2019, section 5.1, and the released command
    model={"layers": 12, "hidden": 1024, "heads": 8, "intermediate": 4096, "dropout": 0.1}
    | {"attention_dropout": 0.1, "language_embeddings": "all", "pair_marks": ("positions",)},
    data={"alpha": 0.7, "vocabulary_alpha": 0.5, "vocabulary_size": 95_000, "length": 256}
    | {"pair_length": 256, "vocabulary_type": "bpe", "mono": ("data/wiki/{language}.txt.gz",)}
    | PAIRS,
    objectives__mmlm={"batch_size": 64},
    objectives__tlm={"batch_size": 16},
    optimizer=ADAM | {"learning_rate": 1e-4, "warmup_steps": 10_000, "weight_decay": 0.0},
    train={"steps": 500_000},
)
INFOXLM = (
    XLM_R_TLM
    | flat(  # the released command; weights are 0 while the queue fills
        objectives__xlco={"batch_size": 256, "layer": 8, "queue": 131_072, "momentum": 0.9999}
        | {"temperature": 0.25, "mixup": True, "weight": 0.0},
        objectives__mmlm={"weight": 0.0},
        objectives__tlm={"weight": 0.0},
    )
    | {
        "phases": {
            "train": {
                "start_step": 64,
                "objectives": {name: {"weight": 1.0} for name in ("mmlm", "tlm", "xlco")},
            }
        }
    }
)

MODERN = {
    "family": "modernbert",
    "layers": 22,
    "hidden": 768,
    "heads": 12,
    "intermediate": 1152,
} | {
    "absolute_positions": False,
    "norm": "embeddings",
    "norm_type": "unbiased",
    "biases": ("vocabulary",),
    "feed_forward": "geglu",
    "local_attention": 128,
    "full_attention_every": 3,
    "dropout_parts": ("attention",),
    "attention_dropout": 0.0,
}
MODERNBERT = flat(  # its paper, and yamls/modernbert of its repository
    data={"mono": ("data/english/*.jsonl.zst#text",), "vocabulary_type": "bpe", "length": 1024}
    | {"vocabulary_size": 50_368},
    model=MODERN
    | {"positions": 8194, "rotary_base": 10_000.0, "rotary_local_base": 10_000.0, "dropout": 0.1},
    objectives__mmlm={"batch_size": 4608},
    objectives__masking={"rate": 0.3, "mask_share": 0.8},
    optimizer={"name": "stable_adamw", "b1": 0.9, "b2": 0.98, "epsilon": 1e-6}
    | {"learning_rate": 8e-4, "weight_decay": 1e-5, "decoupling": "fully", "clip_norm": 0.0}
    | {"schedule": "constant", "warmup_steps": "3_000_000_000tok"},
    train={"steps": "2_019_000_000_000tok", "batch_warmup": "50_000_000_000tok"}
    | {
        "first_microbatches": 2,
        "gradient_accumulation_steps": 96,
    },  # from 96 rows to 4,608, in steps of 48
) | {
    "phases": {
        "context": {
            "start_step": "1_719_000_000_000tok",
            "data": {"length": 8192},
            "model": {"rotary_base": 160_000.0, "rotary_local_base": 10_000.0},
            "objectives": {"mmlm": {"batch_size": 576}},
            "train": {"gradient_accumulation_steps": 36},
            "optimizer": {"learning_rate": 3e-4, "schedule": "constant", "warmup_steps": 0},
        },
        "decay": {
            "start_step": "1_969_000_000_000tok",
            "optimizer": {"schedule": "sqrt", "floor": 0.001},
        },
    }
}


def mmbert_phases(schedule, floor, **rates):
    """Returns mmBERT's phases after the first: 600B tokens, then 100B."""
    constant = {"schedule": "constant", "warmup_steps": 0} | rates
    return {
        "context": {
            "start_step": "2_300_000_000_000tok",
            "data": {"length": 8192, "alpha": 0.5, "sampled": xlm_r_base.OWN_SCRIPT},
            "model": {"rotary_base": 160_000.0, "rotary_local_base": 160_000.0},
            "objectives": {"masking": {"rate": 0.15}},
            "optimizer": constant,
        },
        "decay": {
            "start_step": "2_900_000_000_000tok",
            "data": {"alpha": 0.3, "sampled": ""},
            "objectives": {"masking": {"rate": 0.05}},
            "optimizer": {"schedule": schedule, "floor": floor},
        },
    }


MMBERT_ADAM = {"b2": 0.95, "epsilon": 1e-8, "weight_decay": 8e-5}
MMBERT = (
    MODERNBERT
    | flat(  # its paper, and configs/*.yaml of its repository
        data={"mono": ("data/fineweb2/{language}/*.parquet#text",), "vocabulary_size": 256_000}
        | {"alpha": 0.7, "sampled": tuple(mmbert_base.LARGEST.split(","))},
        optimizer=MMBERT_ADAM,
        train={"steps": "3_000_000_000_000tok", "batch_warmup": "60_000_000_000tok"}
        | {"first_microbatches": 1},
    )
    | {"phases": mmbert_phases("sqrt", 0.02)}
)
EUROBERT = flat(  # its paper and its code
    data={"mono": ("data/text/{language}/*.parquet#text",), "alpha": 0.5, "length": 2048}
    | {"vocabulary_type": "bpe", "vocabulary_size": 128_256, "pair_length": 2048}
    | PAIRS,
    model=BASE
    | {"family": "eurobert", "absolute_positions": False, "norm": "pre", "norm_type": "rms"}
    | {"biases": (), "feed_forward": "swiglu", "prediction": "linear", "tied": False}
    | {"dropout": 0.0, "attention_dropout": 0.0, "positions": 8194, "rotary_base": 10_000.0}
    | {"pair_marks": ("separator",), "key_value_heads": 0},
    objectives__mmlm={"batch_size": 2048},
    objectives__tlm={"batch_size": 256},
    objectives__masking=ALL_MASKED | {"rate": 0.5},
    optimizer={"name": "adamw", "learning_rate": 1e-4, "b1": 0.9, "b2": 0.95, "epsilon": 1e-5}
    | {"weight_decay": 0.1, "clip_norm": 1.0, "schedule": "constant", "warmup_steps": 2_000},
    train={"steps": "5_000_000_000_000tok"},
) | {
    "phases": {
        "annealing": {
            "start_step": "4_700_000_000_000tok",
            "data": {"length": 8192},
            "model": {"rotary_base": 250_000.0},
            "objectives": {"masking": {"rate": 0.1}, "mmlm": {"batch_size": 512}},
            "optimizer": {"schedule": "linear", "warmup_steps": 0},
        }
    }
}
MMBERT_OPTIMIZER = {  # for xlj's own modern recipes
    "optimizer.name": "stable_adamw", "optimizer.decoupling": "fully", "optimizer.decay": "sqrt",
    "optimizer.schedule": "wsd",
} | flat(optimizer=MMBERT_ADAM)  # fmt: skip

SMALL = flat(model={"layers": 6, "hidden": 384, "heads": 12, "intermediate": 1536})


def ablation(**changes):
    return ABLATION | {f"objectives.dwa.{name}": value for name, value in changes.items()}


WITHOUT_PAIRS = {"data.parallel": (), "data.pairs": ()}
WITHOUT_CAMLM = {"objectives.camlm.batch_size": 0, "model.language_embeddings": "none"}
WITHOUT_BTMLM = {"phases": {}, "objectives.btmlm.pseudo_ratio": 0.1}
WITHOUT_TLM = {"objectives.tlm.batch_size": 0}
MMLM = WITHOUT_PAIRS | WITHOUT_TLM | WITHOUT_CAMLM | WITHOUT_BTMLM
WITHOUT_DWA = {"objectives.dwa.batch_size": 0, "objectives.dwa.label_layer": -1} | {
    "objectives.dwa.query_layer": -1
}

VALUES = {
    "xlm_r_base": XLM_R,
    "xlm_r_large": XLM_R
    | flat(model=LARGE, optimizer={"learning_rate": 4e-4, "warmup_steps": 30_000}),
    "xlm_r_tlm": XLM_R_TLM,
    "xlm_r_tlm:mmlm": XLM_R_TLM | WITHOUT_PAIRS | WITHOUT_TLM,
    "xlm": XLM,
    "infoxlm": INFOXLM,
    "ernie_m_base": ERNIE_M,
    "ernie_m_15": ERNIE_M,
    "ernie_m_ablations": ERNIE_M,
    "ernie_m_ablations:exp1": ERNIE_M | MMLM,
    "ernie_m_ablations:exp2": ERNIE_M | WITHOUT_CAMLM | WITHOUT_BTMLM,
    "ernie_m_ablations:exp3": ERNIE_M | WITHOUT_TLM | WITHOUT_BTMLM,
    "ernie_m_ablations:exp4": ERNIE_M | WITHOUT_TLM,
    "ernie_m_ablations:exp5": ERNIE_M,
    "ernie_m_large": ERNIE_M
    | flat(model=LARGE, optimizer={"learning_rate": 1e-4})
    | {"init_from": "checkpoints/xlm_r_large"},
    "ernie_m_small": ERNIE_M | {"init_from": ""} | SMALL,
    "ernie_m_small:xlm_r": ERNIE_M | {"init_from": ""} | SMALL | MMLM,  # Table 8
    "ernie_m_retrieval": XLM_R  # xlj's values, except the model and the objective
    | flat(model=LARGE | {"language_embeddings": "none"}, data={"pair_length": 128, "mono": ()})
    | flat(objectives__mmlm={"batch_size": 0}, optimizer={"learning_rate": 1e-5}, data=PAIRS)
    | flat(objectives__retrieval={"batch_size": 128, "layer": 16, "loss": "hardest"})
    | flat(objectives__retrieval={"temperature": 0.05, "weight": 1.0})
    | flat(optimizer={"warmup_steps": 1_000, "clip_norm": 1.0}, train={"steps": 10_000})
    | {"init_from": "runs/finetune/xnli-ernie_m/seed-0"},
    "xlm_align": XLM_ALIGN,
    "xlm_align:ablation": ABLATION,
    "xlm_align:mmlm": ABLATION | WITHOUT_PAIRS | WITHOUT_DWA,
    "xlm_align:no_dwa": ABLATION | WITHOUT_DWA | {"objectives.tlm.batch_size": 32},
    "xlm_align:no_tlm": ablation(weight=0.0),
    "xlm_align:label_layer_8": ablation(label_layer=8),
    "xlm_align:label_layer_10": ablation(label_layer=10),
    "xlm_align:label_layer_12": ablation(label_layer=12),
    "xlm_align:query_layer_8": ablation(query_layer=8),
    "xlm_align:query_layer_10": ablation(query_layer=10),
    "xlm_align:query_layer_12": ablation(query_layer=12),
    "xlm_align:query_layer_12,label_layer_12": ablation(query_layer=12, label_layer=12),
    "xlm_align:no_filtering": ablation(filtering=False),
    "xlm_align:unmasked_queries": ablation(queries="unmasked"),
    "xlm_align:aligned_queries": ablation(queries="aligned"),
    "xlm_align:no_queries": ablation(queries="none"),
    "xlm_e": XLM_E,
    "xlm_e:without_trtd": XLM_E | WITHOUT_PAIRS | flat(objectives__trtd={"batch_size": 0}),
    "xlm_e:mmlm_tlm": XLM_R  # Figure 1
    | flat(data={"alpha": 0.7, "pair_length": 512} | PAIRS, model={"position_bias": "none"})
    | flat(objectives__mmlm={"batch_size": 2048}, objectives__tlm={"batch_size": 2048})
    | flat(objectives__mrtd={"batch_size": 0}, objectives__trtd={"batch_size": 0})
    | {"optimizer.learning_rate": 5e-4, "optimizer.warmup_steps": 10_000}
    | {"optimizer.clip_norm": 2.0, "train.steps": 125_000},
    "modernbert_base": MODERNBERT,
    "mmbert_base": MMBERT,
    "mmbert_small": MMBERT
    | flat(model={"hidden": 384, "heads": 6}, optimizer={"warmup_steps": "4_000_000_000tok"})
    | {"train.batch_warmup": "100_000_000_000tok"}
    | {"phases": mmbert_phases("linear", 0.04, learning_rate=4e-4, weight_decay=4e-5)},
    "eurobert_210m": EUROBERT,
    "modern_xlm_e": XLM_E
    | flat(model=MODERN | {"dropout": 0.1, "position_bias": "none", "positions": 1026})
    | flat(model={"rotary_base": 10_000.0, "rotary_local_base": 10_000.0})
    | flat(objectives__generator={"layers": 7})
    | flat(data={"vocabulary_type": "bpe", "vocabulary_size": 256_000})
    | MMBERT_OPTIMIZER
    | flat(optimizer={"warmup_steps": "3_000_000_000tok", "decay_steps": "26_200_000_000tok"})
    | {"train.steps": "262_000_000_000tok"},
    "modern_xlm_align": XLM_ALIGN
    | flat(model=MODERN | {"dropout": 0.1, "positions": 8194, "middle_norm": True})
    | flat(model={"rotary_base": 160_000.0, "rotary_local_base": 160_000.0})
    | flat(objectives__dwa={"label_layer": 18, "query_layer": 22})
    | MMBERT_OPTIMIZER
    | {"optimizer.decay_steps": 15_000, "init_from": "checkpoints/mmbert_base"},
    "meta_pretraining": XLM_R  # RoBERTa base, on English
    | flat(data={"vocabulary_size": 50_265, "languages": ("en",)}, train={"steps": 500_000})
    | {"data.mono": ("data/english/{language}.txt.gz",)},
    "meta_xlm": META_XLM,
    "meta_xlm:xlm": META_XLM | FROM_SCRATCH,
    "meta_xlm:dict": META_XLM
    | flat(transfer={"dictionaries": ("data/muse/{pair}.txt",)})
    | {"transfer.rules": ("dictionary", "exact", "normalised")},
    "meta_xlm:body": META_XLM | {"transfer.parts": ("body",)},
    "meta_xlm:embeddings": META_XLM | {"transfer.parts": ("embeddings",)},
    "meta_xlm:kd": META_XLM
    | FROM_SCRATCH
    | flat(objectives__distillation={"batch_size": 64, "weight": 1.0, "language": "en"})
    | {"objectives.distillation.teacher": "runs/roberta_base_matched"},
    "meta_xlm:freezing": META_XLM | {"optimizer.frozen": ("layers",)},
}
LANGUAGES = {  # numbers of languages with text, and of pairs; languages can share a code
    "xlm_r_base": (100, 0), "xlm_r_large": (100, 0), "xlm_r_tlm": (87, 14), "xlm": (15, 14),
    "infoxlm": (87, 14), "ernie_m_base": (94, 14), "ernie_m_15": (15, 14),
    "ernie_m_large": (94, 14), "ernie_m_small": (94, 14), "ernie_m_ablations": (94, 14),
    "ernie_m_retrieval": (0, 14), "xlm_align": (87, 14), "xlm_e": (100, 93), "meta_xlm": (87, 0),
    "meta_pretraining": (1, 0), "modernbert_base": (1, 0), "mmbert_base": (100, 0),
    "mmbert_small": (100, 0), "eurobert_210m": (15, 14), "modern_xlm_e": (100, 93),
    "modern_xlm_align": (87, 14),
}  # fmt: skip
MACHINE_KEYS = {"model.dtype", "model.remat", "train.gradient_accumulation_steps"}
"""Keys that a recipe may set to suit its machine."""


def leaves(config, path=""):
    """Returns {key: value} of a recipe; its phases are one value."""
    values = {}
    for name, value in config.items():
        inner = hasattr(value, "items") and name != "phases"
        values |= leaves(value, f"{path}{name}.") if inner else {path + name: value}
    return values


@pytest.mark.parametrize("recipe", VALUES)
def test_recipes_have_the_papers_values(recipe):
    name, _, variant = recipe.partition(":")
    config = parse(importlib.import_module(name).get_config(variant))
    assert {key: lookup(config, key) for key in VALUES[recipe]} == VALUES[recipe]
    lengths = len(config.data.languages), len(config.data.pairs)
    languages, pairs = LANGUAGES[name]
    assert lengths == (languages, pairs if config.data.parallel else 0)


@pytest.mark.parametrize("recipe", VALUES)
def test_the_tables_have_every_key_that_a_recipe_changes(recipe):
    name, _, variant = recipe.partition(":")
    values, defaults = (
        leaves(importlib.import_module(name).get_config(variant)),
        leaves(schema.default()),
    )
    changed = {key for key, value in values.items() if value != defaults[key]}
    other_keys = {"data.languages", "data.pairs", "evaluation.retrieval.source"}
    other_keys |= {"model.task_head", "model.task_pooling"}  # of the family; only fine-tuning reads
    assert changed <= set(VALUES[recipe]) | MACHINE_KEYS | other_keys


def test_the_tables_have_every_recipe_of_the_papers():
    in_papers = re.findall(r"xlj\.train --config=configs/(\w+)\.py(:[\w,]+)?", PAPERS)
    variants = {
        f"{name}:{variant}"
        for name in LANGUAGES
        for variant in getattr(importlib.import_module(name), "VARIANTS", {})
    }
    assert {*LANGUAGES, *variants, *map("".join, in_papers)} <= set(VALUES)


@pytest.mark.parametrize("name", ["ernie_m_base", "ernie_m_15", "ernie_m_ablations"])
def test_back_translation_has_the_papers_values(name):
    first, second = parse(importlib.import_module(name).get_config()).schedule
    assert first.config.objectives.btmlm.batch_size == 0 and second.start == 100_000
    btmlm = second.config.objectives.btmlm
    assert btmlm.batch_size == 256
    assert (btmlm.mask_rate, btmlm.pseudo_ratio, btmlm.weight) == (0.15, 0.2, 1.0)


def test_infoxlm_trains_its_objectives_with_weight_1_from_step_64():
    _, phase = parse(importlib.import_module("infoxlm").get_config()).schedule
    weights = {name: options.weight for name, options in phase.active().items()}
    assert (phase.start, weights) == (64, {"mmlm": 1, "tlm": 1, "xlco": 1})
