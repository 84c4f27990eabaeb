"""The nursery: what is forked there is the lab's own child, and in every way as if it had been started."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every process is started by exec")

_LAB = """
import json, os, sys, time
from pathlib import Path
from edgeflock.lab.children import Children
from edgeflock.lab.nursery import Nursery

folder = Path(sys.argv[1])

def begin(name, **more):
    words = ["--server=127.0.0.1:9", f"--id={name}", f"--state-dir={name}", "--log-format=json"]
    child = children.begin(name, "fl-client", words, folder / f"{name}.log", {**os.environ, **more})
    return child, type(child.process).__name__

def waits(child):
    while "not_reached" not in child.said() and child.code is None:
        time.sleep(0.01)

children = Children(nursery=Nursery.open("fl-client"))
os.chdir(folder)
refused, how = begin("refused", FL_CLIENT_THREADS="none")
children.wait([refused], 60)
told = {"refused": [how, refused.code, refused.refusal()]}
other, how = begin("other", OMP_NUM_THREADS="3")
told["other"] = how
children.kill(other)
born, how = begin("born")
waits(born)
proc = Path(f"/proc/{born.process.pid}")
stat = (proc / "stat").read_text().rpartition(")")[2].split()
told["born"] = [how, int(stat[1]) == os.getpid(), int(stat[2]) == born.process.pid, born.process.pid]
told["ps"] = (proc / "cmdline").read_bytes().rstrip(b"\\0 ").decode().split()[-4:]
told["files"] = [os.readlink(proc / "fd" / number) for number in "012"]
children.nursery._process.kill()
children.nursery._process.wait()
last, how = begin("last")
told["last"] = how
children.kill(last)
print(json.dumps(told), flush=True)
time.sleep(600)
"""


def test_a_born_process_is_the_labs_own_and_ends_with_it(tmp_path: Path) -> None:
    """One lab tells it all, since it takes a second to import what its nursery needs."""
    lab = subprocess.Popen([sys.executable, "-c", _LAB, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert lab.stdout is not None
    with lab, lab.stdout:
        try:
            told = json.loads(lab.stdout.readline())
            how, is_child, leads_group, pid = told["born"]
            handle = os.pidfd_open(pid)
        finally:
            lab.kill()
        ended, _, _ = select.select([handle], [], [], 30)
        os.close(handle)
    assert ended, "it outlived a lab that was killed"
    assert (how, is_child, leads_group) == ("Born", True, True)
    assert told["refused"][:2] == ["Born", 2]
    assert "none" in told["refused"][2]
    assert told["other"] == "Popen", "a library may have read the variable in the nursery"
    assert told["ps"] == ["--server=127.0.0.1:9", "--id=born", "--state-dir=born", "--log-format=json"]
    assert told["files"] == ["/dev/null", *[str(tmp_path / "born.log")] * 2]
    assert (tmp_path / "born").is_dir(), "it works where the lab does"
    assert told["last"] == "Popen", "a nursery that is gone holds nobody up"
