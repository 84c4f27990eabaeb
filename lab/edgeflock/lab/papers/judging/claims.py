"""The claims of a paper's file: what each says, the rule that judges it, and the verdict over all."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from edgeflock.common.command.options import unknown
from edgeflock.common.errors import BadValue, UsageError
from edgeflock.lab.papers.judging.quantity_name import QuantityName, read_quantity
from edgeflock.lab.papers.judging.rules import RULES, Evidence, Ruling, Word
from edgeflock.lab.papers.judging.sheet import NumberPlace, Sheet

_KEYS = ("says", "rule", "quantity", "case", "row", "aside", "found")
_PLACE = ("row", "case", "quantity")
_GOES = ("falls", "rises", "stays")

Rows = Mapping[str, Sequence[str]]  # the rows of every case; one without a name where there are no cases


@dataclass(frozen=True)
class PlaceName:
    """One place of a claim: what it does not say is the claim's."""

    row: str = ""
    case: str = ""
    quantity: str = ""

    def __str__(self) -> str:
        return " ".join(filter(None, (self.row, self.case, self.quantity)))


@dataclass(frozen=True)
class Claim:
    """What a paper says of its figures, and the rule that decides whether ours say it, too."""

    says: str
    rule: str
    quantity: QuantityName
    cases: tuple[str, ...]
    rows: tuple[str, ...]  # of places that name none: the claim is about each of them
    aside: bool  # told, and no part of the verdict: a control
    asked: Mapping[str, Any]
    places: Mapping[str, PlaceName]  # by how they are named in `asked`
    found: str = ""  # what was looked at where it does not hold, written by who has run it

    def quantities(self) -> list[QuantityName]:
        """Return every figure that it needs."""
        others = (place.quantity for place in self.places.values() if place.quantity)
        return [self.quantity, *(read_quantity(text, "quantity") for text in others)]


@dataclass(frozen=True)
class ClaimVerdict:
    """The word on a claim, over its cases."""

    claim: Claim
    word: Word
    by_case: Mapping[str, Ruling] = field(default_factory=dict)

    @property
    def ground(self) -> str:
        """What it stands on, in words: the cases that decided, first."""
        deciding = [(case, ruling) for case, ruling in self.by_case.items() if ruling.word == self.word]
        told = "; ".join(f"{case}: {ruling.ground}" if case else ruling.ground for case, ruling in deciding)
        share = f"{len(deciding)} of {len(self.by_case)} cases: " if len(self.by_case) > 1 else ""
        return share + told


def judged(claim: Claim, found: Sheet) -> ClaimVerdict:
    """Return the verdict on one claim."""
    by_case = {case: _ruled(claim, found, case) for case in claim.cases}
    tried = [ruling.word for ruling in by_case.values() if ruling.word != Word.NOT_TRIED]
    return ClaimVerdict(claim, worst(tried), by_case)


def verdict(claims: Sequence[ClaimVerdict]) -> Word:
    """Return the word on a paper's file: the worst of its claims, those aside left out."""
    return worst([one.word for one in claims if not one.claim.aside and one.word != Word.NOT_TRIED])


def worst(words: Sequence[Word]) -> Word:
    return max(words, key=list(Word).index, default=Word.NOT_TRIED)


def narrowed(claim: Claim, rows: Rows) -> Claim:
    """Return a claim about those cases and rows alone that a smaller grid runs."""
    cases = tuple(case for case in claim.cases if case in rows) or claim.cases
    run = {row for case in cases for row in rows.get(case, ())}

    def cut(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        kept = [cut(entry) for entry in value if isinstance(entry, list) or _is_run(claim, entry, run)]
        return [entry for entry in kept if entry != []]

    keys = RULES[claim.rule].names
    asked = {key: cut(value) if key in keys else value for key, value in claim.asked.items()}
    if isinstance(paper := asked.get("paper"), list):
        asked["paper"] = [value for case, value in zip(claim.cases, paper, strict=True) if case in cases]
    whole = all(asked[key] != [] for key in keys if key in asked)
    return replace(claim, cases=cases, asked=asked if whole else claim.asked)


def _is_run(claim: Claim, name: str, run: Collection[str]) -> bool:
    return not claim.places[name].row or claim.places[name].row in run


def _ruled(claim: Claim, found: Sheet, case: str) -> Ruling:
    """Return the ruling on a case; of a claim on each of several rows, or of several places, the worst."""
    each = [_ruled_of(claim, found, case, row, asked) for row in claim.rows for asked in _each(claim, case)]
    word = worst([ruling.word for ruling in each])
    return Ruling(word, "; ".join(ruling.ground for ruling in each if ruling.word == word))


def _each(claim: Claim, case: str) -> list[dict[str, Any]]:
    """Return what is asked in a case, once for each of the places that `of` lists."""
    place = claim.cases.index(case)
    asked = {
        key: value[place] if key == "paper" and isinstance(value, list) else value
        for key, value in claim.asked.items()
    }
    of = asked.get("of")
    return [{**asked, "of": one} for one in of] if isinstance(of, list) else [asked]


def _ruled_of(claim: Claim, found: Sheet, case: str, row: str, asked: Mapping[str, Any]) -> Ruling:
    names = _names(asked, RULES[claim.rule].names)
    rows = {
        name: found.at(
            NumberPlace(place.case or case, place.row or row, place.quantity or claim.quantity.text)
        )
        for name, place in claim.places.items()
        if name in names
    }
    if missing := [f"{row} {name}".strip() for name, numbers in rows.items() if not numbers]:
        return Ruling(Word.NOT_TRIED, f"no numbers of {', '.join(missing[:3])}")
    quantity = claim.quantity
    ruling = RULES[claim.rule].judge(Evidence(rows, quantity.is_cost, quantity.less_is_better, asked))
    return Ruling(ruling.word, f"{row}: {ruling.ground}") if len(claim.rows) > 1 else ruling


def _names(asked: Mapping[str, Any], keys: Sequence[str]) -> set[str]:
    """Return the names of all places that are asked of, however they are grouped."""

    def walk(value: Any) -> set[str]:
        return set().union(*map(walk, value)) if isinstance(value, list) else {value}

    return set[str]().union(*(walk(asked[key]) for key in keys if key in asked))


# ---------------------------------------------------------------------------------- from a paper's file


def read_claim(table: Any, rows: Rows, where: str) -> Claim:
    """Return a claim of a file, checked: its rule, its keys, and whether the grid runs what it names."""
    if not isinstance(table, dict):
        raise BadValue(where, table, "a table, [[claim]]")
    rule = _text(table, "rule", where)
    if rule not in RULES:
        raise BadValue(f"rule in {where}", rule, ", ".join(RULES))
    kind = RULES[rule]
    known = {*_KEYS, *kind.needs, *kind.takes}
    for key in table:
        if key not in known:
            raise unknown(f"key in {where}", key, known)
    cases = _cases(table, rows, where)
    asked = {key: table[key] for key in (*kind.needs, *kind.takes) if key in table}
    if rule == "best":
        asked.setdefault("over", list(rows[cases[0]]))
    for key in kind.needs:
        if key not in asked:
            raise UsageError(f"{where} has no {key}: the rule {rule} needs {', '.join(kind.needs)}")
    _check_numbers(asked, len(cases), where)
    named, places = _named(asked, kind.names, where)
    claim = Claim(
        says=_text(table, "says", where),
        rule=rule,
        quantity=read_quantity(_text(table, "quantity", where), f"quantity in {where}"),
        cases=cases,
        rows=_rows(table.get("row", ""), f"row in {where}"),
        aside=table.get("aside") is True,
        asked=named,
        places=places,
        found=_text(table, "found", where) if "found" in table else "",
    )
    _check_places(claim, rows, where)
    return claim


def _text(table: Mapping[str, Any], key: str, where: str) -> str:
    value = table.get(key)
    if value is None:
        raise UsageError(f"{where} has no {key}")
    if not isinstance(value, str) or not value:
        raise BadValue(f"{key} in {where}", value, "a text")
    return value


def _rows(value: Any, label: str) -> tuple[str, ...]:
    rows = value if isinstance(value, list) else [value]
    if not rows or not all(isinstance(row, str) for row in rows):
        raise BadValue(label, value, "a row's name, or a list of them")
    return tuple(rows)


def _cases(table: Mapping[str, Any], rows: Rows, where: str) -> tuple[str, ...]:
    given = table.get("case", list(rows))
    cases = given if isinstance(given, list) else [given]
    for case in cases:
        if case not in rows:
            raise BadValue(f"case in {where}", case, f"a case of the grid: {', '.join(rows)}")
    if not cases:
        raise BadValue(f"case in {where}", given, "one case at least")
    return tuple(cases)


def _check_numbers(asked: Mapping[str, Any], cases: int, where: str) -> None:
    paper = asked.get("paper", 0)
    if isinstance(paper, list) and len(paper) != cases:
        raise BadValue(f"paper in {where}", paper, f"a number, or {cases} of them, one of each case")
    numbers = [("paper", one) for one in (paper if isinstance(paper, list) else [paper])]
    numbers += [(key, asked[key]) for key in ("least", "most", "margin", "alike") if key in asked]
    for key, value in numbers:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise BadValue(f"{key} in {where}", value, "a number")
    if asked.get("goes", _GOES[0]) not in _GOES:
        raise BadValue(f"goes in {where}", asked["goes"], ", ".join(_GOES))


def _named(
    asked: Mapping[str, Any], keys: Sequence[str], where: str
) -> tuple[dict[str, Any], dict[str, PlaceName]]:
    """Return what is asked with a name for every place, and the places by these names."""
    places: dict[str, PlaceName] = {}

    def name(value: Any, key: str) -> Any:
        if isinstance(value, list):
            return [name(entry, key) for entry in value]
        if isinstance(value, str):
            place = PlaceName(row=value)
        elif isinstance(value, dict) and value and value.keys() <= set(_PLACE):
            place = PlaceName(**{part: str(text) for part, text in value.items()})
        else:
            raise BadValue(f"{key} in {where}", value, "a row's name, or a table of row, case and quantity")
        places[str(place)] = place
        return str(place)

    return {key: name(value, key) if key in keys else value for key, value in asked.items()}, places


def _check_places(claim: Claim, rows: Rows, where: str) -> None:
    """Refuse a claim of a case, a row or a figure that there is not."""
    for place in claim.places.values():
        if place.quantity:
            read_quantity(place.quantity, f"quantity in {where}")
        for case in (place.case,) if place.case else claim.cases:
            if case not in rows:
                raise BadValue(f"case in {where}", case, f"a case of the grid: {', '.join(rows)}")
            for row in (place.row,) if place.row else claim.rows:
                if row not in rows[case]:
                    raise unknown(f"row in {where}, which the grid does not run", row, rows[case])
