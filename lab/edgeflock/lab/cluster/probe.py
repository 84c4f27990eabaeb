"""The look at every node before the first errand: what it runs, whether the data and the disk are there."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgeflock.common.errors import EdgeflockError, UsageError
from edgeflock.lab.cluster import mounts
from edgeflock.lab.cluster.facts import Facts, differences, look

_LEAST_FREE = 1 << 30  # bytes

Data = tuple[str, Path | None]  # a data set and its root


@dataclass(frozen=True)
class Question:
    """What a node is asked."""

    data: tuple[Data, ...]
    place: Path  # where runs would lie
    journal: bool = True  # whether one is kept there
    sign: str = ""  # what stands in PLACE/sign if all nodes see the same folder; empty: each has its own


@dataclass(frozen=True)
class NodeFound:
    """What a node is."""

    facts: Facts
    lacks: tuple[str, ...] = ()  # sentences: why no errand can be done there
    warns: tuple[str, ...] = ()  # what one would like to know


def answer(question: Question) -> NodeFound:
    """Look at this machine."""
    lacks = [words for spec, root in question.data if (words := _missing(spec, root))]
    if question.journal and (words := mounts.why_not(question.place)):
        lacks.append(words)
    if question.sign and not _sees(question):
        lacks.append(f"it does not see {question.place}, which --shared-out takes for common")
    free = shutil.disk_usage(_existing(question.place)).free
    warns = [f"{free / 2**30:.1f} GiB are free on its disk"] if free < _LEAST_FREE else []
    return NodeFound(look(), tuple(lacks), tuple(warns))


def _missing(spec: str, root: Path | None) -> str:
    from edgeflock.common.datasets.kit import registry as datasets  # brings numpy and more

    try:
        datasets.load(spec, root)
    except EdgeflockError as error:
        return str(error)
    return ""


SIGN = ".tmp-sign"


def _sees(question: Question) -> bool:
    try:
        return (question.place / SIGN).read_text("utf-8") == question.sign
    except OSError:
        return False


def _existing(folder: Path) -> Path:
    return next(path for path in (folder, *folder.parents) if path.exists())


def judge(here: Facts, found: Sequence[NodeFound]) -> list[str]:
    """Return what people should know of the nodes. Raises UsageError if one cannot take part."""
    for one in found:
        if lacks := [*differences(here, one.facts), *one.lacks]:
            raise UsageError(f"node {one.facts.node}: {lacks[0]}")
    kinds: dict[str, list[str]] = {}
    for one in found:
        kinds.setdefault(one.facts.cpu, []).append(one.facts.node)
    said = [f"node {one.facts.node}: {words}" for one in found for words in one.warns]
    if len(kinds) > 1:
        each = "; ".join(f"{cpu} ({', '.join(nodes)})" for cpu, nodes in kinds.items())
        said.append(f"several kinds of CPU, so seconds and last bits differ between cells: {each}")
    return said
