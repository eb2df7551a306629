"""What a device holds and sends in a compiled step: `compiled_step.py DEVICES OBJECTIVE,...`"""

import json
import math
import re
import sys

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding

from xlj import config as schema
from xlj import objectives
from xlj.config import ROW_KINDS, lookup, parse
from xlj.data.rows.corpus import Corpus
from xlj.objectives.objective import Rows
from xlj.training import partitioning, state
from xlj.training.step import make_train_step

PER_DEVICE, WIDTHS = 4, {"f32": 4, "bf16": 2, "s32": 4, "u32": 4}


def compiled(devices, names):
    config = schema.default()
    config.data.languages, config.data.mono = "en,de", "phrasebook:{language}"
    config.data.pairs, config.data.parallel = "en-de", "phrasebook:{pair}"
    config.data.length = config.data.pair_length = 64
    config.data.vocabulary_size = 1024
    model = config.model
    model.layers, model.hidden, model.heads, model.intermediate = 2, 128, 2, 512
    model.positions, model.remat = 66, True
    if "mrtd" in names:
        model.generator_layers = 1
    if "btmlm" in names:
        model.language_embeddings = "predicted"
    model.position_bias = "gated"
    for name in schema.registered():
        config.objectives[name].batch_rows = PER_DEVICE * devices if name in names else 0
    config.mesh.fsdp = devices
    config = parse(config)
    mesh = partitioning.make_mesh(config, jax.devices()[:devices])
    corpus = Corpus(1024, ("en", "de"), (1, 1))
    where = state.sharding(config, corpus, mesh)
    rows = NamedSharding(mesh, partitioning.ROWS)

    def ids(*shape):
        return jax.ShapeDtypeStruct(shape, jnp.int32, sharding=rows)

    active = config.objectives.active()
    batch = {
        name: Rows(
            ids(o.batch_rows, lookup(config, ROW_KINDS[o.rows].length)), ids(o.batch_rows, 2)
        )
        for name, o in active.items()
    }
    built = objectives.build(active, config.model, corpus)
    step = jax.jit(make_train_step(config, built, mesh), donate_argnums=0, out_shardings=where)
    return step.lower(state.abstract(config, corpus, mesh), batch).compile()


def sent(text):
    """Bytes of what collectives result in, by kind; those of a loop's body count once."""
    found = {}
    kinds = "all-gather|all-reduce|all-to-all|reduce-scatter|collective-permute"
    results = rf"= (\S+|\([^=]*?\)) ({kinds})(?:-start)?\("
    for shapes, kind in re.findall(results, re.sub(r"/\*.*?\*/", "", text)):
        for width, dims in re.findall(r"(\w+)\[([\d,]*)\]", shapes):
            size = math.prod(map(int, filter(None, dims.split(",")))) * WIDTHS.get(width, 1)
            found[kind] = found.get(kind, 0) + size
    return found


devices, names = int(sys.argv[1]), sys.argv[2].split(",")
program = compiled(devices, names)
memory = program.memory_analysis()
print(
    json.dumps(
        {
            "state": memory.argument_size_in_bytes,
            "memory": memory.temp_size_in_bytes,
            "sent": sent(program.as_text()),
        }
    )
)
