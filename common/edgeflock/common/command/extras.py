"""Packages that an extra brings: whether they are there, and the line that installs them here."""

from __future__ import annotations

import json
import os
import shlex
import sys
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from edgeflock.common.command.typed import typed
from edgeflock.common.errors import UsageError

# module: the extra of pyproject.toml that brings it
EXTRAS = {
    "aiohttp": "server",
    "cryptography": "server",
    "grpc_reflection": "server",
    "PIL": "server",
    "prometheus_client": "server",
    "torchvision": "server",
    "jinja2": "lab",
    "matplotlib": "lab",
    "rich": "lab",
    "sklearn": "lab",
    "mlflow": "mlflow",
    "executorch": "executorch",
    "onnx": "onnx",
    "onnxscript": "onnx",
    "pandas": "pandas",
    "polars": "polars",
    "pyarrow": "parquet",
    "ray": "ray",
    "tensorboard": "tensorboard",
    "wandb": "wandb",
}


def installed(*modules: str) -> bool:
    """Return whether all of them are there; nothing is imported."""
    return not _missing(modules)


def require(what: str, *modules: str) -> None:
    """Raise UsageError with what to install if `what` lacks one of these modules."""
    if _missing(modules):
        raise UsageError(f"{what} {needs(*modules)}")


def needs(*modules: str) -> str:
    """Return `needs ..., which is not installed: pip install ...` for those that are not there."""
    missing = _missing(modules)
    names = " and ".join(missing)
    extras = sorted({EXTRAS[module] for module in missing})
    return f"needs {names}, which {'are' if missing[1:] else 'is'} not installed: {install_line(*extras)}"


def install_line(*extras: str) -> str:
    """Return what to type here so that these extras are installed, too."""
    folder, editable = _clone()
    place = "." if folder == Path.cwd() else str(folder or ".")
    pins = os.path.join("" if place == "." else place, "constraints.txt")
    words = [*installer(), *(["-c", pins] if os.path.isfile(pins) else []), *(["-e"] if editable else [])]
    return shlex.join([*words, f"{place}[{','.join(extras)}]"])


def _missing(modules: tuple[str, ...]) -> list[str]:
    return [module for module in modules if find_spec(module) is None]


def _clone() -> tuple[Path | None, bool]:
    """Return the folder that edgeflock was installed from, if it is there, and whether it runs from it."""
    try:
        told = json.loads(distribution("edgeflock").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        return None, False
    folder = Path(unquote(urlsplit(told.get("url", "")).path))
    there = (folder / "pyproject.toml").is_file()
    return (folder, bool(told.get("dir_info", {}).get("editable"))) if there else (None, False)


def installer() -> list[str]:
    """Return the beginning of the line: environments that uv makes have no pip of their own."""
    if find_spec("pip") is None:
        activated = os.environ.get("VIRTUAL_ENV") == sys.prefix
        return ["uv", "pip", "install", *([] if activated else ["--python", typed("python")])]
    pip = typed("pip")
    return [pip, "install"] if pip == "pip" else [typed("python"), "-m", "pip", "install"]
