"""edgeflock: one package over several source roots, each of which has this very file."""

from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from edgeflock.common.saved import load as load

__path__ = extend_path(__path__, __name__)
if __spec__:
    __spec__.has_location = False  # as of a namespace: import-linter takes the parts for themselves


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version(__name__)
    if name == "load":
        from edgeflock.common.saved import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
