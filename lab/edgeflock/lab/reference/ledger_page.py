"""The tables of the ledger's columns in docs/operations.md, from the catalogue.

`python -m edgeflock.lab.reference.ledger_page FILE...` renews what stands between the markers
`<!-- ledger:by client -->` and `<!-- /ledger -->`.
"""

from __future__ import annotations

import re

from edgeflock.lab import markdown
from edgeflock.server.costs.catalogue import BESIDE, BY_CLIENT, BY_ROUND, TIME_LINE, Column, Origin, Rule

TABLES = {
    "by client": BY_CLIENT,
    "time line": (*BESIDE, *TIME_LINE),
    "by round": BY_ROUND[len(BESIDE) + len(TIME_LINE) :],
}
MARKED = re.compile(r"(<!-- ledger:(?P<name>[\w ]+?) -->\n)(?P<table>.*?)(<!-- /ledger -->)", re.DOTALL)
_SAID_BY = {
    Origin.SERVER: "server",
    Origin.CLIENT: "client",
    Origin.DERIVED: "server, from what the client says",
}
_SEVERAL = {Rule.SUM: "add up", Rule.HIGHEST: "the highest", Rule.NONE: ""}


def table(name: str) -> str:
    """Return the Markdown table of a part of the ledger."""
    head = ("column", "unit", "several", "said by", "is")
    return "".join(
        f"{markdown.row(line)}\n" for line in (head, ("---",) * len(head), *map(_row, TABLES[name]))
    )


def renewed(text: str) -> str:
    """Return a document with every marked table as it must be."""
    return MARKED.sub(lambda match: f"{match[1]}{table(match['name'])}{match[4]}", text)


def _row(column: Column) -> tuple[str, ...]:
    return f"`{column.name}`", column.unit, _SEVERAL[column.rule], _SAID_BY[column.origin], column.meaning


def main() -> None:
    """Renew the tables of the files that are named."""
    markdown.renew_named_pages(renewed)


if __name__ == "__main__":
    main()
