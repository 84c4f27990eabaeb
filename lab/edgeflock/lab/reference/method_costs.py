"""fl-lab methods --costs: what a client's round takes beside FedAvg's, as the code itself counts it.

FedTrip's Table VIII. The operations are those that a method's `extra_flops` returns for symbols in place of
numbers, the numbers that travel are those of the bundles that its server half asks for in a later round.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from edgeflock.common.command.units import amount
from edgeflock.common.models.kit import registry as models
from edgeflock.common.models.kit.base import Net
from edgeflock.common.models.kit.flops import parameter_count, training_flops
from edgeflock.lab.reference.formula import Formula, symbol
from edgeflock.methods.kit.base import Effort, Method
from edgeflock.methods.kit.registry import load, names
from edgeflock.server.start.describe import exchanged

ITEM_BYTES = 4
W, FEATURES, CLASSES, STEPS, BATCH, HELD = "|w|", "d", "C", "K", "M", "n"
FORWARD, BACKWARD = "FP", "BP"
SMALL = {"input_shape": (1, 2, 2), "classes": 5, "arguments": {"hidden": "3"}, "seed": 0}  # its sizes differ


NOTES = (
    "K steps of M samples, n samples held; |w| parameters, d features, C classes; FP, BP operations",
    "of a sample's forward and backward pass, two for every multiplication with a weight (FedTrip's",
    "Table VIII counts one). Numbers of 4 bytes, both ways, without codecs and without what only a",
    "client fetches that lacks it. Each method with its default options.",
)


@dataclass(frozen=True)
class MethodCosts:
    """What a method adds to FedAvg's round of a client."""

    method: str
    operations: Formula
    numbers: Formula  # that travel, both ways


def of(method: Method) -> MethodCosts:
    """Return what the method adds with its default options."""
    samples = symbol(STEPS) * symbol(BATCH)
    work = dict(zip(("forward", "backward"), map(symbol, (FORWARD, BACKWARD)), strict=True))
    sizes = {"parameters": symbol(W), "features": symbol(FEATURES)}
    rest = {"steps": symbol(STEPS), "samples": samples, "held": symbol(HELD)}
    effort = Effort(**cast(Any, {**sizes, **work, **rest}))
    found: Any = method.extra_flops(method.params(), effort)
    operations = found if isinstance(found, Formula) else Formula() + found
    return MethodCosts(method.name, operations, _numbers(method))


def _numbers(method: Method) -> Formula:
    if method.central:
        return Formula()
    net = models.build("mlp", **cast(Any, SMALL))
    classes = int(cast(int, SMALL["classes"]))
    known = {
        parameter_count(net): symbol(W),
        classes * net.features: symbol(CLASSES) * symbol(FEATURES),
        classes: symbol(CLASSES),
    }
    total = Formula()
    for bundles in exchanged(method, 2, net, classes):
        for elements in bundles.values():
            total += known.get(elements, Formula() + elements)
    return total - symbol(W) * 2.0


def values(
    net: Net, shape: tuple[int, ...], classes: int, *, steps: int, batch_size: int, samples: int
) -> dict[str, float]:
    """Return the numbers that the symbols stand for."""
    forward, backward = training_flops(net, shape)
    sizes = {W: parameter_count(net), FEATURES: net.features, CLASSES: classes}
    return {**sizes, FORWARD: forward, BACKWARD: backward, STEPS: steps, BATCH: batch_size, HELD: samples}


def lines(name: str | None, model: str, at: Mapping[str, float]) -> Iterator[str]:
    """Yield the table of all methods, or of one, in symbols and in figures."""
    found = [of(load(one)) for one in ([name] if name else names())]
    told = ", ".join(f"{symbol} {at[symbol]:,.0f}" for symbol in (STEPS, BATCH, HELD, W, FORWARD, BACKWARD))
    wide = max(len("operations"), *(len(str(row.operations)) for row in found))
    yield f"Of a client and a round, beside FedAvg's; figures for {model}: {told}"
    yield f"{'method':<14} {'operations':<{wide}} {'':>12}   {'numbers sent':<14} {'':>9}".rstrip()
    for row in found:
        operations = amount("flops", row.operations.at(at)) if row.operations.terms else "-"
        sent = amount("bytes", ITEM_BYTES * row.numbers.at(at)) if row.numbers.terms else "-"
        words = (
            f"{row.method:<14} {row.operations!s:<{wide}} {operations:>12}   {row.numbers!s:<14} {sent:>9}"
        )
        yield words.rstrip()
    yield ""
    yield from NOTES
