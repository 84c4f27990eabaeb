"""Files of an exported model: written, read back, and compared with the model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgeflock.lab.export.model import Taken

_TRACED = 2  # samples; the number of samples stays free


def write(model: Taken, kind: str, path: Path) -> None:
    """Write the model as a file of that kind, in one step."""
    temporary = path.with_name(f".tmp-{path.name}")
    with _quiet():
        _WRITERS[kind](model, temporary)
    temporary.rename(path)


def largest_error(model: Taken, kind: str, path: Path) -> float:
    """Return by how much the file's logits differ from the model's, at most."""
    asked = model.logits()  # first: reading numbers back puts them into the model
    with _quiet(), torch.no_grad():
        found = _READERS[kind](model, path)
    return float((found - asked).abs().max())


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep what torch says to its programmers from people: deprecations, and its progress."""
    with warnings.catch_warnings(), redirect_stdout(StringIO()):
        warnings.simplefilter("ignore")
        yield


# -------------------------------------------------------------------------------------------- the kinds


def _write_safetensors(model: Taken, path: Path) -> None:
    from safetensors.torch import save

    tensors = {name: value.clone() for name, value in model.classifier.net.state_dict().items()}
    path.write_bytes(save(tensors, dict(model.about)))


def _read_safetensors(model: Taken, path: Path) -> Tensor:
    from safetensors.torch import load_file

    model.classifier.net.load_state_dict(load_file(path))
    return model.logits()


def _write_torchscript(model: Taken, path: Path) -> None:
    traced = torch.jit.trace(model.classifier, model.samples[:_TRACED])  # type: ignore[no-untyped-call]
    with path.open("wb") as file:  # torch itself is particular about the names of files
        torch.jit.save(traced, file, {name: text.encode() for name, text in model.about.items()})


def _read_torchscript(model: Taken, path: Path) -> Tensor:
    with path.open("rb") as file:
        logits: Tensor = torch.jit.load(file)(model.samples)  # type: ignore[no-untyped-call]
    return logits


def _write_exported(model: Taken, path: Path) -> None:
    program = torch.export.export(model.classifier, (model.samples[:_TRACED],), dynamic_shapes=_free_batch())
    with path.open("wb") as file:
        torch.export.save(program, file, extra_files=dict(model.about))


def _read_exported(model: Taken, path: Path) -> Tensor:
    with path.open("rb") as file:
        logits: Tensor = torch.export.load(file).module()(model.samples)
    return logits


def _write_onnx(model: Taken, path: Path) -> None:
    torch.onnx.export(
        model.classifier,
        (model.samples[:_TRACED],),
        str(path),
        input_names=["x"],
        output_names=["logits"],
        dynamic_shapes=_free_batch(),
        dynamo=True,
        external_data=False,
    )


def _read_onnx(model: Taken, path: Path) -> Tensor:
    from onnx.reference import ReferenceEvaluator

    logits: Any = ReferenceEvaluator(str(path)).run(["logits"], {"x": model.samples.numpy()})
    return torch.from_numpy(logits[0])


def _free_batch() -> tuple[dict[int, Any]]:
    return ({0: torch.export.Dim("samples")},)


_WRITERS: dict[str, Callable[[Taken, Path], None]] = {
    "safetensors": _write_safetensors,
    "torchscript": _write_torchscript,
    "exported": _write_exported,
    "onnx": _write_onnx,
}
_READERS: dict[str, Callable[[Taken, Path], Tensor]] = {
    "safetensors": _read_safetensors,
    "torchscript": _read_torchscript,
    "exported": _read_exported,
    "onnx": _read_onnx,
}
