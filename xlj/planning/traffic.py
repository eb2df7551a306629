"""Bytes that a compiled program reads from a chip's main memory and writes to it, once run.

Every instruction that runs on its own reads what it takes and writes what it gives. Of an operand
that is only sliced, looked up or updated in place, the part that is touched counts. Caches are not
modelled: what two instructions read counts twice. What the compiler keeps near the cores (a TPU's
VMEM) is not counted.
"""

import re

from xlj.planning.hlo import Array, Computation, Instruction, Program

_NOTHING = {
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "iota"),
    *("partition-id", "replica-id", "opt-barrier", "add-dependency", "domain"),
}
_MARKS = "ConcatBitcast|AssumeGatherIndicesInBound|AllocateBuffer|Sharding"
_VIEWS = {"bitcast", "convert", "copy", "reshape"}
_SUFFIX = re.compile(r"(\.(\d+|clone|remat\d*))+$")


def traffic(program: Program) -> dict[str, float]:
    """Bytes by operation and the function that it comes from, the largest first."""
    total: dict[str, float] = {}
    for computation, instruction, times in program.executed():
        if moved := of_instruction(program, computation, instruction):
            name = label(instruction)
            total[name] = total.get(name, 0.0) + times * moved
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def label(instruction: Instruction) -> str:
    """The operation, its name without numbers, and the function that it was traced from."""
    name = _SUFFIX.sub("", instruction.name)
    kind = instruction.op if name.startswith(instruction.op) else f"{instruction.op} {name}"
    parts = [part for part in instruction.source.split("/") if "(" not in part]
    where = "/".join(part for part in parts if part not in ("while", "body", "closed_call"))
    return f"{kind} ({where})" if where else kind


def of_instruction(program: Program, computation: Computation, instruction: Instruction) -> float:
    """Bytes that one run of an instruction moves."""
    op, operands = instruction.op, computation.operands(instruction)
    if op in _NOTHING or op.endswith(("-done", "-update")):
        return 0.0
    if op == "custom-call" and re.search(
        rf'custom_call_target="({_MARKS})"', instruction.attributes
    ):
        return 0.0
    if op.endswith("-start"):
        return _of_start(instruction, operands)
    if op == "fusion":
        body = program.computations[instruction.called[0]]
        read = sum(_read(program, body, index, found.bytes) for index, found in enumerate(operands))
        return read + _written(program, body, instruction.bytes)
    if op in ("dynamic-slice", "gather", "slice"):
        return 2 * instruction.bytes
    if op == "dynamic-update-slice":
        return 2 * operands[1].bytes
    if op == "scatter":
        return sum(found.bytes for found in operands[1:]) + 2 * operands[-1].bytes
    results = instruction.results
    if op == "custom-call" and re.search("__(cublas|cudnn)", instruction.attributes):
        results = tuple(array for array in results if array.type != "s8")  # a workspace
    return sum(array.bytes for array in results) + sum(found.bytes for found in operands)


def _of_start(instruction: Instruction, operands: list[Instruction]) -> float:
    """Of a copy or collective that runs beside others: what it reads, and what it writes. Its
    results are its operands, what becomes of them, and what it needs for itself; those of an
    all-reduce, which works in place, only the second."""
    results, count = instruction.results, len(operands)
    if instruction.op != "all-reduce-start":
        results = results[count : 2 * count] or results[:1]
    if instruction.op in ("copy-start", "slice-start", "async-start"):
        # One end may lie near the cores: the other counts, as much as moves.
        ends = [(end, written) for end, written in zip(_results(operands), results, strict=False)]
        return sum(_within(end, moved) + _within(moved, moved) for end, moved in ends)
    return sum(array.bytes for array in (*results, *_results(operands)))


def _results(instructions: list[Instruction]) -> list[Array]:
    return [array for found in instructions for array in found.results]


def _within(end: Array, moved: Array) -> float:
    return min(end.bytes, moved.bytes_anywhere)


def _read(program: Program, body: Computation, index: int, full: float) -> float:
    """What a fusion reads of its operand, which has `full` bytes."""
    source = body.parameter(index)
    if source is None:
        return full
    name, users = source.name, body.users(source.name)
    while len(users) == 1 and users[0].op in _VIEWS and users[0].bytes <= full:
        name = users[0].name
        users = body.users(name)
    touched = 0.0
    for user in users:
        first = user.operands.index(name) == 0 and user.operands.count(name) == 1
        if user.op in ("dynamic-slice", "gather", "slice") and first:
            touched += user.bytes
        elif user.op == "dynamic-update-slice" and first:
            touched += 0.0  # in place: what is overwritten is not read
        elif user.op == "scatter" and first:
            touched += body[user.operands[-1]].bytes
        elif user.op == "fusion":  # TPUs' have others inside
            inner = program.computations[user.called[0]]
            places = [place for place, operand in enumerate(user.operands) if operand == name]
            touched += sum(_read(program, inner, place, full) for place in places)
        else:
            return full
    return min(full, touched) if users else full


def _written(program: Program, body: Computation, full: float) -> float:
    """What a fusion writes of its results of `full` bytes: of those made in place, the update."""
    for found in body.instructions:
        if found.op == "fusion" and found.bytes <= full:
            full -= found.bytes - _written(
                program, program.computations[found.called[0]], found.bytes
            )
        if found.bytes <= full and found.op in ("dynamic-update-slice", "scatter"):
            update = found.operands[1 if found.op == "dynamic-update-slice" else -1]
            full -= max(0.0, found.bytes - body[update].bytes)
    return max(full, 0.0)
