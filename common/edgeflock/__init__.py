"""edgeflock: one package over several source roots, each of which has this very file."""

from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgeflock.common.saved import load as load
    from edgeflock.lab.notebook.run import open as open
    from edgeflock.lab.notebook.simulation import simulate as simulate

    __version__: str

__path__ = extend_path(__path__, __name__)
if __spec__:
    __spec__.has_location = False  # as of a namespace: import-linter takes the parts for themselves

_PLACES = {
    "load": "edgeflock.common.saved",
    "open": "edgeflock.lab.notebook.run",
    "simulate": "edgeflock.lab.notebook.simulation",
}


def __getattr__(name: str) -> Any:
    """Import what is asked for when it is asked for: a device has no use for the lab."""
    from importlib import import_module, metadata

    if name == "__version__":
        return metadata.version(__name__)
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(_PLACES[name]), name)
    except ModuleNotFoundError as error:
        if not str(error.name).startswith("edgeflock.lab"):
            raise
    from edgeflock.common.command.extras import install_line

    raise ImportError(f"edgeflock.{name} needs the lab, which is not installed: {install_line('lab')}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES, "__version__"])
