"""fl-lab export: a run's final or best model as a file for other programs, or its ledger as tables."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource

from edgeflock.common.command import extras
from edgeflock.common.command.units import counted, size
from edgeflock.common.errors import UsageError
from edgeflock.server.files.run_dir import require_place, require_text
from edgeflock.server.journal.reader import require

if TYPE_CHECKING:
    from torch.nn import Module

ONNX = ("onnx", "onnxscript")
STDOUT = Path("-")
EXECUTORCH = ("executorch",)
SUFFIXES = {
    "safetensors": ".safetensors",
    "torchscript": ".pt",
    "exported": ".pt2",
    "onnx": ".onnx",
    "int8": ".int8",
    "executorch": ".pte",
}
_NEEDS = {"onnx": ONNX, "executorch": EXECUTORCH}
_OF_A_MODEL = {
    "which": "--which",
    "kind": "--format",
    "out": "--out",
    "data_root": "--data-root",
    "samples": "--samples",
}


@click.command()
@click.argument("run", type=click.Path(path_type=Path), metavar="RUN")
@click.option(
    "--which",
    type=click.Choice(["final", "best"]),
    default="final",
    show_default=True,
    help="Which model of the run.",
)
@click.option(
    "--format",
    "kind",
    type=click.Choice(list(SUFFIXES)),
    help="safetensors: the numbers; the others: the model with its code, from samples to logits; int8: in "
    "whole numbers of 8 bits; executorch: for one sample at a time.  "
    "[default: as FILE ends, else safetensors]",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Where to.  [default: RUN/report/WHICH.SUFFIX]",
)
@click.option(
    "--data-root",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder with data sets, if it is not where the run had it; test samples check the file.",
)
@click.option(
    "--samples",
    type=click.Path(path_type=Path),
    metavar="SOURCE",
    help="Samples that check the file, and give int8 its ranges, in place of the server's test samples: an "
    ".npz, a table, a folder, as for fl-client --data.",
)
@click.option(
    "--columns",
    metavar="NAME,NAME",
    help="Which columns of such a table the samples are.  [default: as the server was told]",
)
@click.option(
    "--ledger",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Instead of a model: what every client and round cost, in FILE.csv or FILE.parquet, or - for CSV on "
    "standard output; what rounds cost as a whole goes to FILE.rounds.csv.",
)
@click.pass_context
def export(
    context: click.Context,
    run: Path,
    which: str,
    kind: str | None,
    out: Path | None,
    data_root: Path | None,
    samples: Path | None,
    columns: str | None,
    ledger: Path | None,
) -> int:
    """Write a model of the run directory RUN for other programs, or its ledger as tables."""
    if ledger is not None:
        given = [name for name in _OF_A_MODEL if _is_given(context, name)]
        if given:
            raise UsageError(f"--ledger writes no model: {_OF_A_MODEL[given[0]]} needs a call of its own")
        return _ledger(run, ledger)
    kind = _agreed(kind, out)
    if out is not None:
        _require_name(out)
    if kind in _NEEDS:
        extras.require(f"--format {kind}", *_NEEDS[kind])
    require(run)
    from edgeflock.lab.export import files
    from edgeflock.lab.export.model import Given, take

    named = tuple(columns.split(",")) if columns else ()
    model = take(run, which, data_root, None if samples is None else Given(samples, named))
    dynamic = files.in_8_bits(model) if kind == "int8" and model.made_up else None
    if dynamic == 0:
        raise UsageError(
            "--format int8 needs the ranges of real samples for a model without linear or recurrent layers, "
            f"and the server of {run} has none: --samples own.npz"
        )
    path = out or run / "report" / f"{which}{SUFFIXES[kind]}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write(model, kind, path)
    except OSError as error:
        raise UsageError(f"--out {str(path)!r} cannot be written: {error.strerror or error}") from None
    apart = files.largest_error(model, kind, path)
    when = "after the closing task" if model.closing else f"of round {model.round}"
    click.echo(f"{which} model {when} in {path}")
    told = f"{len(model.samples)} {'test samples' if samples is None else f'samples of {samples}'}"
    if model.made_up:
        told = f"{len(model.samples)} samples of random numbers, as the server has no test samples"
    click.echo(f"its outputs differ from the model's by at most {apart:.1e} on {told}")
    if dynamic:
        click.echo(
            f"{dynamic:.0%} of its numbers are in layers of 8 bits, linear and recurrent ones: "
            "--samples own.npz gives all layers their ranges"
        )
    if kind == "int8":
        click.echo(_smaller(model.classifier, path, files.agreement(model, path)))
    return 0


def _smaller(model: Module, path: Path, same: tuple[float, int] | None) -> str:
    """Say what quantizing has saved and cost."""
    floats = sum(tensor.nbytes for tensor in model.state_dict().values())
    words = f"{size(path.stat().st_size)} in place of {size(floats)} of floats"
    if same is None:
        return words
    return f"{words}; the same answer as theirs on {same[0]:.2%} of {counted(same[1], 'other test sample')}"


def _is_given(context: click.Context, name: str) -> bool:
    return context.get_parameter_source(name) is not ParameterSource.DEFAULT


def _ledger(run: Path, path: Path) -> int:
    from edgeflock.lab.export import ledger

    if path == STDOUT:
        ledger.show(run)
        return 0
    for file, count in ledger.write(run, path).items():
        click.echo(f"{counted(count, 'row')} in {file}")
    return 0


def _require_name(out: Path) -> None:
    """Refuse what no file can be called, before anything is read."""
    if out.is_dir():
        raise UsageError(f"--out {str(out)!r} is a directory, allowed is a file")
    require_place(out.parent, "--out")
    require_text(out, "--out")


def _agreed(kind: str | None, out: Path | None) -> str:
    """Return the format that is asked for; the file's ending may say it, and must not say another."""
    ending = out.suffix if out is not None else ""
    meant = next((name for name, suffix in SUFFIXES.items() if suffix == ending), None)
    if kind and meant and kind != meant:
        wanted = f"{SUFFIXES[kind]} or another ending that is no other format's"
        raise UsageError(
            f"--out {str(out)!r} ends as a file of {meant}, allowed with --format {kind} is {wanted}"
        )
    return kind or meant or "safetensors"
