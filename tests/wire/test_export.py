"""fl-lab export: every format holds the model of a real run, and the examples of the document load it."""

from __future__ import annotations

import csv
import re
import signal
import sys
import warnings
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from edgeflock.client.keeping import statefile
from edgeflock.client.protocol import Generation
from edgeflock.common.command import extras
from edgeflock.common.command.units import amount, size
from edgeflock.common.errors import EdgeflockError
from edgeflock.common.models.kit.registry import build, names
from edgeflock.lab.cli import group
from edgeflock.lab.export import features as made_features
from edgeflock.lab.export import files
from edgeflock.lab.export.command import EXECUTORCH, ONNX, SUFFIXES
from edgeflock.lab.export.model import Classifier, Taken, take
from edgeflock.lab.history import read
from edgeflock.lab.report.key_figures import figures
from edgeflock.methods.kit.values import State
from edgeflock.server.console import summary
from edgeflock.server.costs.catalogue import BY_CLIENT, BY_ROUND, NUMBERS, TIME_LINE, together
from edgeflock.server.costs.catalogue import names as names_of
from edgeflock.server.files.run_toml import from_toml
from edgeflock.server.journal.reader import Feed, snapshot
from edgeflock.server.start.samples import load_test_set
from support.processes import Flock, flock
from support.rows import rows

ROOT = Path(__file__).resolve().parents[2]
FORMATS = [
    "safetensors",
    "torchscript",
    "exported",
    pytest.param(
        "executorch",
        marks=pytest.mark.skipif(
            not extras.installed(*EXECUTORCH), reason="edgeflock[executorch] is not installed"
        ),
    ),
    pytest.param(
        "onnx",
        marks=pytest.mark.skipif(not extras.installed(*ONNX), reason="edgeflock[onnx] is not installed"),
    ),
]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A run of three rounds."""
    with flock(tmp_path_factory.mktemp("export")) as made:
        server = made.server("--rounds=3", "--clients=2")
        client = made.client("c0,c1")
        assert (server.ended(), client.ended()) == (0, 0)
        yield made.run_dir


def parked(made: Flock, *flags: str) -> Path:
    """Return the directory of a run that nobody has joined."""
    server = made.server(*flags)
    server.signal(signal.SIGTERM)
    assert server.ended() == 0
    return made.run_dir


def export(*arguments: str | Path) -> None:
    group.main(["export", *map(str, arguments)], prog_name="fl-lab", standalone_mode=False)


def refusal(*arguments: str | Path) -> str:
    with pytest.raises(EdgeflockError) as caught:
        export(*arguments)
    return str(caught.value)


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("which", ["final", "best"])
def test_a_file_gives_the_logits_of_the_model(
    run_dir: Path, tmp_path: Path, kind: str, which: str, capsys: pytest.CaptureFixture[str]
) -> None:
    export(run_dir, "--which", which, "--format", kind, "--out", tmp_path / "any name")
    said = capsys.readouterr().out.splitlines()
    model = take(run_dir, which)
    assert said[0] == f"{which} model of round {model.round} in {tmp_path / 'any name'}"
    assert files.largest_error(model, kind, tmp_path / "any name") < 1e-5
    assert said[1].endswith(" on 64 test samples")


def test_the_model_after_a_closing_task_is_of_no_round(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with flock(tmp_path / "closing") as made:
        made.folder.mkdir()
        server = made.server("--rounds=2", "--clients=2", "--method=fedadm", "--set=tau=fixed:2")
        client = made.client("c0,c1")
        assert (server.ended(), client.ended()) == (0, 0)
        export(made.run_dir, "--out", tmp_path / "m")
    assert capsys.readouterr().out.startswith(f"final model after the closing task in {tmp_path / 'm'}")


def test_the_ending_says_the_format_and_must_not_say_another(run_dir: Path, tmp_path: Path) -> None:
    export(run_dir, "--out", tmp_path / "model.pt")
    assert files.largest_error(take(run_dir, "final"), "torchscript", tmp_path / "model.pt") < 1e-5
    said = refusal(run_dir, "--format", "safetensors", "--out", tmp_path / "other.pt2")
    assert said.endswith(
        "ends as a file of exported, allowed with --format safetensors is .safetensors or another ending "
        "that is no other format's"
    )
    assert not (tmp_path / "other.pt2").exists()


def test_the_final_model_is_the_runs_result_and_the_best_the_best_round(run_dir: Path) -> None:
    from safetensors.torch import load_file

    held = {which: take(run_dir, which).classifier.net.state_dict() for which in ("final", "best")}
    result = load_file(run_dir / "model.safetensors")
    assert all(torch.equal(result[name], value) for name, value in held["final"].items())
    scores = rows(run_dir / "journal.sqlite", "SELECT value, -round FROM evaluations")
    assert take(run_dir, "best").round == -max(scores)[1]


def test_the_accuracy_of_the_exported_model_is_the_one_in_the_journal(run_dir: Path) -> None:
    from edgeflock.server.files.run_toml import from_toml
    from edgeflock.server.start.samples import load_test_set

    test = load_test_set(from_toml(run_dir / "run.toml"))
    with torch.no_grad():
        hits = take(run_dir, "final").classifier(test.x).argmax(1) == test.y
    ((told,),) = rows(run_dir / "journal.sqlite", "SELECT value FROM evaluations WHERE round = 3")
    assert float(hits.double().mean()) == pytest.approx(told, abs=1e-9)


def test_a_file_that_is_not_the_model_is_noticed(run_dir: Path, tmp_path: Path) -> None:
    model = take(run_dir, "final")
    files.write(model, "safetensors", tmp_path / "m")
    other = Taken(deepcopy(model.classifier), model.round, model.samples, model.about)
    with torch.no_grad():
        next(iter(other.classifier.parameters())).add_(1.0)
    assert files.largest_error(other, "safetensors", tmp_path / "m") > 0.01


@pytest.mark.parametrize("kind", FORMATS)
def test_pooling_of_our_own_is_exported_too(kind: str, tmp_path: Path) -> None:
    net = build("lenet5", input_shape=(1, 28, 28), classes=10, seed=1).eval()
    model = Taken(Classifier(net).eval(), 1, torch.rand(8, 1, 28, 28), {"model": "lenet5"})
    files.write(model, kind, tmp_path / "m")
    assert files.largest_error(model, kind, tmp_path / "m") < 1e-5


def test_int8_takes_less_bytes_and_gives_the_same_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with flock(tmp_path) as made:
        server = made.server("--rounds=3", "--clients=2", "--model-arg=hidden=2048")
        client = made.client("c0,c1")
        assert (server.ended(), client.ended()) == (0, 0)
        export(made.run_dir, "--out", tmp_path / "m.int8")
        floats = (made.run_dir / "model.safetensors").stat().st_size
    said = capsys.readouterr().out.splitlines()[-1]
    found = re.fullmatch(r".* in place of .* of floats; the same answer as theirs on (.*)% of 1,733 .*", said)
    assert found is not None, said
    assert float(found[1]) > 90
    assert (tmp_path / "m.int8").stat().st_size < 0.4 * floats  # the code takes some


def test_a_model_that_decides_by_numbers_cannot_be_quantized(tmp_path: Path) -> None:
    net = build("cnn-lrn", input_shape=(1, 28, 28), classes=10, seed=1).eval()
    model = Taken(Classifier(net).eval(), 1, torch.rand(8, 1, 28, 28), {"model": "cnn-lrn"})
    with pytest.raises(EdgeflockError, match="int8 cannot quantize cnn-lrn, whose code decides by numbers"):
        files.write(model, "int8", tmp_path / "m")
    assert not (tmp_path / "m").exists()


LARGE = ("alexnet", "alexnet-fedtrip", "firenet-dunnings", "resnet18", "vgg16")


@pytest.mark.parametrize("kind", ["safetensors", "torchscript", "exported"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.long if name in LARGE else ()) for name in names()]
)
def test_every_model_can_be_exported(name: str, kind: str, tmp_path: Path) -> None:
    shape = (3, 32, 32) if name in LARGE else (1, 28, 28)
    net = build(name, input_shape=shape, classes=10, seed=1).eval()
    model = Taken(Classifier(net).eval(), 1, torch.rand(3, *shape), {"model": name})
    files.write(model, kind, tmp_path / "m")
    assert files.largest_error(model, kind, tmp_path / "m") < 1e-5


@pytest.mark.long
@pytest.mark.skipif(not extras.installed(*ONNX), reason="edgeflock[onnx] is not installed")
@pytest.mark.parametrize("name", names())
def test_every_model_can_be_exported_as_onnx(name: str, tmp_path: Path) -> None:
    test_every_model_can_be_exported(name, "onnx", tmp_path)


def test_the_sums_of_the_ledger_are_those_of_the_journal_the_end_and_the_report(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export(run_dir, "--ledger", tmp_path / "a.csv")
    shown = f"6 rows in {tmp_path / 'a.csv'}\n3 rows in {tmp_path / 'a.rounds.csv'}\n"
    assert capsys.readouterr().out == shown
    clients, rounds = (summed(tmp_path / name) for name in ("a.csv", "a.rounds.csv"))
    with snapshot(run_dir) as reader:
        assert clients == pytest.approx(together(map(numbers, reader.totals("client").values())), rel=1e-12)
        whole = {name: value for name, value in reader.round_totals().items() if name in names_of(BY_ROUND)}
        assert rounds == pytest.approx(whole, rel=1e-12)
    assert clients["bytes_up"] > 0
    assert isinstance(clients["bytes_up"], int)
    end = dict(summary.rows(run_dir, Feed(run_dir).read()))
    assert end["bytes up"] == size(clients["bytes_up"])
    assert end["operations"] == f"{amount('flops', clients['flops'])} at the clients"
    page = {title: (value, more) for title, value, more in figures(read(run_dir))}
    assert page["bytes"][0] == amount("bytes", clients["bytes_down"] + clients["bytes_up"])
    assert page["time"][0] == amount("seconds", sum(rounds.get(name, 0.0) for name in names_of(TIME_LINE)))
    used = amount("seconds", rounds["server_cpu_s"])
    assert page["CPU time"] == (amount("seconds", clients["cpu_s"]), f"of all clients; server {used}")


def summed(path: Path) -> dict[str, float]:
    """Return what the columns of an exported table come to."""
    kinds = {column.name: column.kind for column in (*BY_CLIENT, *BY_ROUND)}
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    known = [
        {name: kinds[name](text) for name, text in row.items() if text and name in kinds} for row in rows
    ]
    return together(map(numbers, known))


def numbers(row: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of the ledger alone, without what is made of them."""
    return {name: value for name, value in row.items() if name in names_of((*NUMBERS, *BY_ROUND))}


def test_a_run_that_nobody_has_joined_has_a_ledger_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with flock(tmp_path) as made:
        run = parked(made)
    export(run, "--ledger", "-")
    assert capsys.readouterr().out == f"epoch,round,seat,client,verdict,{','.join(names_of(BY_CLIENT))}\n"
    export(run, "--ledger", tmp_path / "l.csv")
    assert capsys.readouterr().out.startswith("0 rows in ")
    assert summed(tmp_path / "l.rounds.csv")["gather_s"] > 0


def examples() -> list[str]:
    text = (ROOT / "docs" / "export.md").read_text("utf-8")
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


@pytest.mark.parametrize("code", examples())
def test_the_examples_of_the_document_load_the_model(
    code: str, run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "onnx" in code and not extras.installed(*ONNX):
        pytest.skip("edgeflock[onnx] is not installed")
    model = take(run_dir, "final")
    kind = next(kind for kind, suffix in SUFFIXES.items() if f'"model{suffix}"' in code)
    files.write(model, kind, tmp_path / f"model{SUFFIXES[kind]}")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"samples": model.samples}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of TorchScript as a whole
        exec(code, names)
    found = torch.as_tensor(names["logits"])
    assert torch.allclose(found, model.logits(), atol=1e-5)


def test_a_run_without_data_on_the_server_is_exported_too(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    test = load_test_set(from_toml(run_dir / "run.toml"))
    nothing = replace(test, x=test.x[:0], y=test.y[:0])
    monkeypatch.setattr("edgeflock.server.start.samples.load_test_set", lambda _: nothing)
    export(run_dir, "--out", tmp_path / "m.pt2")
    assert "at most 0.0e+00 on 64 samples of random numbers, as the server has no" in capsys.readouterr().out
    export(run_dir, "--out", tmp_path / "d.int8")
    told = capsys.readouterr().out
    assert "100% of its numbers are in layers of 8 bits, linear and recurrent ones: --samples own.npz" in told
    model = take(run_dir, "final")
    assert files.largest_error(model, "int8", tmp_path / "d.int8") < 0.2
    with monkeypatch.context() as patched:
        patched.setattr("edgeflock.lab.export.files.in_8_bits", lambda _: 0.0)
        assert "--format int8 needs the ranges of real samples" in refusal(run_dir, "--format", "int8")
    np.savez(tmp_path / "own.npz", x=test.x[:80].numpy(), y=test.y[:80].numpy())
    export(run_dir, "--out", tmp_path / "m.int8", "--samples", tmp_path / "own.npz")
    said = capsys.readouterr().out
    assert f"on 64 samples of {tmp_path}/own.npz" in said
    assert "of 16 other test samples" in said
    names = [f"p{place}" for place in range(64)]
    rows = ["9", *map(str, test.x[0].flatten().tolist())], ["7", *map(str, test.x[1].flatten().tolist())]
    table = [",".join(["hour", *names]), *(",".join(row) for row in rows)]
    (tmp_path / "own.csv").write_text("\n".join(table) + "\n")
    own_table = ("--samples", tmp_path / "own.csv")
    assert "have the shape 65, this run needs 1x8x8: of a table --columns" in refusal(run_dir, *own_table)
    export(run_dir, "--out", tmp_path / "m.pt2", *own_table, "--columns", ",".join(names))


def test_a_method_without_a_global_model_is_refused(tmp_path: Path) -> None:
    with flock(tmp_path) as made:
        run = parked(made, "--method=fedtr", "--set=head=private")
    assert refusal(run) == "fedtr leaves every client its own head: there is no global model to export"


def test_a_run_that_goes_on_has_no_final_model_yet(tmp_path: Path) -> None:
    with flock(tmp_path) as made:
        run = parked(made)
    assert refusal(run) == f"{run} is not over: --which best gives the best model so far"
    assert "has no evaluation of a global model" in refusal(run, "--which", "best")


def test_what_cannot_be_read_or_written_is_said(run_dir: Path, tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"{tmp_path} is not a run directory: it has no journal.sqlite"
    (tmp_path / "file").touch()
    assert refusal(run_dir, "--out", tmp_path / "file" / "m").startswith("--out ")
    (tmp_path / "run.toml").write_text((run_dir / "run.toml").read_text())
    (tmp_path / "journal.sqlite").write_bytes(b"no journal at all" * 100)
    assert "journal.sqlite cannot be read as a journal" in refusal(tmp_path)


def test_onnx_that_is_missing_is_named(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)  # as if it were not installed
    assert refusal(run_dir, "--format", "onnx").startswith(
        "--format onnx needs onnx, which is not installed: "
    )


# ------------------------------------------------------------------------------------ maps of features


def features(*arguments: str | Path) -> None:
    group.main(["features", *map(str, arguments)], prog_name="fl-lab", standalone_mode=False)


def keep_own_model(run_dir: Path, client: str, *rounds: int) -> None:
    """Write what a client of the lab keeps: here the run's final model, after these rounds."""
    folder = run_dir / "clients" / "0" / "clients" / client / "runs" / read(run_dir).run_id
    folder.mkdir(parents=True)
    taken = take(run_dir, "final").classifier.net
    flat = torch.cat([parameter.detach().flatten() for parameter in taken.parameters()])
    for round in rounds:
        state = State({"history": flat}, {"round": float(round)})
        statefile.write(folder / f"state-{round:06d}.safetensors", state, Generation(round, b"x" * 32))


def test_features_are_drawn_for_the_global_model_and_for_a_client(
    run_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if not extras.installed("matplotlib", "sklearn"):
        pytest.skip("edgeflock[lab] is not installed")
    keep_own_model(run_dir, "c1", 2, 3)
    features(run_dir, "--client", "c1", "--samples", "40", "--out", tmp_path / "map")
    first, second, _ = capsys.readouterr().out.splitlines()
    assert first.removeprefix("global model, round 3") == second.removeprefix("c1, round 3")
    assert "prefers-color-scheme: dark" in (tmp_path / "map.svg").read_text("utf-8")
    assert (tmp_path / "map.png").read_bytes().startswith(b"\x89PNG")
    found = made_features.kept_models(read(run_dir), "c1")
    assert [made_features.as_of(found, "c1", round).round for round in (None, 2, 9)] == [3, 2, 3]
    with pytest.raises(EdgeflockError, match="c1 keeps its models of rounds 2, 3, not that of round 1"):
        made_features.as_of(found, "c1", 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--round", "1"], "round 1 of .* is not kept, kept are 0, .*: --keep-every 1 would have kept it"),
        (["--client", "nobody"], "the clients of this run are c0, c1"),
        (["--client", "c0"], "c0 has kept no model of its own"),
        (["--round", "3", "--round", "0"] * 7, "at most 12 maps"),
    ],
)
def test_a_map_that_cannot_be_drawn_is_refused(run_dir: Path, arguments: list[str], words: str) -> None:
    if not extras.installed("matplotlib", "sklearn"):
        pytest.skip("edgeflock[lab] is not installed")
    with pytest.raises(EdgeflockError, match=words):
        features(run_dir, *arguments)
