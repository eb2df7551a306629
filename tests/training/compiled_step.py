"""Prints the memory of a device and the bytes that it sends in a compiled step.

Usage: `compiled_step.py DEVICES,FSDP,GATHER,PARTS,OBJECTIVE+...,chips|cpus ...`, with a step for
each argument. PARTS is the number of microbatches. The program has loops with `chips`, and unrolled
loops with `cpus`. Each line of the output is a JSON object.
"""

import json
import sys

import jax

from xlj import config as schema
from xlj.config import parse
from xlj.sharding import devices
from xlj.tools.planning import programs, theory
from xlj.tools.planning.collectives import KINDS, collectives
from xlj.tools.planning.hlo import Program
from xlj.training.memory import expected_sizes

PER_DEVICE = 4
UNROLL_COUNT = devices.unroll_count


def config_of(count, fsdp, gather, parts, names):
    config = schema.default()
    config.data.languages, config.data.mono = "en,de", "phrasebook:{language}"
    config.data.pairs, config.data.parallel = "en-de", "phrasebook:{pair}"
    config.data.length = config.data.pair_length = 64
    config.data.vocabulary_size = 40_000  # three blocks of the cross-entropy loss
    model = config.model
    model.layers, model.hidden, model.heads, model.intermediate = 2, 128, 2, 512
    model.positions, model.remat = 66, "all"
    if {"mrtd", "trtd"} & set(names):
        config.objectives.generator.layers = 1
    for name in {"distillation", "sentence_distillation", "text_distillation"} & set(names):
        config.objectives[name].teacher = "a checkpoint"
    for name in {"sentence_distillation", "text_distillation"} & set(names):
        config.objectives[name].width = model.hidden
    if "btmlm" in names:
        model.language_embeddings = "predicted"
    model.position_bias = "gated"
    for name in schema.registered():
        config.objectives[name].batch_size = PER_DEVICE * count if name in names else 0
    config.mesh.fsdp, config.mesh.gather, config.train.gradient_accumulation_steps = (
        fsdp,
        gather,
        parts,
    )
    return parse(config)


def measure(count, fsdp, gather, parts, names, kind):
    """Returns what a device stores and sends in a step, and the collectives inside loops."""
    devices.unroll_count = UNROLL_COUNT if kind == "cpus" else lambda turns: 1
    jax.clear_caches()  # traces depend on the loops
    config = config_of(count, fsdp, gather, parts, names)
    sizes = expected_sizes(config)
    program = programs.compile_phase(config, sizes, jax.devices()[:count], 0)
    text = Program(program.text)
    sent = {}
    for collective in collectives(text, jax.devices()[:count]):
        sent[collective.kind] = sent.get(collective.kind, 0) + collective.fast
    ops = {*KINDS, *(f"{kind}-start" for kind in KINDS)}
    inner = [computation for name, computation in text.computations.items() if name != text.entry]
    return {
        "inner": [each.op for body in inner for each in body.instructions if each.op in ops],
        "state": program.arguments,
        "memory": program.working,
        "sent": sent,
        "theory": theory.sent(config, sizes, count),
    }


for argument in sys.argv[1:]:
    count, fsdp, gather, parts, names, kind = argument.split(",")
    result = measure(int(count), int(fsdp), gather, int(parts), names.split("+"), kind)
    print(json.dumps(result), flush=True)
