"""A reader for CIFAR's pickles that can build arrays, bytes, numbers and containers only."""

from __future__ import annotations

import io
import pickle
from typing import Any

from edgeflock.common.errors import BadData

# Nothing here can run code: an array, its type, and the text-to-bytes step that old protocols need.
ALLOWED = {
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy.core.numeric", "_frombuffer"),
    ("numpy._core.numeric", "_frombuffer"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
    ("_codecs", "encode"),
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise BadData(f"it asks for {module}.{name}, allowed are arrays, bytes, numbers, lists and dicts")
        return super().find_class(module.replace("numpy.core", "numpy._core"), name)


def read(where: object, data: bytes) -> Any:
    """Return what a pickle of plain data holds, texts of Python 2 as bytes. Raises BadData for any other."""
    try:
        return _Reader(io.BytesIO(data), encoding="bytes").load()
    except BadData as error:
        raise BadData(f"{where} is refused: {error}") from error
    except Exception as error:  # a broken pickle may raise anything
        raise BadData(f"{where} is not a pickle of plain data: {error}") from error
