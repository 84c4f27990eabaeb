"""Hyper-parameters of a method: a frozen dataclass whose fields carry meaning, symbol and range."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from edgeflock.common.command.ranges import Range, above, at_least, one_of, unit
from edgeflock.common.errors import BadValue, UnknownName

__all__ = [
    "Params",
    "Range",
    "above",
    "at_least",
    "idle",
    "one_of",
    "option",
    "or_none",
    "parse",
    "shown",
    "texts",
    "unit",
]

NONE = "none"  # how an option without a value is written


def option(default: Any, meaning: str, allowed: Range, *, symbol: str = "", when: str = "") -> Any:
    """Declare one hyper-parameter; use as the default of a field of Params.

    The default None makes it a number that may be absent, see `or_none`. `when`, as in `drift=descent`,
    is the value of another option without which this one has no effect.
    """
    return dataclasses.field(
        default=default, metadata={"meaning": meaning, "allowed": allowed, "symbol": symbol, "when": when}
    )


def idle(params: Params) -> list[str]:
    """Return in words which options were changed though they have no effect, with what takes it from them."""
    found = []
    for field in dataclasses.fields(params):
        name, _, values = field.metadata["when"].partition("=")
        if not name or getattr(params, field.name) == field.default:
            continue
        if shown(getattr(params, name)) not in values.split("|"):
            found.append(f"{field.name} has no effect with {name}={shown(getattr(params, name))}")
    return found


def or_none(allowed: Range) -> Range:
    """Allow no value, too; it is written `none`."""
    return Range(lambda value: value is None or allowed.accepts(value), f"{allowed.words} or {NONE}")


@dataclass(frozen=True, kw_only=True)
class Params:
    """Options that every method has; each method derives its own."""

    weighting: str = option(
        "table",
        "weights of the mean over clients: the method's own, samples (weighted), or equal (uniform)",
        one_of("table", "weighted", "uniform"),
    )
    clip: float = option(
        0.0, "largest L2 norm of the local direction after weight decay; 0 turns it off", at_least(0)
    )

    @classmethod
    def defaults(cls, given: Mapping[str, str]) -> Mapping[str, str]:
        """Return the defaults that depend on what is given, where they are not those of the fields."""
        return {}


P = TypeVar("P", bound=Params)


def parse(kind: type[P], texts: Mapping[str, str]) -> P:
    """Build the options from `KEY=VALUE` texts; what is not given has its default.

    Raises UnknownName or BadValue with a sentence that names what is allowed.
    """
    fields = {field.name: field for field in dataclasses.fields(kind)}
    values: dict[str, Any] = {}
    for name, text in {**kind.defaults(texts), **texts}.items():
        if name not in fields:
            raise UnknownName("option", name, fields)
        values[name] = _value(fields[name], text)
    return kind(**values)


def texts(params: Params) -> dict[str, str]:
    """Return every option as text, such that `parse` gives the same options again."""
    return {field.name: shown(getattr(params, field.name)) for field in dataclasses.fields(params)}


def shown(value: Any) -> str:
    """Return a value the way `parse` reads it."""
    return NONE if value is None else str(value)


def _value(field: dataclasses.Field[Any], text: str) -> Any:
    allowed: Range = field.metadata["allowed"]
    if field.default is None and text == NONE:
        return None
    kind = float if field.default is None else type(field.default)
    try:
        value = kind(text) if kind in (int, float) else text
    except ValueError:
        raise BadValue(field.name, text, allowed.words) from None
    if (isinstance(value, float) and not math.isfinite(value)) or not allowed.accepts(value):
        raise BadValue(field.name, text, allowed.words)
    return value
