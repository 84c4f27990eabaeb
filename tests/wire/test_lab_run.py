"""fl-lab run as people start it: real processes, to the end, cut, wrong."""

from __future__ import annotations

import hashlib
import re
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

from support.commands import processes_of, run, start
from support.processes import until

ROOT = Path(__file__).resolve().parents[2]
_RUN = ("run", "--rounds=30", "--clients=3")


def lab(*arguments: str) -> subprocess.CompletedProcess[str]:
    return run("fl-lab", *_RUN, *arguments)


def field(text: str, name: str) -> str:
    """Return a line's value in the table at the end."""
    return next(line.removeprefix(name).strip() for line in text.splitlines() if line.startswith(name))


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run of three processes, and what was shown of it."""
    run_dir = tmp_path_factory.mktemp("finished") / "run"
    done = lab(f"--run-dir={run_dir}")
    assert (done.returncode, done.stderr) == (0, "")
    return run_dir, done.stdout


def test_every_round_has_its_line(finished: tuple[Path, str]) -> None:
    lines = [line.split() for line in finished[1].splitlines() if line.startswith("round ")]
    assert [line[1] for line in lines] == [f"{number}/30" for number in range(1, 31)]
    accuracies = [float(line[line.index("accuracy") + 1]) for line in lines]
    losses = [float(line[line.index("loss") + 1]) for line in lines]
    assert all(0 <= accuracy <= 1 for accuracy in accuracies)
    assert all(loss > 0 for loss in losses)
    assert all(float(line[-2]) > 0 for line in lines)  # seconds


def test_the_table_at_the_end_holds_the_model_and_its_place(finished: tuple[Path, str]) -> None:
    run_dir, text = finished
    content = (run_dir / "model.safetensors").read_bytes()
    assert field(text, "model SHA-256") == hashlib.sha256(content).hexdigest()
    assert field(text, "run directory") == str(run_dir)
    assert field(text, "ended").startswith("completed")
    assert (field(text, "rounds"), field(text, "bytes up") != "0 B") == ("30", True)


def test_the_readme_shows_it_in_the_same_words(finished: tuple[Path, str]) -> None:
    """The numbers there are of another run."""
    shown = (ROOT / "README.md").read_text("utf-8").partition("$ fl-lab run ")[2].partition("```")[0]
    assert _words(shown) == _words(finished[1])


def _words(text: str) -> tuple[list[str], list[str]]:
    """Return the words of a round's line, and what is told of the whole run."""
    above, _, table = text.partition("\n\n")
    line = next(line for line in above.splitlines() if line.startswith("round "))
    return re.findall("[a-z]{3,}", line), re.findall("^[A-Za-z-0-9]+(?: [A-Za-z-0-9]+)*", table, re.MULTILINE)


def test_one_process_that_hosts_all_makes_the_same_model(finished: tuple[Path, str], tmp_path: Path) -> None:
    done = lab(f"--run-dir={tmp_path / 'run'}", "--processes=1")
    assert field(done.stdout, "model SHA-256") == field(finished[1], "model SHA-256")
    assert sorted(path.name for path in (tmp_path / "run" / "logs").iterdir()) == [
        "client-0.jsonl",
        "server.jsonl",
    ]


def test_a_finished_run_is_shown_again(finished: tuple[Path, str]) -> None:
    run_dir, text = finished
    done = lab(f"--run-dir={run_dir}")
    assert (done.returncode, field(done.stdout, "model SHA-256")) == (0, field(text, "model SHA-256"))


def cut_in_its_first_round(*arguments: str, folder: Path | None = None) -> tuple[int, str]:
    """Start a run and press Ctrl-C at its first line; return how it ended, and its errors."""
    cut = start("fl-lab", *_RUN, *arguments, folder=folder)
    assert cut.stdout is not None
    while not (line := cut.stdout.readline()).startswith("round  1/30"):
        assert line, f"it ended by itself: {cut.communicate()[1]}"
    cut.send_signal(signal.SIGINT)
    _, errors = cut.communicate(timeout=60)
    return cut.returncode, errors


def test_ctrl_c_leaves_nothing_behind_and_the_run_goes_on(finished: tuple[Path, str], tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    code, errors = cut_in_its_first_round(f"--run-dir={run_dir}", "--processes=1")
    assert code == 130
    assert f"fl-lab run --run-dir {run_dir} goes on with it" in errors
    assert processes_of(run_dir) == []
    assert not (run_dir / "model.safetensors").exists()
    done = lab(f"--run-dir={run_dir}")
    assert (done.returncode, field(done.stdout, "rounds")) == (0, "30")
    assert field(done.stdout, "model SHA-256") == field(finished[1], "model SHA-256")


def test_a_run_on_data_of_its_clients_goes_on_without_their_being_named_again(tmp_path: Path) -> None:
    """Nor does it matter where the command is given."""
    random = np.random.default_rng(0)
    for name in ("c0", "c1", "c2", "test"):
        np.savez(tmp_path / f"{name}.npz", x=random.random((64, 4), np.float32), y=np.arange(64) % 2)
    run_dir, test_data = f"--run-dir={tmp_path / 'run'}", f"--eval-data={tmp_path}/test.npz"
    given = (run_dir, test_data, "--client-data={id}.npz", "--model=logistic", "--steps=500")
    assert cut_in_its_first_round(*given, folder=tmp_path)[0] == 130
    done = lab(run_dir)
    assert (done.returncode, done.stderr, field(done.stdout, "rounds")) == (0, "", "30")


def test_a_client_that_fails_ends_the_run_with_its_sentence(tmp_path: Path) -> None:
    done = lab(f"--run-dir={tmp_path / 'runs' / 'run'}", f"--client-data={tmp_path}/none-{{index}}.npz")
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])
    assert done.stderr.startswith("fl-lab: error: --data ")
    assert "none-" in done.stderr
    assert done.stderr.endswith("does not exist\n")
    assert processes_of(tmp_path) == []


def test_data_that_the_run_does_not_take_leave_no_directory_and_no_way_to_go_on(tmp_path: Path) -> None:
    for index in range(3):
        np.savez(tmp_path / f"d{index}.npz", x=np.ones((9, 5 + index), np.float32), y=np.arange(9) % 3)
    flags = (f"--eval-data={tmp_path}/d0.npz", f"--client-data={tmp_path}/d{{index}}.npz")
    done = lab(f"--run-dir={tmp_path / 'run'}", *flags)
    assert (done.returncode, (tmp_path / "run").exists()) == (2, False)
    assert re.match(r"fl-lab: error: fl-client c[12]: your samples have shape", done.stderr)
    assert "to go on" not in done.stderr


def test_what_the_server_refuses_leaves_no_directory(tmp_path: Path) -> None:
    done = lab(f"--run-dir={tmp_path / 'runs' / 'run'}", "--method=fedavgg")
    assert done.stderr.startswith("fl-lab: error: unknown method 'fedavgg'")
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])


def test_it_says_where_the_dashboard_is(tmp_path: Path) -> None:
    done = lab(f"--run-dir={tmp_path / 'run'}", "--dashboard=127.0.0.1:0", "--rounds=2")
    assert (done.returncode, done.stderr) == (0, "")
    address = (tmp_path / "run" / "dashboard").read_text().strip()
    assert f"dashboard at http://{address}/" in done.stdout.splitlines()


def test_of_two_at_one_instant_one_has_the_directory_and_the_other_is_told_so(tmp_path: Path) -> None:
    """Whichever it is: both write to the same log, and both see the address that one server writes."""
    given = (f"--run-dir={tmp_path / 'run'}", "--clients=1", "--rounds=100000", "--model=linear")
    both = [start("fl-lab", "run", *given) for _ in range(2)]
    until(lambda: any(one.poll() is not None for one in both) or None, lambda: "one that is refused")
    (refused,) = (one for one in both if one.poll() is not None)
    (other,) = (one for one in both if one is not refused)
    words = f"fl-lab: error: --run-dir '{tmp_path / 'run'}' is in use by another fl-server\n"
    assert (refused.communicate(timeout=30)[1], refused.returncode) == (words, 2)
    later = run("fl-lab", "run", *given)
    assert (later.stderr, later.returncode) == (words, 2)
    other.send_signal(signal.SIGINT)
    other.communicate(timeout=60)
    assert (other.returncode, processes_of(tmp_path)) == (130, [])
