"""Everything that can be asked for wrongly: one sentence on stderr, exit code 2 or 1, no traceback."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from edgeflock.lab.becoming import program
from support import processes
from support.processes import Flock, Program, mounted

RANGES = {
    "--rounds": ("0", "-1", "1.5", "many", ""),
    "--clients": ("0", "1000001"),
    "--cohort": ("-1", "5", "3..", "0..3", "4..2", "2..5", "some"),
    "--clock": ("fast", "simulated:", "simulated:c=0", "simulated:c=1,d=1"),
    "--participation": ("offline",),
    "--seed": ("-1", "1e3"),
    "--samples-per-client": ("-1",),
    "--epochs": ("0",),
    "--steps": ("-1",),
    "--batch-size": ("-1",),
    "--lr": ("-0.1", "nan", "inf", "0", "fast"),
    "--momentum": ("1", "-0.1"),
    "--weight-decay": ("-1",),
    "--lr-decay": ("0",),
    "--eval-every": ("-1",),
    "--eval-models": ("-1", "0.5"),
    "--eval-train": ("-1",),
    "--deadline": ("0", "-1", "soon"),
    "--every": ("-1", "soon"),
    "--grace": ("-1", "soon"),
    "--min-updates": ("-1", "5"),
    "--over-select": ("-1", "1"),
    "--max-clients-wait": ("0",),
    "--listen": ("nowhere", "127.0.0.1:99999", "127.0.0.1:x", "203.0.113.1:0"),
    "--control": ("203.0.113.1:0", "0.0.0.0:0"),
    "--credit-mib": ("0",),
    "--drain-timeout": ("-1",),
    "--linger": ("-1",),
    "--keep-every": ("-1",),
    "--track": ("mlfow", "mlflow,x", ""),
    "--log-level": ("loud",),
    "--log-format": ("xml",),
    "--set": ("weighting", "weighting=none", "wheighting=weighted", "clip=-1"),
    "--model-arg": ("hidden", "hidden=0", "hiden=10"),
    "--codec": ("int8+zip", "topk", "topk:0", "topk:2", "topk:x", "fp16:1", ""),
    "--codec-down": ("int8", "topk:0.1"),
    "--partition": ("dirichlet", "dirichlet:0", "dirichlet:x", "classes:11", "iid:3", ""),
    "--augment": ("turn", "crop:0", "flip,flip", ""),
    "--client-optimizer": ("adam", "adamw:beta1=1", ""),
    "--schedule": ("linear", "cosine:warmup=-1", ""),
    "--train": ("nothing", "|", ""),
    "--keep-local": ("nothing", "|", ""),
    "--adapter": ("ia3", "lora:rank=0", "lora:target=nothing", ""),
    "--init": ("/nowhere.safetensors", "/etc/hostname"),
    "--data-root": ("/nowhere",),
    "--eval-data": ("/nowhere.npz",),
    "--size": ("0", "big"),
    "--cohort-script": ("/nowhere.txt",),
    "--config": ("/nowhere.toml",),
    "--run-dir": ("/proc/run", "/etc/hostname", "/etc/hostname/run"),
}
SUBJECTS = {  # how the sentence calls what the flag is about
    "--set": "weighting|clip|set",
    "--model-arg": "model arg",
    "--codec": "codec",
    "--partition": "partition|classes per client",
    "--config": "configuration file",
}
OUT_OF_RANGE = [(flag, value) for flag, values in RANGES.items() for value in values]


def refusal(command: Program, code: int) -> str:
    """Return the sentence of a command that ended so: the last line, and the only one that is not a log."""
    assert command.ended() == code, command.text
    lines = [line for line in command.text.splitlines() if not line.startswith("{")]
    assert lines == [command.sentence()]
    name, error, sentence = command.sentence().split(": ", 2)
    assert name.startswith("fl-")
    assert error == "error"
    assert "this is a bug" not in sentence
    return sentence


@pytest.mark.parametrize(
    ("flag", "value"), OUT_OF_RANGE, ids=[f"{flag}={value}" for flag, value in OUT_OF_RANGE]
)
def test_a_value_out_of_range_is_refused_by_name(flock: Flock, flag: str, value: str) -> None:
    """The sentence names what it is about, the value, and what is allowed."""
    given = (f"--run-dir={flock.run_dir}", "--listen=127.0.0.1:0", "--max-clients-wait=2s", f"{flag}={value}")
    sentence = refusal(flock.start("fl-server", *given), 2)
    about = SUBJECTS.get(flag, flag.strip("-").replace("-", " "))
    assert any(word in sentence.replace("-", " ") for word in about.split("|"))
    assert not flock.run_dir.exists()


@pytest.mark.parametrize(
    ("arguments", "code", "fragment"),
    [
        ("--method=fedavgg", 2, "unknown method 'fedavgg': did you mean 'fedavg'? known are "),
        ("--model=lenet", 2, "unknown model 'lenet': did you mean 'lenet5'? known are "),
        ("--dataset=digit", 2, "unknown data set 'digit': did you mean 'digits'? known are "),
        ("--codec=int9", 2, "unknown codec 'int9': did you mean 'int8'? known are "),
        (
            "--partition=dirichle:1",
            2,
            "unknown partition 'dirichle': did you mean 'dirichlet:ALPHA'? known are ",
        ),
        ("--partition=classe:two", 2, "unknown partition 'classe:two': did you mean 'classes:K'? known are "),
        ("--method=nowhere.at.all:METHOD", 2, "method is 'nowhere.at.all:METHOD', allowed is package.module"),
        ("--round=3", 2, "unknown option --round, did you mean --rounds?"),
        ("--model=no.such:thing", 2, "importable from here (No module named 'no')"),
        ("--model=math:nothing", 2, "(there is no nothing in math)"),
        ("--model=math:sqrt", 2, "a factory that can be called with ((1, 8, 8), 10)"),
        (
            "--model=vgg16",
            2,
            "input shape of vgg16 is '1x8x8', allowed is channels x height x width with sides",
        ),
        ("--dataset=npz:none --data-root=/etc", 2, "file 'none.npz' is missing, looked for in /etc"),
        ("--dataset=folder:none --data-root=/etc", 2, "there is no folder /etc/none"),
        ("--dataset=npz:../passwd --data-root=/etc", 2, "a name or path below the data root"),
        ("--partition=natural", 2, "this data set does not say whom a sample is from"),
        ("--partition=orthogonal:100", 2, "at most the 10 classes and the 4 clients"),
        ("--epochs=1 --steps=1", 2, "--epochs and --steps exclude each other"),
        ("--participation=online --cohort-script=/etc/hostname", 2, "--cohort-script needs"),
        ("--reflection --insecure --listen=0.0.0.0:0", 2, "--reflection is for development"),
        ("--eval-data=/etc/hostname", 2, "/etc/hostname is not an .npz archive"),
        ("--max-clients-wait=100ms", 1, "0 of 4 clients came within 0.1 s"),
        ("rounds", 2, "unexpected extra argument (rounds)"),
    ],
)
def test_what_the_server_cannot_do_is_said_in_a_sentence(
    flock: Flock, arguments: str, code: int, fragment: str
) -> None:
    given = (f"--run-dir={flock.run_dir}", "--listen=127.0.0.1:0", "--max-clients-wait=2s")
    assert fragment in refusal(flock.start("fl-server", *given, *arguments.split()), code)
    assert code == 1 or not flock.run_dir.exists()


@pytest.mark.parametrize(
    ("environ", "fragment"),
    [
        ({"FL_SERVER_ROUNDS": "x"}, "FL_SERVER_ROUNDS is 'x', allowed is an integer >= 1"),
        (
            {"FL_SERVER_ROUNDZ": "3"},
            "unknown environment variable: FL_SERVER_ROUNDZ, did you mean FL_SERVER_ROUNDS?",
        ),
        ({"FL_SERVER_CONFIG": "/nowhere.toml"}, "cannot read the configuration file '/nowhere.toml'"),
    ],
)
def test_a_wrong_variable_is_refused_by_name(flock: Flock, environ: dict[str, str], fragment: str) -> None:
    assert fragment in refusal(flock.start("fl-server", environ=environ), 2)


@pytest.mark.parametrize(
    ("text", "fragment"),
    [
        ("roundz = 3", "roundz, did you mean rounds?"),
        ("rounds = 'x'", "rounds in "),
        ("rounds = ", "is not TOML"),
        ("[method]\nname = 'fedprox'\nmuu = 1", "unknown option 'muu': did you mean 'mu'?"),
        ("lr = true", "lr in "),
    ],
)
def test_a_wrong_configuration_file_is_refused_by_name(flock: Flock, text: str, fragment: str) -> None:
    file = flock.folder / "run.toml"
    file.write_text(text)
    sentence = refusal(flock.start("fl-server", f"--config={file}", f"--run-dir={flock.run_dir}"), 2)
    assert fragment in sentence
    assert not flock.run_dir.exists()


@pytest.mark.parametrize(
    ("name", "flag", "code"), [("fl-server", "--run-dir", 2), ("fl-client", "--state-dir", 1)]
)
def test_a_read_only_directory_is_one_sentence(flock: Flock, name: str, flag: str, code: int) -> None:
    folder = flock.folder / "read-only"
    folder.mkdir()
    probe = subprocess.run(mounted(folder, "ro", "true"), capture_output=True, check=False)
    if probe.returncode:
        pytest.skip(f"no disk can be mounted here: {probe.stderr.decode().strip()}")
    words = mounted(folder, "ro", *program(name), f"{flag}={folder}")
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (code, "", 1)
    assert done.stderr.endswith("cannot be written: Read-only file system\n")


# ------------------------------------------------------------------------------------ clients


def arrays(**changed: Any) -> dict[str, Any]:
    """Return own data that fit digits, with some of it changed."""
    return {"x": np.zeros((6, 1, 8, 8), np.float32), "y": np.arange(6), **changed}


BAD_DATA: dict[str, tuple[dict[str, Any], str]] = {
    "another shape": (
        arrays(x=np.zeros((6, 1, 9, 9), np.float32)),
        "this run's have [1, 8, 8], those of digits: ",
    ),
    "no samples": (arrays(x=np.zeros((0, 1, 8, 8), np.float32), y=np.zeros(0, int)), "has no samples"),
    "a label too high": (arrays(y=np.arange(6) + 5), "labels go up to 10"),
    "a label below 0": (arrays(y=np.arange(6) - 1), "has the label -1"),
    "broken labels": (arrays(y=np.arange(6) / 2), "y is float64"),
    "other lengths": (arrays(y=np.arange(5)), "x has 6 samples and y 5 labels"),
    "NaN": (arrays(x=np.full((6, 1, 8, 8), np.nan, np.float32)), "not a finite number in sample 0"),
    "infinity": (arrays(x=np.full((6, 1, 8, 8), np.inf)), "not a finite number in sample 0"),
    "texts": (arrays(x=np.full((6, 1, 8, 8), "a")), "x is <U1, allowed are numbers"),
    "a pickle": (arrays(x=np.array([{}] * 6, dtype=object)), "holds Python objects"),
    "no labels": ({"x": np.zeros((6, 1, 8, 8), np.float32)}, "there are no labels (y)"),
}


@pytest.fixture(scope="module")
def waiting(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flock]:
    """A server with seats for two, which sees every bad client and must not mind."""
    with processes.flock(tmp_path_factory.mktemp("waiting")) as made:
        server = made.server("--clients=2", "--rounds=2")
        yield made
        good = made.client("good1,good2")
        assert [server.ended(), good.ended()] == [0, 0]


@pytest.mark.parametrize("name", BAD_DATA)
def test_own_data_that_do_not_fit_are_refused(waiting: Flock, name: str) -> None:
    content, fragment = BAD_DATA[name]
    file = waiting.folder / f"{name}.npz"
    np.savez(file, allow_pickle=True, **content)
    theirs = name in ("another shape", "a label too high")  # only the server knows what is right
    assert fragment in refusal(waiting.client("bad", f"--data={file}"), 1 if theirs else 2)


@pytest.mark.parametrize(
    ("flags", "code", "fragment"),
    [
        ("--data=/nowhere.npz", 2, "--data '/nowhere.npz' does not exist"),
        ("--data=/etc/hostname", 2, "/etc/hostname"),
        ("--data=/etc", 2, "/etc"),
        ("--data-root=/nowhere", 2, "--data-root '/nowhere' is not a directory"),
        ("--server=nowhere", 2, "--server is 'nowhere'"),
        ("--server=203.0.113.1:9300", 2, "--insecure"),
        ("--server=127.0.0.1:1 --give-up-after=1", 1, "no server was reached at 127.0.0.1:1"),
        ("--server=nowhere.invalid:9300 --insecure --give-up-after=1", 1, "nowhere.invalid"),
        ("--device=gpu", 2, "--device is 'gpu'"),
        ("--device=cuda:7", 2, "cuda:7"),
        ("--threads=0", 2, "--threads is '0'"),
        ("--parallel=0", 2, "--parallel is '0'"),
        ("--host-clients=0", 2, "--host-clients is '0'"),
        ("--give-up-after=0", 2, "--give-up-after is '0'"),
        ("--host-clients=2", 2, "--ids names all hosted clients"),
        ("--ids=a,a", 2, "--ids is 'a,a', allowed is every id once"),
        ("--ids=a/b", 2, "--ids is 'a/b'"),
        ("--ids=..", 2, "--ids is '..'"),
        ("--state-dir=/proc/state", 1, "/proc/state"),
        ("--state-dir=/etc/hostname", 1, "/etc/hostname"),
        ("--model=mlp", 2, "--model is 'mlp'"),
        ("--sever=x", 2, "unknown option --sever, did you mean --server?"),
    ],
)
def test_what_a_client_cannot_do_is_said_in_a_sentence(
    waiting: Flock, flags: str, code: int, fragment: str
) -> None:
    assert fragment in refusal(waiting.client("bad", *flags.split()), code)
