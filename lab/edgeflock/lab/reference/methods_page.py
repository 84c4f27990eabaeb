"""The generated parts of docs/methods.md: the overview, and facts and options of every method, from the code.

`python -m edgeflock.lab.reference.methods_page FILE...` renews what stands between the markers
`<!-- methods -->`, `<!-- method costs -->`, `<!-- method:NAME -->`, `<!-- method options of all -->` and
`<!-- /method -->`.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable

from edgeflock.lab import markdown
from edgeflock.lab.reference import method_costs
from edgeflock.methods.kit.base import Method
from edgeflock.methods.kit.options import Params
from edgeflock.methods.kit.registry import load, names
from edgeflock.server.start.describe import (
    OptionText,
    client_models,
    mean,
    moves,
    option_texts,
    participation,
    training,
)

MARKED = re.compile(
    r"(<!-- (?P<what>methods|method:\w+|method options of all|method costs) -->\n)"
    r"(?P<part>.*?)(<!-- /method -->)",
    re.DOTALL,
)
_COMMON = {field.name: field.default for field in dataclasses.fields(Params)}


def overview() -> str:
    """Return the table of all methods."""
    methods = map(load, names())
    rows = [(f"[{one.name}](#{one.name})", one.summary, moves(one), mean(one), _who(one)) for one in methods]
    return _table(("method", "in a line", "moves", "mean over clients", "participation"), rows)


def facts(name: str) -> str:
    """Return what a method asks of a run, and the table of its own options."""
    method = load(name)
    lines = {"Training defaults": training(method), "Client models": client_models(method)}
    text = "".join(f"- {what}: {words}.\n" for what, words in lines.items())
    own = [option for option in option_texts(method) if _is_own(option)]
    return text + ("\n" + _options(own) if own else "- No option of its own.\n")


def common() -> str:
    """Return the table of the options that every method has."""
    return _options([option for option in option_texts(load("fedavg")) if option.name in _COMMON])


def costs() -> str:
    """Return the table of what every method adds to a client's round of FedAvg."""
    found = [method_costs.of(load(name)) for name in names()]
    rows = [(f"[{row.method}](#{row.method})", str(row.operations), str(row.numbers)) for row in found]
    return _table(("method", "operations", "numbers sent"), rows)


def renewed(text: str) -> str:
    """Return the page with every marked part as it must be."""
    return MARKED.sub(lambda match: f"{match[1]}{_part(match['what'])}{match[4]}", text)


def _part(what: str) -> str:
    if what == "methods":
        return overview()
    if what == "method costs":
        return costs()
    return common() if what == "method options of all" else facts(what.removeprefix("method:"))


def _who(method: Method) -> str:
    return participation(method).partition(";")[0]


def _is_own(option: OptionText) -> bool:
    """Whether it is not among those of all methods, or has another default there."""
    return option.name not in _COMMON or option.default != str(_COMMON[option.name])


def _options(options: Iterable[OptionText]) -> str:
    rows = [
        (f"`{one.name}`", one.symbol or "-", f"`{one.default}`", one.allowed, one.meaning) for one in options
    ]
    return _table(("option", "paper", "default", "allowed", "meaning"), rows)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, ("---",) * len(head), *rows]
    return "".join(markdown.row(line) + "\n" for line in lines)


def main() -> None:
    """Renew the pages that are named."""
    markdown.renew_named_pages(renewed)


if __name__ == "__main__":
    main()
