"""Small wrongs that a line may have: each a place in a source and the words that stand there instead."""

from __future__ import annotations

import ast
from bisect import bisect
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

_COMPARED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<=",
    ast.LtE: "<",
    ast.Gt: ">=",
    ast.GtE: ">",
    ast.Eq: "!=",
    ast.NotEq: "==",
    ast.Is: "is not",
    ast.IsNot: "is",
    ast.In: "not in",
    ast.NotIn: "in",
}
_RECKONED: dict[type[ast.operator], str] = {
    ast.Add: "-",
    ast.Sub: "+",
    ast.Mult: "/",
    ast.Div: "*",
    ast.FloorDiv: "*",
    ast.Mod: "*",
    ast.Pow: "*",
    ast.BitOr: "&",
    ast.BitAnd: "|",
}
_TOLD = {"debug", "info", "warning", "error", "exception"}  # what is only said to a log
_TYPES = {"cast", "TypeVar", "NewType", "Literal", "overload", "Protocol"}


@dataclass(frozen=True, slots=True)
class Change:
    """One wrong: what the source says from `start` to `end` is `new` instead."""

    path: str
    line: int
    start: int
    end: int
    old: str
    new: str
    kind: str
    function: str  # in which it lies, with its class
    code: str  # the line, with | where it begins

    @property
    def key(self) -> str:
        """Name it so that it is found again when other lines have moved."""
        return f"{self.path}::{self.function}::{self.code}: {' '.join(self.old.split())} -> {self.new}"

    def made(self, source: bytes) -> bytes:
        """Return the source with it."""
        return source[: self.start] + self.new.encode() + source[self.end :]


class _Source:
    """A module's text, by the places that its tree names."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source = path, source
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def place(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._lines[node.lineno - 1] + node.col_offset
        return start, self._lines[node.end_lineno - 1] + node.end_col_offset

    def text(self, node: ast.expr | ast.stmt) -> str:
        start, end = self.place(node)
        return self.source[start:end].decode()

    def change(self, node: ast.expr | ast.stmt, new: str, kind: str, function: str) -> Change:
        start, end = self.place(node)
        return self._change(start, end, new, kind, function)

    def between(self, left: ast.expr, right: ast.expr, new: str, kind: str, function: str) -> Change:
        """Put another sign between two operands, whatever brackets stand around them."""
        start, end = self.place(left)[1], self.place(right)[0]
        old = self.source[start:end].strip(b" ()\n\\")
        start = self.source.index(old, start)
        return self._change(start, start + len(old), new, kind, function)

    def _change(self, start: int, end: int, new: str, kind: str, function: str) -> Change:
        row = bisect(self._lines, start)
        line = self.source[self._lines[row - 1] : self._lines[row]]
        column = start - self._lines[row - 1]
        code = f"{line[:column].decode()}|{line[column:].decode()}".strip()
        return Change(self.path, row, start, end, self.source[start:end].decode(), new, kind, function, code)


def changes(path: str, source: bytes) -> list[Change]:
    """Return the changes of a module."""
    text = _Source(path, source)
    return [change for node, where in _code(ast.parse(source)) for change in _of(text, node, where)]


def can_be_run(change: Change, source: bytes) -> bool:
    """Tell whether it is Python still: a word left out of an f-string, say, is not."""
    try:
        made = ast.parse(change.made(source))
    except SyntaxError:
        return False
    return ast.dump(made) != ast.dump(ast.parse(source))


def _code(tree: ast.AST, where: str = "") -> Iterator[tuple[ast.AST, str]]:
    """Walk what runs, with the function it lies in: no annotations, no types, no sentences."""
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "type_params"):
            continue
        for node in value if isinstance(value, list) else [value]:
            if not isinstance(node, ast.AST) or _is_left_out(node):
                continue
            inner = where
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                inner = f"{where}.{node.name}".lstrip(".")
            yield node, inner
            yield from _code(node, inner)


def _is_left_out(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    if isinstance(
        node, ast.Assert | ast.Import | ast.ImportFrom | ast.JoinedStr
    ):  # nor what is in a sentence
        return True
    if isinstance(node, ast.keyword) and node.arg == "frozen":  # what is written to is for mypy to see
        return True
    if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__test__":  # for pytest alone
        return True
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Name) and called.id in _TYPES


def _of(text: _Source, node: ast.AST, where: str) -> Iterator[Change]:
    """Yield the wrongs of one node."""
    match node:
        case ast.Compare(ops=[sign], comparators=[right]):
            yield text.between(node.left, right, _COMPARED[type(sign)], "compared otherwise", where)
        case ast.BinOp(op=sign) if type(sign) in _RECKONED and where and not _is_union(node):
            yield text.between(node.left, node.right, _RECKONED[type(sign)], "reckoned otherwise", where)
        case ast.BoolOp(op=sign, values=values):
            word = "or" if isinstance(sign, ast.And) else "and"
            for left, right in pairwise(values):
                yield text.between(left, right, word, "and for or", where)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield text.change(node, f"({text.text(operand)})", "not left out", where)
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant):
                yield text.change(test, f"(not ({text.text(test)}))", "condition turned round", where)
        case ast.Raise():
            yield text.change(node, "pass", "raise left out", where)
        case ast.Expr(value=ast.Call() | ast.Await(value=ast.Call())) if not _only_tells(node):
            yield text.change(node, "pass", "call left out", where)
        case ast.Return(value=ast.Compare() | ast.BoolOp() | ast.Name() | ast.Call() as value) if where:
            yield text.change(value, "None", "nothing returned", where)
        case ast.Constant(value=bool() as value):
            yield text.change(node, str(not value), "true for false", where)
        case ast.Constant(value=int() | float() as value) if where:
            yield text.change(node, repr(value + 1), "one more", where)
        case ast.Break():
            yield text.change(node, "continue", "goes on", where)
        case ast.Continue():
            yield text.change(node, "break", "stops", where)
        case ast.AugAssign(op=sign) if type(sign) in _RECKONED:
            new = f"{text.text(node.target)} {_RECKONED[type(sign)]}= {text.text(node.value)}"
            yield text.change(node, new, "reckoned otherwise", where)
        case _:
            return


def _is_union(node: ast.BinOp) -> bool:
    """Tell whether it may be a union of types, which no run looks at."""
    named = (ast.Name, ast.Attribute, ast.Constant)
    return isinstance(node.op, ast.BitOr) and isinstance(node.left, named) and isinstance(node.right, named)


def _only_tells(node: ast.Expr) -> bool:
    call = node.value.value if isinstance(node.value, ast.Await) else node.value
    called = call.func if isinstance(call, ast.Call) else None
    return isinstance(called, ast.Attribute) and called.attr in _TOLD
