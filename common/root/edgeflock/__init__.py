"""edgeflock: one package over several source roots; this root makes the others one, and knows the version."""

from pkgutil import extend_path

__path__ = extend_path(__path__, __name__)


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version

        return version(__name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
