"""The functions of a source file, the nodes in them that can be changed, and their changed code."""

from __future__ import annotations

import ast
import dataclasses
import gc
import inspect
import types
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

COMPOUND = (ast.FunctionDef, ast.For, ast.While, ast.If, ast.With, ast.Try)
UNCHANGED = (ast.FunctionDef, ast.ClassDef, ast.Raise, ast.Assert, ast.JoinedStr, ast.Pass)
CHECKS = {"check", "check_pairs", "check_block", "check_inputs"}
UNREAD = {"annotation", "returns", "decorator_list", "ctx", "op", "ops", "type_params"}


@dataclasses.dataclass(frozen=True)
class Place:
    """A node, its position in its parent, and the statement that contains the node."""

    node: ast.AST
    parent: ast.AST
    field: str
    index: int | None
    statement: ast.stmt

    def put(self, node: ast.AST) -> None:
        """Replaces the node by another node."""
        if self.index is None:
            setattr(self.parent, self.field, node)
        else:
            getattr(self.parent, self.field)[self.index] = node

    def line(self) -> str:
        """Returns the current statement, formatted by `ast.unparse`; of a block the first line."""
        statement = self.statement
        if self.node is statement:
            value = getattr(self.parent, self.field)
            statement = value if self.index is None else value[self.index]
        if isinstance(statement, ast.FunctionDef):
            return f"def {statement.name}({ast.unparse(statement.args)}):"
        lines = ast.unparse(statement).split("\n")
        return lines[0] if isinstance(statement, COMPOUND) else "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class Function:
    """A function of a file; inner functions are separate instances."""

    name: str
    """Name, after the names of enclosing functions and classes: `objective.loss`."""
    outer: str
    """Qualified name of the outermost function, whose code contains the code of this function."""
    defs: tuple[ast.FunctionDef, ...]
    """The definitions from the outermost function to this one."""

    def places(self) -> Iterator[Place]:
        """Yields all nodes that may be changed, including statements."""
        function = self.defs[-1]
        yield from _places(function.args, function, "args", None, function)
        for index, statement in enumerate(function.body):
            yield from _places(statement, function, "body", index, function)


class Source:
    """A file that is parsed once; its tree is changed and restored for each mutant."""

    def __init__(self, root: Path, file: str):
        self.file, self.path = file, root / file
        self.tree = ast.parse(self.path.read_text("utf-8"))
        self.functions = list(_functions(self.tree.body))
        self._plain = self._code()

    @contextmanager
    def changed(self, changes: Sequence[tuple[Place, ast.AST]]) -> Iterator[None]:
        """Replaces nodes of the tree inside the block."""
        for place, node in changes:
            place.put(ast.copy_location(node, place.node))
        try:
            yield
        finally:
            for place, _ in changes:
                place.put(place.node)

    def differs(self, function: Function, changes: Sequence[tuple[Place, ast.AST]]) -> bool:
        """Returns whether the changes have an effect on the compiled code or a default."""
        with self.changed(changes):
            defaults = ast.dump(function.defs[0].args)
            code = _without_lines(self._code()[function.outer])
        same = code == _without_lines(self._plain[function.outer])
        return not (same and defaults == ast.dump(function.defs[0].args))

    def install(
        self, function: Function, changes: Sequence[tuple[Place, ast.AST]], objects: FunctionObjects
    ) -> None:
        """Replaces the code of the function objects in this process."""
        with self.changed(changes):
            code, arguments = self._code()[function.outer], function.defs[0].args
            for target in objects.find(self.path, function.outer):
                target.__code__ = code
                target.__defaults__ = _values(arguments.defaults, target) or None
                names = [argument.arg for argument in arguments.kwonlyargs]
                pairs = [(n, d) for n, d in zip(names, arguments.kw_defaults, strict=True) if d]
                values = _values([default for _, default in pairs], target)
                defaults = dict(zip([n for n, _ in pairs], values, strict=True))
                target.__kwdefaults__ = defaults or None

    def _code(self) -> dict[str, types.CodeType]:
        tree = ast.fix_missing_locations(self.tree)
        return dict(_codes(compile(tree, self.path, "exec", dont_inherit=True)))


class FunctionObjects:
    """All function objects of this process, also functions that a decorator wraps."""

    def __init__(self) -> None:
        self._functions: dict[tuple[str, str], list[types.FunctionType]] = {}
        for function in gc.get_objects():
            if type(function) is types.FunctionType:
                key = function.__code__.co_filename, function.__code__.co_qualname
                self._functions.setdefault(key, []).append(function)

    def find(self, path: Path, name: str) -> list[types.FunctionType]:
        """Returns the functions of a file with a qualified name."""
        return self._functions.get((str(path), name), [])


def _functions(
    body: Sequence[ast.stmt],
    enclosing: tuple[ast.FunctionDef, ...] = (),
    prefix: str = "",
    outer: str = "",
) -> Iterator[Function]:
    for statement in body:
        if isinstance(statement, ast.FunctionDef):
            name = prefix + statement.name
            defs, outermost = (*enclosing, statement), outer or name
            yield Function(name, outermost, defs)
            yield from _functions(statement.body, defs, f"{name}.", outermost)
        elif isinstance(statement, ast.ClassDef):
            yield from _functions(statement.body, enclosing, f"{prefix}{statement.name}.", outer)
        elif isinstance(statement, COMPOUND):
            inner = [*statement.body, *getattr(statement, "orelse", [])]
            yield from _functions(inner, enclosing, prefix, outer)


def _places(
    node: ast.AST, parent: ast.AST, field: str, index: int | None, statement: ast.stmt
) -> Iterator[Place]:
    if isinstance(node, UNCHANGED):
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return  # a docstring
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        called = ast.unparse(node.value.func)
        if called.startswith("chex.") or called.split(".")[-1].strip("_") in CHECKS:
            return  # checks of arrays, which tests/contracts tests systematically
    if isinstance(node, ast.stmt):
        statement = node
    yield Place(node, parent, field, index, statement)
    for name, value in ast.iter_fields(node):
        if name in UNREAD:
            continue
        if isinstance(value, ast.AST):
            yield from _places(value, node, name, None, statement)
        elif isinstance(value, list):
            for number, child in enumerate(value):
                if isinstance(child, ast.AST):
                    yield from _places(child, node, name, number, statement)


def _codes(code: types.CodeType) -> Iterator[tuple[str, types.CodeType]]:
    """Yields the code of all functions of a module and of its classes, by qualified name."""
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType) and "<" not in constant.co_name:
            yield constant.co_qualname, constant
            if not constant.co_flags & inspect.CO_OPTIMIZED:  # a class's body
                yield from _codes(constant)


def _without_lines(code: types.CodeType) -> types.CodeType:
    constants = tuple(
        _without_lines(constant) if isinstance(constant, types.CodeType) else constant
        for constant in code.co_consts
    )
    return code.replace(co_linetable=b"", co_consts=constants)


def _values(nodes: Sequence[ast.expr], function: types.FunctionType) -> tuple:
    return tuple(
        eval(compile(ast.Expression(node), "default", "eval"), function.__globals__)
        for node in nodes
    )
