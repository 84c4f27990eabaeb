"""Which parts of a model are trained: the rest is its base, which no step changes and no bundle holds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from edgeflock.common.errors import BadValue

TRAIN, KEEP = "--train", "--keep-local"
_NAMED = 12  # parts that a sentence has room for


def patterns(text: str) -> tuple[str, ...]:
    """Return the patterns that an operator writes: `head.*|bn*`."""
    return tuple(part.strip() for part in text.split("|") if part.strip())


def matched(names: Iterable[str], asked: Sequence[str]) -> list[str]:
    """Return the names that a pattern matches, or that lie in a part that one matches: `head` is `head.*`."""
    every = [(pattern, f"{pattern}.*") for pattern in asked]
    return [name for name in names if any(fnmatchcase(name, one) for pair in every for one in pair)]


def check(flag: str, text: str, names: Sequence[str]) -> None:
    """Raise BadValue for a pattern that matches nothing, with what there is."""
    for pattern in patterns(text) or ("",):
        if not matched(names, (pattern,)):
            words = f"patterns of what the model has ({pattern or 'this'} matches none of {_told(names)})"
            raise BadValue(flag, text, words)


def _told(names: Sequence[str]) -> str:
    """Return the names, of many those of the parts that they lie in."""
    parts = list(dict.fromkeys(names))
    if len(parts) > _NAMED:
        parts = list(dict.fromkeys(f"{name.rpartition('.')[0] or name}.*" for name in parts))
    if len(parts) > _NAMED:
        parts = list(dict.fromkeys(f"{name.partition('.')[0]}.*" for name in parts))
    more = f" and {len(parts) - _NAMED} more" if len(parts) > _NAMED else ""
    return ", ".join(parts[:_NAMED]) + more


def train(net: nn.Module, text: str) -> None:
    """Let a model's parameters be trained that the patterns match, and no others. Raises BadValue."""
    named = dict(net.named_parameters())
    check(TRAIN, text, list(named))
    chosen = set(matched(named, patterns(text)))
    for name, parameter in named.items():
        parameter.requires_grad_(name in chosen)


def kept(net: nn.Module, text: str) -> frozenset[str]:
    """Return what every client keeps as its own: the parameters, which are trained, and buffers that match.

    Raises BadValue.
    """
    every = [name for name, _ in (*net.named_parameters(), *net.named_buffers())]
    check(KEEP, text, every)
    thaw(net, text)
    return frozenset(matched(every, patterns(text)))


def thaw(net: nn.Module, text: str) -> None:
    """Let the parameters be trained that the patterns match."""
    named = dict(net.named_parameters())
    for name in matched(named, patterns(text)):
        named[name].requires_grad_(True)


def still(net: nn.Module) -> tuple[nn.Module, ...]:
    """Return the normalisations whose weights are all frozen: their statistics are, too, so that they work in
    training as in a test."""
    found = []
    for module in net.modules():
        own = list(module.parameters(recurse=False))
        frozen = own and not any(parameter.requires_grad for parameter in own)
        if isinstance(module, _NormBase) and module.track_running_stats and frozen:
            found.append(module)
    return tuple(found)


def require_trained(net: nn.Module) -> None:
    """Raise BadValue if nothing of a model is trained."""
    if not any(parameter.requires_grad for parameter in net.parameters()):
        raise BadValue(
            TRAIN, "nothing", "something to train: this model freezes all of itself, name parts of it"
        )
