"""Counts the bytes that one execution of a compiled program reads from and writes to main memory.

Each instruction reads its operands and writes its results. If an instruction only slices an
operand, looks up a part of it or updates it in place, only the affected part counts. Caches are not
modelled: data that two instructions read counts twice. Memory near the cores (a TPU's VMEM) is not
counted.
"""

import re

from xlj.tools.planning.hlo import Array, Computation, Instruction, Program

_WITHOUT_TRAFFIC = {
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "iota"),
    *("partition-id", "replica-id", "opt-barrier", "add-dependency", "domain"),
}
_ANNOTATIONS = "ConcatBitcast|AssumeGatherIndicesInBound|AllocateBuffer|Sharding"
_VIEWS = {"bitcast", "convert", "copy", "reshape"}
_SUFFIX = re.compile(r"(\.(\d+|clone|remat\d*))+$")


def traffic(program: Program) -> dict[str, float]:
    """Returns the bytes of a program by `label` of the instructions, largest first."""
    total: dict[str, float] = {}
    for computation, instruction, times in program.executed():
        if size := of_instruction(program, computation, instruction):
            name = label(instruction)
            total[name] = total.get(name, 0.0) + times * size
    return dict(sorted(total.items(), key=lambda item: -item[1]))


def label(instruction: Instruction) -> str:
    """Returns a label: the operation, the instruction's name without numbers, and the path of the
    JAX function from which it was traced."""
    name = _SUFFIX.sub("", instruction.name)
    kind = instruction.op if name.startswith(instruction.op) else f"{instruction.op} {name}"
    names = [part for part in instruction.source.split("/") if "(" not in part]
    where = "/".join(part for part in names if part not in ("while", "body", "closed_call"))
    return f"{kind} ({where})" if where else kind


def of_instruction(program: Program, computation: Computation, instruction: Instruction) -> float:
    """Returns the bytes that one execution of an instruction reads and writes.

    For a Pallas kernel, these are the bytes that the kernel states (`Program.kernel_cost`).
    """
    if (cost := program.kernel_cost(computation, instruction)) is not None:
        return cost.bytes
    op, operands = instruction.op, computation.operands(instruction)
    if op in _WITHOUT_TRAFFIC or op.endswith(("-done", "-update")):
        return 0.0
    if op == "custom-call" and re.search(
        rf'custom_call_target="({_ANNOTATIONS})"', instruction.attributes
    ):
        return 0.0
    if op.endswith("-start"):
        return _bytes_of_start(instruction, operands)
    if op == "fusion":
        body = program.computations[instruction.called[0]]
        read = sum(
            _bytes_read(program, body, index, operand.bytes)
            for index, operand in enumerate(operands)
        )
        return read + _bytes_written(program, body, instruction.bytes)
    if op in ("dynamic-slice", "gather", "slice"):
        return 2 * instruction.bytes
    if op == "dynamic-update-slice":
        return 2 * operands[1].bytes
    if op == "scatter":
        return sum(operand.bytes for operand in operands[1:]) + 2 * operands[-1].bytes
    results = instruction.results
    if op == "custom-call" and re.search("__(cublas|cudnn)", instruction.attributes):
        results = tuple(array for array in results if array.type != "s8")  # without the workspace
    return sum(array.bytes for array in results) + sum(operand.bytes for operand in operands)


def _bytes_of_start(instruction: Instruction, operands: list[Instruction]) -> float:
    """Returns the bytes of an asynchronous copy or collective.

    The instruction's results are its operands, then the actual results, then a context. An
    all-reduce has only the actual results.
    """
    results, count = instruction.results, len(operands)
    if instruction.op != "all-reduce-start":
        results = results[count : 2 * count] or results[:1]
    if instruction.op in ("copy-start", "slice-start", "async-start"):
        # The source or the target may be in memory near the cores. Such an array does not count.
        ends = [(end, written) for end, written in zip(_results(operands), results, strict=False)]
        return sum(_bytes_moved(end, result) + _bytes_moved(result, result) for end, result in ends)
    return sum(array.bytes for array in (*results, *_results(operands)))


def _results(instructions: list[Instruction]) -> list[Array]:
    return [array for instruction in instructions for array in instruction.results]


def _bytes_moved(end: Array, result: Array) -> float:
    """Returns the bytes that a copy of `result` moves at one end, its source or its target."""
    return min(end.bytes, result.bytes_anywhere)


def _bytes_read(program: Program, body: Computation, index: int, full: float) -> float:
    """Returns how many bytes of an operand a fusion reads.

    Args:
      body: the computation of the fusion.
      index: the zero-based index of the operand.
      full: the size of the operand in bytes.
    """
    source = body.parameter(index)
    if source is None:
        return full
    name, users = source.name, body.users(source.name)
    while len(users) == 1 and users[0].op in _VIEWS and users[0].bytes <= full:
        name = users[0].name
        users = body.users(name)
    read_bytes = 0.0
    for user in users:
        is_first = user.operands.index(name) == 0 and user.operands.count(name) == 1
        if user.op in ("dynamic-slice", "gather", "slice") and is_first:
            read_bytes += user.bytes
        elif user.op == "dynamic-update-slice" and is_first:
            read_bytes += 0.0  # updated in place: overwritten data is not read
        elif user.op == "scatter" and is_first:
            read_bytes += body[user.operands[-1]].bytes
        elif user.op == "fusion":  # fusions are nested on TPUs
            inner = program.computations[user.called[0]]
            indices = [place for place, operand in enumerate(user.operands) if operand == name]
            read_bytes += sum(_bytes_read(program, inner, place, full) for place in indices)
        else:
            return full
    return min(full, read_bytes) if users else full


def _bytes_written(program: Program, body: Computation, full: float) -> float:
    """Returns the bytes that a fusion writes. For results that are updated in place, only the
    update counts.

    Args:
      body: the computation of the fusion.
      full: the size of the results in bytes.
    """
    for inner in body.instructions:
        if inner.op == "fusion" and inner.bytes <= full:
            full -= inner.bytes - _bytes_written(
                program, program.computations[inner.called[0]], inner.bytes
            )
        if inner.bytes <= full and inner.op in ("dynamic-update-slice", "scatter"):
            update = inner.operands[1 if inner.op == "dynamic-update-slice" else -1]
            full -= max(0.0, inner.bytes - body[update].bytes)
    return max(full, 0.0)
