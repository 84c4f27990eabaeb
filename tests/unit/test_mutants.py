"""What `make mutants` breaks: every kind of change is found where it stands; what no run looks at is left."""

from __future__ import annotations

import pytest

from support.mutants.changes import can_be_run, changes


def _made(source: str) -> set[str]:
    code = source.encode()
    found = [change for change in changes("m.py", code) if can_be_run(change, code)]
    return {change.made(code).decode() for change in found}


@pytest.mark.parametrize(
    ("source", "wrongs"),
    [
        ("a < b", {"a <= b"}),
        ("f = not a", {"f = (a)"}),
        ("x = a and (b)", {"x = a or (b)"}),
        ("x = True", {"x = False"}),
        ("f(a)", {"pass"}),
        ("if a:\n    b = 'ä'", {"if (not (a)):\n    b = 'ä'"}),
        ("while a:\n    break", {"while (not (a)):\n    break", "while a:\n    continue"}),
        (
            "def f(): return (a + b) * c",
            {"def f(): return (a + b) / c", "def f(): return (a - b) * c"},
        ),
        ("def f():\n    raise A", {"def f():\n    pass"}),
        ("def f(): return g()", {"def f(): return None"}),
        ("s = 'ö'; x = a == b", {"s = 'ö'; x = a != b"}),
        ("x += 1", {"x -= 1"}),
    ],
)
def test_a_line_is_broken_in_each_way_that_is_known(source: str, wrongs: set[str]) -> None:
    assert _made(source) == wrongs


@pytest.mark.parametrize(
    "source",
    [
        "log.info('a', b=c)",
        "def f(a: int | None = None) -> bool | None: ...",
        "A = int | str",
        "if TYPE_CHECKING:\n    import a",
        "f'{a + b}'",
        "assert a",
        "@dataclass(frozen=True)\nclass A: ...",
        "class A:\n    __test__ = False",
        "T = TypeVar('T', bound=True)",
    ],
)
def test_what_no_run_looks_at_stays(source: str) -> None:
    assert _made(source) == set()


def test_a_change_is_named_by_its_function_and_words_so_that_it_is_found_again_when_lines_move() -> None:
    (change,) = changes("m.py", b"class A:\n    def f(self, a):\n        del a[a  <  b]")
    assert change.key == "m.py::A.f::del a[a  |<  b]: < -> <="
    assert change.line == 3
