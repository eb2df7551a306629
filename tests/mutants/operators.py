"""Mutation operators: each operator yields likely mistakes for a node, as source text."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Iterator, Sequence

from sources import Function, Place, Source

SYMMETRIC = {"maximum", "minimum", "max", "min", "logaddexp", "array_equal", "add", "getattr"}
OF_AXES = {
    "all", "any", "argmax", "argmin", "argsort", "concatenate", "cummax", "cumsum", "expand_dims",
    "logsumexp", "max", "mean", "min", "prod", "repeat", "softmax", "stack", "std", "sum",
    "swapaxes", "take_along_axis", "transpose",
}  # fmt: skip
AXES = {"axis", "in_axes", "out_axes", "right_axis"}
OTHER_AXIS = {0: 1, 1: 0, 2: 1, -1: -2, -2: -1}
WRAPPERS = {
    "abs", "ceil", "clip", "cos", "dropout", "exp", "floor", "folded", "freeze", "gelu",
    "log", "log_softmax", "max", "maximum", "minimum", "rsqrt", "sigmoid", "softmax", "softplus",
    "sqrt", "square", "stop_gradient", "strip", "tanh",
}  # fmt: skip
ORDERED = {
    "arange", "argsort", "concatenate", "flatnonzero", "gather", "product", "reshape", "split",
    "stack", "take_along_axis", "tile", "where",
}  # fmt: skip
KEPT_KEYWORDS = {"precision", "preferred_element_type", "name", "dtype", "stable", "strict"}
OTHER_FUNCTION = {
    "all": "any", "any": "all", "argmax": "argmin", "argmin": "argmax", "ceil": "floor",
    "floor": "ceil", "max": "min", "maximum": "minimum", "mean": "sum", "min": "max",
    "minimum": "maximum", "sum": "max", "cos": "sin", "zeros": "ones", "ones": "zeros",
    "zeros_like": "ones_like", "ones_like": "zeros_like",
}  # fmt: skip
OTHER_COMPARISON = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
OTHER_ARITHMETIC = {
    ast.Add: "-", ast.Sub: "+", ast.Mult: "/", ast.Div: "*", ast.BitAnd: "|", ast.BitOr: "&",
    ast.FloorDiv: "*", ast.Mod: "//", ast.RShift: "<<",
}  # fmt: skip
ORDERINGS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)
ONE_SIDED = (ast.Sub, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.RShift, ast.LShift)


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A change of one function, identified by the statement `before` and `after` the change."""

    source: Source
    function: Function
    operator: str
    before: str
    after: str
    changes: Sequence[tuple[Place, ast.AST]] = dataclasses.field(repr=False)

    @property
    def place(self) -> str:
        return f"{self.source.file} {self.function.name}"

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.source.file, self.function.name, self.before, self.after


class Names:
    """What the source shows about names in a function: types, tuples, imports and attributes."""

    def __init__(self, source: Source, function: Function):
        self.kinds: dict[str, str] = {}
        for node in function.defs:
            for argument in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                self.kinds[argument.arg] = ast.unparse(argument.annotation or ast.Constant(None))
        self.unpacked: list[list[str]] = []
        for node in ast.walk(function.defs[-1]):
            targets = node.targets if isinstance(node, ast.Assign) else []
            for target in [*targets, getattr(node, "target", None)]:
                if isinstance(target, ast.Tuple):
                    self.unpacked.append([n.id for n in target.elts if isinstance(n, ast.Name)])
        self.imported = {
            (alias.asname or alias.name).split(".")[0]
            for node in ast.walk(source.tree)
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for alias in node.names
        }
        self.attributes: dict[str, set[str]] = {}
        for node in ast.walk(source.tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                self.attributes.setdefault(node.value.id, set()).add(node.attr)

    def like(self, name: str) -> list[str]:
        """Returns other names whose values may be of the same kind."""
        kind = self.kinds.get(name)
        names = [n for n, k in self.kinds.items() if k == kind and kind not in (None, "None")]
        for group in self.unpacked:
            names += group if name in group else []
        return [other for other in dict.fromkeys(names) if other != name]

    def is_value(self, node: ast.AST) -> bool:
        """Returns whether a node is a value, and not a module such as `jnp` or `jax.lax`."""
        while isinstance(node, ast.Attribute):
            node = node.value
        return not (isinstance(node, ast.Name) and node.id in self.imported)


def swapped(place: Place, names: Names) -> Iterator[str]:
    """Swaps arguments, and the sides of operators."""
    node = place.node
    if isinstance(node, ast.Call) and _name(node) not in SYMMETRIC:
        for parts, kind in ((node.args, "args"), (node.keywords, "keywords")):
            for i in range(len(parts) - 1):
                swapped_parts = list(parts)
                swapped_parts[i], swapped_parts[i + 1] = swapped_parts[i + 1], swapped_parts[i]
                if kind == "keywords":
                    if None in (parts[i].arg, parts[i + 1].arg):
                        continue
                    swapped_parts[i] = ast.keyword(parts[i].arg, parts[i + 1].value)
                    swapped_parts[i + 1] = ast.keyword(parts[i + 1].arg, parts[i].value)
                call = {"args": node.args, "keywords": node.keywords, kind: swapped_parts}
                yield ast.unparse(ast.Call(node.func, call["args"], call["keywords"]))
    if isinstance(node, ast.BinOp) and isinstance(node.op, (*ONE_SIDED, ast.MatMult)):
        yield ast.unparse(ast.BinOp(node.right, node.op, node.left))
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], ORDERINGS):
        if len(node.ops) == 1:
            yield ast.unparse(ast.Compare(node.comparators[0], node.ops, [node.left]))
    if isinstance(node, ast.IfExp):
        yield ast.unparse(ast.IfExp(node.test, node.orelse, node.body))


def off_by_one(place: Place, names: Names) -> Iterator[str]:
    """Changes integers, ends of slices and of ranges by one."""
    node, number = place.node, _number(place.node)
    if number is not None and not _is_axis(place) and abs(number) < 100_000:
        if place.field != "operand":
            yield from (str(number + 1), str(number - 1))
    elif isinstance(place.parent, ast.Slice) and place.field in ("lower", "upper"):
        yield from (f"({ast.unparse(node)}) + 1", f"({ast.unparse(node)}) - 1")
    elif isinstance(place.parent, ast.Call) and _name(place.parent) in ("range", "arange"):
        if place.field == "args" and number is None:
            yield from (f"({ast.unparse(node)}) + 1", f"({ast.unparse(node)}) - 1")


def wrong_axis(place: Place, names: Names) -> Iterator[str]:
    """Changes an axis."""
    if _is_axis(place) and (number := _number(place.node)) in OTHER_AXIS:
        yield str(OTHER_AXIS[number])


def dropped(place: Place, names: Names) -> Iterator[str]:
    """Removes a mask, a factor, a term, a function or a condition."""
    node = place.node
    if isinstance(node, ast.BinOp):
        yield ast.unparse(node.left)
        if not isinstance(node.op, ONE_SIDED):
            yield ast.unparse(node.right)
    elif isinstance(node, ast.BoolOp):
        for i in range(len(node.values)):
            rest = node.values[:i] + node.values[i + 1 :]
            yield ast.unparse(rest[0] if len(rest) == 1 else ast.BoolOp(node.op, rest))
    elif isinstance(node, ast.UnaryOp) and _number(node) is None:
        yield ast.unparse(node.operand)
    elif isinstance(node, ast.Call):
        if _name(node) == "where" and len(node.args) == 3:
            yield from (ast.unparse(node.args[1]), ast.unparse(node.args[2]))
        elif _name(node) in WRAPPERS:
            if isinstance(node.func, ast.Attribute) and names.is_value(node.func.value):
                yield ast.unparse(node.func.value)
            elif node.args and not isinstance(node.args[0], ast.Starred):
                yield ast.unparse(node.args[0])
        for i, keyword in enumerate(node.keywords):
            if keyword.arg and keyword.arg not in KEPT_KEYWORDS:
                rest = node.keywords[:i] + node.keywords[i + 1 :]
                yield ast.unparse(ast.Call(node.func, node.args, rest))
    elif isinstance(node, ast.AugAssign):
        yield "pass"


def other_parameter(place: Place, names: Names) -> Iterator[str]:
    """Uses another parameter of the same type, another name that was unpacked together, or another
    attribute of the same object."""
    node = place.node
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
        if not (isinstance(place.parent, ast.Call) and place.field == "func"):
            yield from names.like(node.id)
    elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        if names.kinds.get(node.value.id) and not isinstance(place.parent, ast.Call):
            others = names.attributes[node.value.id] - {node.attr}
            yield from (f"{node.value.id}.{other}" for other in sorted(others))


def reversed_order(place: Place, names: Names) -> Iterator[str]:
    """Reverses elements of a tuple or a list, rows of an array, or iterations of a loop."""
    node = place.node
    if isinstance(node, (ast.Tuple, ast.List)) and isinstance(node.ctx, ast.Load):
        if len(node.elts) > 1:
            reversed_node = type(node)(node.elts[::-1], node.ctx)
            yield ast.unparse(reversed_node)
    elif isinstance(node, ast.Call) and _name(node) in ORDERED:
        yield f"{ast.unparse(node)}[::-1]"
    elif isinstance(place.parent, ast.For) and place.field == "iter":
        yield f"list({ast.unparse(node)})[::-1]"


def constant_for_option(place: Place, names: Names) -> Iterator[str]:
    """Sets an option to its default, or a condition to always or never true."""
    node = place.node
    if isinstance(node, ast.Attribute) and _is_option(node.value):
        yield f"type({ast.unparse(node.value)}).{node.attr}"
    may_be_condition = isinstance(place.parent, (ast.If, ast.IfExp, ast.comprehension))
    if isinstance(node, ast.Compare) or may_be_condition and place.field in ("test", "ifs"):
        yield from ("True", "False")


def other_operation(place: Place, names: Names) -> Iterator[str]:
    """Changes a comparison, a sign or a function."""
    node = place.node
    if isinstance(node, ast.Compare) and type(node.ops[0]) in OTHER_COMPARISON:
        if len(node.ops) == 1:
            left, right = ast.unparse(node.left), ast.unparse(node.comparators[0])
            yield f"({left}) {OTHER_COMPARISON[type(node.ops[0])]} ({right})"
    elif isinstance(node, ast.BinOp) and type(node.op) in OTHER_ARITHMETIC:
        left, right = ast.unparse(node.left), ast.unparse(node.right)
        yield f"({left}) {OTHER_ARITHMETIC[type(node.op)]} ({right})"
    elif isinstance(node, ast.BoolOp):
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        yield ast.unparse(ast.BoolOp(other, node.values))
    elif isinstance(node, ast.Attribute) and isinstance(place.parent, ast.Call):
        if place.field == "func" and node.attr in OTHER_FUNCTION:
            yield f"({ast.unparse(node.value)}).{OTHER_FUNCTION[node.attr]}"


OPERATORS: tuple[Callable[[Place, Names], Iterator[str]], ...] = (
    swapped,
    off_by_one,
    wrong_axis,
    dropped,
    other_parameter,
    reversed_order,
    constant_for_option,
    other_operation,
)


def mutants_of(source: Source, function: Function) -> dict[str, list[Mutant]]:
    """Returns all mutants of a function by operator, without duplicates."""
    names, by_operator, seen = Names(source, function), {}, set()
    for place in function.places():
        if isinstance(place.node, ast.Slice) or isinstance(_context(place.node), ast.Store):
            continue
        text, before = None, place.line()
        if isinstance(place.node, ast.expr):
            text = ast.unparse(place.node)
        for operator in OPERATORS:
            for replacement in operator(place, names):
                if replacement == text:
                    continue
                change = [(place, _node(replacement, place))]
                with source.changed(change):
                    after = place.line()
                if after != before and (before, after) not in seen:
                    seen.add((before, after))
                    mutant = Mutant(source, function, operator.__name__, before, after, change)
                    by_operator.setdefault(operator.__name__, []).append(mutant)
    return by_operator


def _node(text: str, place: Place) -> ast.AST:
    if text == "pass":
        return ast.Pass()
    if isinstance(place.node, ast.Tuple) and isinstance(place.parent, ast.Subscript):
        # As an index, because the tuple may contain slices.
        return ast.parse(f"_[{text.strip('()')}]", mode="eval").body.slice
    return ast.parse(f"({text})", mode="eval").body


def _context(node: ast.AST) -> ast.AST | None:
    return getattr(node, "ctx", None)


def _name(call: ast.Call) -> str:
    return getattr(call.func, "attr", getattr(call.func, "id", ""))


def _number(node: ast.AST) -> int | None:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _number(node.operand)
        return None if inner is None else -inner
    value = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
    return value if type(value) is int else None


def _is_axis(place: Place) -> bool:
    parent = place.parent
    if isinstance(parent, ast.keyword):
        return parent.arg in AXES
    return isinstance(parent, ast.Call) and place.field == "args" and _name(parent) in OF_AXES


def _is_option(node: ast.AST) -> bool:
    return ast.unparse(node).split(".")[-1] in ("options", "model", "optimizer", "train")
