"""The command: play the schedules of some seeds, a line for each, and say how a failing one is run again."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from support.nemesis.judge import SOCKETS, Left
from support.nemesis.play import Played, play
from support.nemesis.schedule import SETTINGS, Schedule, schedule

# Disks that fill up and ports that nobody else takes: mounts, a network and processes of their own.
APART = ("unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
_UP = 'ip link set lo up && "$@"; exit $?'
KEPT = Path("build/nemesis")


def numbers(text: str) -> list[int]:
    """Read "7", "100..120" and lists of these."""
    found: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("..")
        found += range(int(first), int(last or first) + 1)
    return found


def calm_of(name: str, folder: Path) -> Left:
    """Return what the undisturbed run of a setting leaves, from the folder if it was run before."""
    kept = folder / f"{sorted(SETTINGS).index(name)}.json"
    if not kept.exists():
        with tempfile.TemporaryDirectory(prefix="calm-") as place:
            played = play(Schedule(-1, name, ("c0,c1,c2,c3",)), Path(place))
        if played.findings or played.left is None:
            raise SystemExit(f"the undisturbed run of {name} is no measure: {played.findings}")
        played.left.save(kept)
    return Left.load(kept)


def line(made: Schedule, played: Played) -> str:
    verdict = "FAILED" if played.findings else "ok"
    return (
        f"seed {made.seed}  {verdict}  {made.name}  {len(made.hosts)} processes{' --stay' * made.stays}  "
        f"{played.struck - played.missed} strokes, {played.missed} missed  "
        f"{played.seconds:.1f} s, {played.after_s:.1f} s after the last"
    )


def tell(made: Schedule, played: Played, kept: Path) -> None:
    say(line(made, played))
    for finding in played.findings:
        say(f"  {finding}")
    if played.findings:
        say(f"  again: PYTHONPATH=tests .venv/bin/python -m support.nemesis --seeds {made.seed}")
        say(f"  kept: {kept}")


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def play_all(seeds: list[int], kept: Path, calm: Path) -> int:
    """Play one after the other; return how many have failed."""
    failed = 0
    for seed in seeds:
        made = schedule(seed)
        undisturbed = calm_of(made.name, calm)
        folder = Path(tempfile.mkdtemp(prefix=f"nemesis-{seed}-"))
        played = play(made, folder, undisturbed)
        place = kept / str(seed)
        shutil.rmtree(place, ignore_errors=True)
        if played.findings:
            failed += 1
            shutil.copytree(folder, place, ignore=SOCKETS)
            (place / "schedule").write_text(f"{made}\n", "utf-8")
        tell(made, played, place)
        shutil.rmtree(folder)
    return failed


def apart(seeds: list[int], asked: argparse.Namespace) -> Iterator[subprocess.Popen[bytes]]:
    """Start the jobs, each with its share of the seeds, in surroundings of its own."""
    for job in range(min(asked.jobs, len(seeds))):
        mine = ",".join(map(str, seeds[job :: asked.jobs]))
        words = [sys.executable, "-m", "support.nemesis", "--here", f"--seeds={mine}"]
        words += [f"--kept={asked.kept}", f"--calm={asked.calm}"]
        yield subprocess.Popen([*APART, "sh", "-c", _UP, "sh", *words])


def wait_for(jobs: list[subprocess.Popen[bytes]]) -> int:
    try:
        return int(any([job.wait() for job in jobs]))
    finally:
        for job in jobs:
            job.kill()  # and with it, when somebody interrupts us, all that it has started


def main() -> int:
    parser = argparse.ArgumentParser(prog="support.nemesis", description=__doc__)
    parser.add_argument("--seeds", type=numbers, default=[1], help="such as 7, 100..120 or 1,5,9")
    parser.add_argument("--jobs", type=int, default=1, help="schedules at a time")
    parser.add_argument("--kept", type=Path, default=KEPT, help="where failing ones are kept")
    parser.add_argument("--calm", type=Path, help="where undisturbed runs are kept; default: nowhere")
    parser.add_argument("--show", action="store_true", help="print the schedules and play nothing")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.show:
        say("\n".join(str(schedule(seed)) for seed in asked.seeds))
        return 0
    with tempfile.TemporaryDirectory(prefix="calm-") as nowhere:
        asked.calm = asked.calm or Path(nowhere)
        for folder in (asked.calm, asked.kept):
            folder.mkdir(parents=True, exist_ok=True)
        if asked.here:
            return int(play_all(asked.seeds, asked.kept, asked.calm) > 0)
        return wait_for(list(apart(asked.seeds, asked)))


if __name__ == "__main__":
    sys.exit(main())
