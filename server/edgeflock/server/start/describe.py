"""A method in words, from the code: `fl-server --help-method`, `fl-lab methods NAME`, docs/methods.md."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from edgeflock.common.flat import FlatModel
from edgeflock.common.models.kit import registry as models
from edgeflock.common.models.kit.base import Net
from edgeflock.common.payload.package import Kind
from edgeflock.methods.kit.base import Method, Round, Setting, State
from edgeflock.methods.kit.options import Params, shown
from edgeflock.methods.kit.registry import load
from edgeflock.server.start.resolve import training_defaults


@dataclass(frozen=True)
class OptionText:
    """One option in words."""

    name: str
    meaning: str
    symbol: str  # in the paper; empty if it has none
    default: str
    allowed: str


def option_texts(method: Method) -> list[OptionText]:
    """Return the options of a method, its own first, then those that all methods have."""
    common = [field.name for field in dataclasses.fields(Params)]
    fields = sorted(dataclasses.fields(method.params), key=lambda field: field.name in common)
    return [
        OptionText(
            field.name,
            field.metadata["meaning"],
            field.metadata["symbol"],
            shown(field.default),
            field.metadata["allowed"].words,
        )
        for field in fields
    ]


def describe_method(name: str) -> str:
    """Return meaning, paper symbol, default and range of every option, and what the method asks of a run.

    Raises UnknownName.
    """
    method = load(name)
    lines = [
        f"{method.name}: {method.summary}",
        "",
        "Options (--set KEY=VALUE, or the [method] table of a file):",
    ]
    for option in option_texts(method):
        symbol = f" (the paper's {option.symbol})" if option.symbol else ""
        lines += [f"  {option.name}", f"      {option.meaning}{symbol}"]
        lines.append(f"      default {option.default}, allowed is {option.allowed}")
    facts = {
        "Training": training(method),
        "Mean over clients": mean(method),
        "Participation": participation(method),
        "Client models": client_models(method),
        "Data on the server": server_data(method),
        "Moves": moves(method),
    }
    return "\n".join([*lines, "", *(f"{what}: {text}" for what, text in facts.items())])


def training(method: Method) -> str:
    """Return what a run of the method trains with unless told otherwise; * marks the method's own."""
    own = {name for name, value in dataclasses.asdict(method.training).items() if value is not None}
    defaults = training_defaults(method)
    texts = [
        f"--{name.replace('_', '-')} {value:g}{' *' if name in own else ''}"
        for name, value in defaults.items()
    ]
    marked = " (* the method's own default)" if own else ""
    fixed = "; it has a momentum of its own, --momentum must be 0" if method.own_momentum else ""
    return ", ".join(texts) + marked + fixed


def mean(method: Method) -> str:
    return "equal weights" if method.uniform else "weighted by samples"


def participation(method: Method) -> str:
    if method.central:
        return "none; the server trains, no client is contacted, and codecs have nothing to encode"
    return "every client in every round" if method.full_participation else "any cohort"


def server_data(method: Method) -> str:
    if method.central:
        return "the union of the data set's shards"
    return "--public-data, or public_fraction of the data set" if method.public_data else "for tests only"


def client_models(method: Method) -> str:
    """Return which models the clients test by themselves, unless told otherwise."""
    words = {
        "": "not tested",
        "local": "tested on the clients' own test data",
        "both": "tested on the clients' own and on the pooled test data",
    }
    return words[method.client_models]


def moves(method: Method) -> str:
    """Return the bundles that a client gets and sends in a round."""
    if method.central:
        return "nothing"
    (first, _), (down, up) = (_bundles(method, number) for number in (1, 2))
    begins = "" if first == down else f" (in round 1 {_listed(first)})"
    return f"{_listed(down)} down{begins}, {_listed(up)} up"


def _bundles(method: Method, number: int) -> tuple[list[Kind], list[Kind]]:
    """Return the kinds of a round, asked of the server half with a small model at its start."""
    net = models.build("mlp", input_shape=(1, 2, 2), classes=2, arguments={"hidden": "2"}, seed=0)
    down, up = exchanged(method, number, net, 2)
    return list(down), list(up)


def exchanged(method: Method, number: int, net: Net, classes: int) -> tuple[dict[Kind, int], dict[Kind, int]]:
    """Return the bundles that a client gets and sends in a round, with how many numbers each holds.

    Asked of the server half with its default options and that model at its start; what only some fetch is
    left out.
    """
    flat = FlatModel(net)
    setting = Setting(flat.layout, classes, net.features, clients=2, seed=0, head=net.head_names())
    half, state = method.server(method.params(), setting), State()
    state.vectors.update(model=flat.params, buffers=flat.buffers, counters=flat.counters)
    half.begin(state)
    round = Round(number, 0.1, (0, 1), {0: 1, 1: 1})
    down = [*half.broadcast(state, round), *half.personal_kinds(round)]
    sizes = [{kind: half.layout(kind).elements for kind in kinds} for kinds in (down, half.uploads(round))]
    return sizes[0], sizes[1]


def _listed(kinds: Iterable[Kind]) -> str:
    return " + ".join(kinds)
