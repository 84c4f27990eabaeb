"""Files of an exported model: written, read back, and compared with the model."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from edgeflock.common.errors import UsageError
from edgeflock.common.tasks.kit import registry as tasks
from edgeflock.lab.export.model import Taken

if TYPE_CHECKING:
    from torch.ao.quantization import QConfigMapping

_AT_A_TIME = 256
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


def agreement(model: Taken, path: Path) -> tuple[float, int] | None:
    """Return on which share of how many other samples a quantized file gives the model's own answer; None
    where answers are no choice, or there are no other samples."""
    samples = model.more
    task = tasks.load(model.about.get("task", "classification"))(int(model.about["classes"]))
    if samples is None or not task.chooses:
        return None
    with _quiet(), torch.no_grad(), path.open("rb") as file:
        script = torch.jit.load(file)  # type: ignore[no-untyped-call]
        same = [
            task.answer(script(part)) == task.answer(model.classifier(part))
            for part in torch.split(samples, _AT_A_TIME)
        ]
    return float(torch.cat(same).double().mean()), len(samples)


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
    _save_script(model.classifier, model, path)


def _save_script(module: nn.Module, model: Taken, path: Path) -> None:
    traced = torch.jit.trace(module, model.samples[:_TRACED])  # type: ignore[no-untyped-call]
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


def _write_int8(model: Taken, path: Path) -> None:
    """Write a TorchScript that computes in whole numbers of 8 bits, with ranges as real samples show them;
    without any of them only what finds its ranges as it computes."""
    from torch.ao.quantization import get_default_qconfig_mapping

    wishes = get_default_qconfig_mapping(torch.backends.quantized.engine)
    _save_script(_dynamic(model) if model.made_up else _quantized(model, wishes), model, path)


def in_8_bits(model: Taken) -> float:
    """Return which share of a model's numbers is in layers that need no sample to compute in 8 bits."""
    with _quiet():
        rest = sum(weight.numel() for weight in _dynamic(model).parameters())
    return 1 - rest / sum(weight.numel() for weight in model.classifier.parameters())


def _dynamic(model: Taken) -> nn.Module:
    from torch.ao.quantization import QConfigMapping
    from torch.ao.quantization.qconfig import default_dynamic_qconfig

    return _quantized(model, QConfigMapping().set_global(default_dynamic_qconfig))


def _quantized(model: Taken, wishes: QConfigMapping) -> nn.Module:
    from torch.ao.quantization import quantize_fx
    from torch.fx.proxy import TraceError

    try:
        prepared = quantize_fx.prepare_fx(_apart(model.classifier), wishes, (model.samples[:_TRACED],))
    except TraceError as error:
        name = model.about.get("model", "this model")
        raise UsageError(
            f"--format int8 cannot quantize {name}, whose code decides by numbers: {error}"
        ) from None
    with torch.no_grad():
        prepared(model.samples)
    made: nn.Module = quantize_fx.convert_fx(prepared)
    return made


def _apart(module: nn.Module) -> nn.Module:
    """Return a copy whose tensors lie each by itself: of one that is kept, a file would hold all that lies
    with it."""
    copied = copy.deepcopy(module)
    for tensor in (*copied.parameters(), *copied.buffers()):
        tensor.data = tensor.data.clone()
    return copied


def _write_executorch(model: Taken, path: Path) -> None:
    """Write a program for one sample at a time, whose memory is planned."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import (  # pyright: ignore[reportMissingImports]
        XnnpackPartitioner,
    )
    from executorch.exir import to_edge_transform_and_lower  # pyright: ignore[reportMissingImports]  # an extra

    program = torch.export.export(model.classifier, (model.samples[:1],))
    lowered = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    path.write_bytes(lowered.to_executorch().buffer)


def _read_executorch(model: Taken, path: Path) -> Tensor:
    from executorch.runtime import Runtime  # pyright: ignore[reportMissingImports]  # an extra

    method = Runtime.get().load_program(path).load_method("forward")
    return torch.cat([method.execute([sample[None].contiguous()])[0].clone() for sample in model.samples])


_WRITERS: dict[str, Callable[[Taken, Path], None]] = {
    "safetensors": _write_safetensors,
    "torchscript": _write_torchscript,
    "exported": _write_exported,
    "onnx": _write_onnx,
    "int8": _write_int8,
    "executorch": _write_executorch,
}
_READERS: dict[str, Callable[[Taken, Path], Tensor]] = {
    "safetensors": _read_safetensors,
    "torchscript": _read_torchscript,
    "exported": _read_exported,
    "onnx": _read_onnx,
    "int8": _read_torchscript,
    "executorch": _read_executorch,
}
