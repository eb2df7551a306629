"""Reference count of the bytes that a compiled program moves, by string operations on its text.

An instruction reads its operands and writes its result. If it only slices an operand, looks up a
part of it or updates it in place, only this part counts. Loops run as often as their known trip
count; the few bytes that their conditions read are left out.
"""

FREE = ("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "iota", "after-all")
WIDTHS = {"pred": 1, "s8": 1, "u8": 1, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4, "f64": 8}


def size(shape):
    """Bytes of all arrays of a shape: 'f32[2,3]{1,0}', '(s32[], f32[4])'."""
    total = 0
    parts = shape.split("[")
    for before, after in zip(parts, parts[1:], strict=False):
        kind = ""
        while before and before[-1].isalnum():
            kind, before = before[-1] + kind, before[:-1]
        count = WIDTHS[kind]
        for number in filter(None, after[: after.index("]")].split(",")):
            count *= int(number)
        total += count
    return total


def closing(text, start):
    """The index of the parenthesis that closes the one at `start`."""
    depth = 0
    for place in range(start, len(text)):
        depth += {"(": 1, ")": -1}.get(text[place], 0)
        if depth == 0:
            return place
    raise ValueError(text)


def attribute(text, name):
    """The word after `name=%`; empty if the text has no such attribute."""
    _, separator, rest = text.partition(f"{name}=%")
    return rest.replace(",", " ").split()[0] if separator else ""


def parse(text):
    """Parses the text of a program.

    Returns:
      computations: by name, each {instruction: (op, shape, operands, attributes)}, in order.
      roots: the name of the root instruction by computation.
      entry: the name of the entry computation.
    """
    computations, roots, entry, current = {}, {}, "", ""
    for line in text.splitlines():
        if line.endswith("{") and line.startswith(("%", "ENTRY")):
            current = line.removeprefix("ENTRY ").split()[0].lstrip("%")
            computations[current] = {}
            entry = current if line.startswith("ENTRY") else entry
            continue
        left, equals, right = line.partition(" = ")
        if not equals or not line.startswith("  ") or not current:
            continue
        name = left.split()[-1].lstrip("%")
        end = closing(right, 0) + 1 if right[0] == "(" else right.index(" ")
        shape, rest = right[:end], right[end:].strip()
        begin = rest.index("(")
        end = closing(rest, begin)
        words = [word for word in rest[begin:end].split() if "%" in word]
        operands = [word.partition("%")[2].rstrip(",") for word in words]
        op = rest[:begin]
        more = rest[begin + 1 : end] if op == "parameter" else rest[end + 1 :]
        computations[current][name] = op, shape, operands, more
        if left.split()[0] == "ROOT":
            roots[current] = name
    return computations, roots, entry


def part(shape, op, place):
    """Bytes that an operation touches of operand number `place`; None: the whole operand."""
    if place == 0 and op in ("dynamic-slice", "slice", "gather"):
        return size(shape)
    if place == 0 and op == "dynamic-update-slice":
        return 0
    return None


class Counter:
    """Counts the bytes of each executed instruction: `counts`, by operation and name."""

    def __init__(self, text):
        self.computations, self.roots, self.entry = parse(text)
        self.counts = {}
        self.run(self.entry, 1)

    def run(self, name, times):
        for instruction, (op, shape, operands, more) in self.computations[name].items():
            if op == "while":
                count = int(more.partition('known_trip_count":{"n":"')[2].partition('"')[0])
                self.run(attribute(more, "body"), times * count)
            elif op == "call":
                self.run(attribute(more, "to_apply"), times)
            elif op not in FREE:
                moved = self.bytes_moved(name, op, shape, operands, more)
                key = f"{op}:{instruction.rstrip('.0123456789')}"
                self.counts[key] = self.counts.get(key, 0) + times * moved

    def bytes_moved(self, inside, op, shape, operands, more):
        shapes = [self.computations[inside][operand][1] for operand in operands]
        if op == "fusion":
            body = attribute(more, "calls")
            reads = sum(self.read(body, place) for place in range(len(operands)))
            return reads + self.written(body, self.roots[body])
        if op in ("dynamic-slice", "slice"):
            return 2 * size(shape)
        if op == "dynamic-update-slice":
            return 2 * size(shapes[1])
        parts = [part(shape, op, place) for place in range(len(shapes))]
        reads = (size(s) if p is None else p for s, p in zip(shapes, parts, strict=True))
        return sum(reads) + size(shape)

    def read(self, body, place):
        """Bytes that a fused computation reads of parameter number `place`."""
        for name, (op, shape, _, more) in self.computations[body].items():
            if op == "parameter" and int(more) == place:
                return min(size(shape), self.touched(body, name))
        raise ValueError(body)

    def touched(self, body, name):
        total = 0
        for user, (op, shape, operands, more) in self.computations[body].items():
            for place, operand in enumerate(operands):
                if operand != name:
                    continue
                if op in ("bitcast", "reshape"):
                    total += self.touched(body, user)
                elif op == "fusion":
                    total += self.read(attribute(more, "calls"), place)
                else:
                    touched_bytes = part(shape, op, place)
                    whole = size(self.computations[body][name][1])
                    total += whole if touched_bytes is None else touched_bytes
        return total

    def written(self, body, name):
        op, shape, operands, more = self.computations[body][name]
        if op == "tuple":
            return sum(self.written(body, operand) for operand in operands)
        if op == "bitcast":
            return min(size(shape), self.written(body, operands[0]))
        if op == "fusion":
            called = attribute(more, "calls")
            return self.written(called, self.roots[called])
        if op == "dynamic-update-slice":
            return size(self.computations[body][operands[1]][1])
        return size(shape)
