"""Processes that the lab starts: how they are split, how they end, that none is left behind."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from edgeflock.lab.children import Child, Children
from edgeflock.lab.run.experiment import ChildFailed, dialled, split

_STUBBORN = (
    "import signal, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "print('ready', file=sys.stderr, flush=True)\n"
    "time.sleep(600)\n"
)


def start(children: Children, folder: Path, script: str) -> Child:
    return children.start("child", [sys.executable, "-c", script], folder / "child.jsonl", os.environ)


@pytest.mark.parametrize(
    ("clients", "processes", "parts"),
    [
        (4, 4, [("c0",), ("c1",), ("c2",), ("c3",)]),
        (4, 1, [("c0", "c1", "c2", "c3")]),
        (5, 2, [("c0", "c1"), ("c2", "c3", "c4")]),
    ],
)
def test_ids_are_the_same_however_they_are_hosted(
    clients: int, processes: int, parts: list[tuple[str, ...]]
) -> None:
    assert split(clients, processes) == parts


@pytest.mark.parametrize(
    ("listened", "target"),
    [
        ("127.0.0.1:41", "127.0.0.1:41"),
        ("0.0.0.0:41", "127.0.0.1:41"),
        ("[::]:41", "[::1]:41"),
        ("unix:/x", "unix:/x"),
    ],
)
def test_clients_dial_this_machine(listened: str, target: str) -> None:
    assert dialled(listened) == target


def test_the_last_words_of_a_child_are_its_last_line(tmp_path: Path) -> None:
    (tmp_path / "child.jsonl").write_text('{"event": "from_an_earlier_life"}\n')
    script = (
        "import sys\n"
        'sys.stderr.write(\'{"event": "round_opened", "level": "info"}\\n\')\n'
        'sys.stderr.write(\'{"event": "gave_up", "level": "error", "seconds": 3}\\n\\n\')\n'
        "sys.exit(7)\n"
    )
    with Children() as children:
        child = start(children, tmp_path, script)
        assert children.wait([child], 30)
    assert (
        child.ending() == f"child ended with exit code 7: gave_up seconds=3 (log: {tmp_path / 'child.jsonl'})"
    )


def test_a_refused_child_is_heard_through_what_a_living_run_writes_to_the_same_log(tmp_path: Path) -> None:
    script = (
        "import sys\n"
        "sys.stderr.write('fl-server: error: it is in use\\n')\n"
        'sys.stderr.write(\'{"event": "round_opened", "why": "fl-x: error: none"}\\n\')\n'
        "sys.exit(2)\n"
    )
    with Children() as children:
        child = start(children, tmp_path, script)
        assert children.wait([child], 30)
    assert (child.refusal(), str(ChildFailed(child))) == ("it is in use", "it is in use")


def test_a_sentence_of_a_child_is_handed_on(tmp_path: Path) -> None:
    with Children() as children:
        child = start(children, tmp_path, "import sys; sys.exit('fl-server: error: the port is taken')")
        assert children.wait([child], 30)
    assert "exit code 1: fl-server: error: the port is taken" in child.ending()


def test_a_silent_child_is_said_to_be_silent(tmp_path: Path) -> None:
    (tmp_path / "child.jsonl").write_text("from an earlier life\n")
    with Children() as children:
        child = start(children, tmp_path, "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
        assert children.wait([child], 30)
    assert "was killed by signal 9: it logged nothing" in child.ending()


def test_a_child_that_does_not_listen_is_killed_in_time(tmp_path: Path) -> None:
    with Children(patience_s=0.1) as children:
        child = start(children, tmp_path, _STUBBORN)
        wait_for_text(child.log, "ready")
    assert child.code == -signal.SIGKILL


def test_an_interrupt_that_took_popens_lock_along_holds_nobody_up(tmp_path: Path) -> None:
    """As it does between the lock's `acquire` and what follows it, in every `poll`."""
    with Children(patience_s=0.1) as children:
        child = start(children, tmp_path, "import time; time.sleep(600)")
        lock = child.process._waitpid_lock  # type: ignore[union-attr]  # it has no other name
        assert lock.acquire()
    lock.release()
    assert child.process.wait(20) in (-signal.SIGTERM, -signal.SIGKILL)


def test_an_error_in_the_lab_leaves_no_child_behind(tmp_path: Path) -> None:
    children = Children()

    def fail() -> None:
        with children:
            start(children, tmp_path, "import time; time.sleep(600)")
            raise RuntimeError("of the lab")

    with pytest.raises(RuntimeError, match="of the lab"):
        fail()
    assert [child.code for child in children.all] == [-signal.SIGTERM]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells children of their parent's death")
def test_a_killed_lab_takes_its_children_with_it(tmp_path: Path) -> None:
    """The child holds the writing end of a pipe: its end is the pipe's end."""
    script = (
        "import os, sys, time\n"
        "from pathlib import Path\n"
        "from edgeflock.lab.children import Children\n"
        "children = Children()\n"
        f"child = [sys.executable, '-c', 'import time; time.sleep(600)']\n"
        f"children.start('child', child, Path({str(tmp_path / 'child.jsonl')!r}), os.environ)\n"
        "print('started', flush=True)\n"
        "time.sleep(600)\n"
    )
    lab = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert lab.stdout is not None
    with lab, lab.stdout:
        assert lab.stdout.readline() == "started\n"
        child = children_of(lab.pid)[0]
        handle = os.pidfd_open(child)
        lab.kill()
        ended, _, _ = select.select([handle], [], [], 30)
        os.close(handle)
    assert ended == [handle]


def children_of(pid: int) -> list[int]:
    return [int(text) for text in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def wait_for_text(path: Path, text: str) -> None:
    """Wait until a file holds a text, bounded by the test's own time-out."""
    while text not in path.read_text():
        os.sched_yield()
