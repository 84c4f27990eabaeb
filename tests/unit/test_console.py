"""fl-server for people, from the lines of its log: what stays on the screen, and what a pipe gets."""

from __future__ import annotations

import asyncio
import re
import socket
from pathlib import Path

import pytest

from edgeflock.common.command.terminal import Line, Terminal, text_of
from edgeflock.server.config import ServerConfig
from edgeflock.server.console.console import ServerConsole, joining
from edgeflock.server.console.display import Display
from edgeflock.server.console.totals import Totals
from edgeflock.server.journal.reader import Numbers
from edgeflock.v1 import aggregator_pb2
from edgeflock.v1 import control_pb2 as pb
from support.screen import Clock, Screen


def console(clock: Clock | None = None) -> tuple[ServerConsole, Screen]:
    screen = Screen()
    found = ServerConsole(Terminal(screen, {}), clock or Clock())
    found.serve(ServerConfig(rounds=2, clients=2, run_dir=Path("runs/one")))
    return found, screen


def test_the_first_lines_say_what_is_served_and_where() -> None:
    found, screen = console()
    found.tell("info", "dashboard_listening", {"address": "[::]:8080", "url": "http://[::1]:8080/"})
    found.tell("info", "run_started", {"run_id": "x", "round": 1})
    found.tell("info", "listening", {"address": "127.0.0.1:9300", "transport": "plain text"})
    assert screen.lines()[:4] == [
        "fedavg on digits (mlp) with 2 clients, 2 rounds, in runs/one",
        "listening at 127.0.0.1:9300, plain text",
        "dashboard at http://[::1]:8080/",
        "goes on after round 1",
    ]
    assert screen.lines()[4].endswith("fl-client --server 127.0.0.1:9300")


def test_a_round_that_was_not_tested_names_what_the_run_is_judged_by() -> None:
    found, screen = console()
    found.tell("info", "run_started", {"run_id": "x", "round": 0, "figure": "mae"})
    found.tell("info", "listening", {"address": "127.0.0.1:9300", "transport": "plain text"})
    done = {"bytes_up": 1, "bytes_down": 1, "seconds": 0.1, "loss": 0.5}
    found.tell("info", "round_committed", {"round": 1, "counted": 2, **done})
    found.close()
    assert "mae      -  train loss 0.5000" in screen.lines()[-1]


def test_of_a_model_that_is_trained_in_part_the_first_lines_say_how_much() -> None:
    found, screen = console()
    found.tell("info", "parts", {"trained": 87158, "frozen": 2257984, "kept_by_clients": 0})
    found.tell("info", "listening", {"address": "127.0.0.1:9300", "transport": "plain text"})
    assert "87,158 numbers of the model are trained and sent, 2,257,984 frozen" in screen.lines()


def test_a_terminal_is_told_how_to_go_on_after_a_kill(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever types the same line again has another run: the directory is a new one."""
    screen = Screen()
    monkeypatch.setattr(screen, "isatty", lambda: True)
    found = ServerConsole(Terminal(screen, {"TERM": "xterm"}), Clock())
    found.serve(ServerConfig(rounds=2, clients=2, run_dir=Path("runs/one")))
    found.tell("info", "listening", {"address": "127.0.0.1:9300", "transport": "plain text"})
    assert re.search(r"to go on after a kill: \S*fl-server --run-dir runs/one", screen.getvalue())


def test_a_round_has_one_line_and_everything_else_a_sentence() -> None:
    found, screen = console()
    begun = len(screen.lines())
    found.tell("info", "round_opened", {"round": 1, "cohort": ["a", "b"]})
    found.tell("warning", "task_refused", {"client": "b", "round": 1, "reason": "out of memory"})
    done = {"round": 1, "counted": 1, "not_counted": {"b": "refused_by_client"}, "seconds": 0.5, "loss": 0.3}
    found.tell("info", "round_committed", {**done, "bytes_up": 500, "bytes_down": 500})
    found.tell("info", "evaluated", {"round": 1, "model": "global", "accuracy": 0.5, "loss": 0.25})
    assert screen.lines()[begun:] == [
        "TT  b refuses its task of round 1: out of memory",
        "round 1/2  accuracy 0.5000   test loss 0.2500     1.0 kB     0.50 s  without b",
    ]


def test_an_update_that_came_as_its_round_was_over_is_no_warning_but_another_is() -> None:
    found, screen = console()
    begun = len(screen.lines())
    said = {"client": "b", "reason": "REASON_NO_SUCH_TASK", "sentence": "you have no task in round 1"}
    found.tell("warning", "refused", {**said, "times": 1})
    assert screen.lines()[begun:] == []
    found.tell("warning", "refused", {**said, "times": 2})
    assert screen.lines()[begun:] == ["TT  b is refused (2 so far): you have no task in round 1"]


def test_clients_that_come_together_are_told_together() -> None:
    clock = Clock()
    found, screen = console(clock)
    for number in range(20):
        found.tell("info", "client_joined", {"client": f"c{number}", "machine": "arm", "system": "Linux"})
    found.tell("info", "client_left", {"client": "c3"})
    found.tell("warning", "run_paused", {"round": 0, "reason": "asked"})
    assert screen.lines()[-3:] == [
        "TT  c0, c1, c2, c3 and 16 more join",
        "TT  c3 is gone",
        "TT  round 0: the run pauses: asked",
    ]


def test_what_has_no_sentence_is_told_as_it_is() -> None:
    found, screen = console()
    found.tell("warning", "dashboard_ended", {"code": 1, "again_in_s": 0.5})
    found.tell("warning", "flops_not_counted", {"reason": "an\x1b[31m operation"})
    assert screen.lines()[-2:] == [
        "TT  warning: dashboard ended (code=1, again_in_s=0.5)",
        "TT  warning: flops not counted: an\N{REPLACEMENT CHARACTER}[31m operation",
    ]


def test_of_a_bug_the_way_to_it_is_told() -> None:
    found, screen = console()
    trace = 'Traceback (most recent call last):\n  File "x.py", line 3\nKeyError: 7'
    found.tell("error", "effect_failed", {"effect": "CommitRound", "exception": trace})
    assert screen.lines()[-4:] == ["TT  error: effect failed (effect=CommitRound)", *trace.splitlines()]


def test_ctrl_c_says_that_the_run_is_parked_and_how_to_go_on() -> None:
    found, screen = console()
    found.tell("info", "draining", {"signal": "SIGINT"})
    found.tell("info", "run_parked", {"round": 1})
    found.tell("info", "client_left", {"client": "c0"})
    found.tell("info", "parked", {"reason": "asked by SIGINT", "run_dir": "/x", "hint": "..."})
    assert screen.lines()[-4] == "TT  Ctrl-C: the run is being parked; once more ends it at once"
    assert screen.lines()[-2].startswith("TT  the run is parked, nothing is lost")
    assert screen.lines()[-1].endswith("fl-server --run-dir runs/one")


@pytest.mark.parametrize(
    ("address", "options", "words"),
    [
        ("127.0.0.1:9300", {}, "fl-client --server 127.0.0.1:9300"),
        ("192.0.2.1:9300", {"insecure": True}, "fl-client --server 192.0.2.1:9300 --insecure"),
        (
            "[::]:9300",
            {"insecure": True},
            f"fl-client --server {socket.gethostname()}:9300 --insecure",
        ),
        (
            "192.0.2.1:9300",
            {"tls_cert": Path("s.pem")},
            "fl-client --server 192.0.2.1:9300 --tls-ca ca.pem",
        ),
        (
            "127.0.0.1:9300",
            {"dataset": None, "eval_data": Path("t.npz")},
            "fl-client --server 127.0.0.1:9300 --data FILE.npz",
        ),
        (
            "192.0.2.1:9300",
            {"tls_cert": Path("s.pem"), "tls_client_ca": Path("ca.pem"), "dataset": None},
            "fl-client --config DEVICE.toml --data FILE.npz",
        ),
    ],
)
def test_what_a_client_has_to_type(address: str, options: dict[str, object], words: str) -> None:
    assert joining(address, ServerConfig(**options)).endswith(words)  # type: ignore[arg-type]


def test_a_pipe_hears_who_is_missing_once_and_whenever_that_changes() -> None:
    found, screen = console()
    found.tell("info", "listening", {"address": "127.0.0.1:9300", "transport": "plain text"})
    one = pb.ClientStatus(client_id="a", online=True)
    gathering = pb.StatusResponse(state=aggregator_pb2.RUN_STATE_GATHERING, clients=2, rounds=2)
    with_one = pb.StatusResponse(state=aggregator_pb2.RUN_STATE_GATHERING, clients=2, rounds=2, members=[one])
    for status in (gathering, gathering, with_one, with_one):
        found.look(status)
    missing = [line.partition("  ")[0] for line in screen.lines() if line.startswith("waiting")]
    assert missing == ["waiting for clients: 0 of 2", "waiting for clients: 1 of 2"]
    assert screen.lines()[-1].endswith("start: " + joining("127.0.0.1:9300", ServerConfig()))


def test_a_console_that_nobody_looks_at_asks_for_nothing() -> None:
    async def follow() -> None:
        ServerConsole(Terminal(Screen(), {})).follow(lambda: pytest.fail("it was asked"))
        await asyncio.sleep(0)

    asyncio.run(follow())


def test_a_pipe_hears_of_a_round_that_takes_long() -> None:
    clock, screen = Clock(), Screen()
    shown = Display(Terminal(screen, {}), clock=clock)
    at_hand = pb.OpenRound(round=1, phase="open", elapsed_s=1.0)
    running = aggregator_pb2.RUN_STATE_RUNNING
    shown.look(pb.StatusResponse(state=running, rounds=9, open=at_hand))
    clock.now = 61.0
    shown.draw()
    shown.draw()
    assert screen.lines() == ["round 1/9  1:02 min  updates 0 of 0"]


class Moving(Terminal):
    """A terminal of so many columns that moves, and what it was told to show."""

    def __init__(self, columns: int) -> None:
        super().__init__(Screen(), {})
        self.moves, self.unicode, self._columns = True, False, columns
        self.shown: list[str] = []

    @property
    def width(self) -> int:
        return self._columns

    def show(self, line: Line) -> None:
        self.shown.append(text_of(line))


def test_a_terminal_sees_the_moment_ten_times_a_second_at_most() -> None:
    clock, terminal = Clock(), Moving(60)
    clock.now = 50.0
    shown = Display(terminal, clock=clock)
    shown.wait("data are made ready")  # too soon
    for now in (50.05, 50.125, 50.1875, 53.125):
        clock.now = now
        shown.draw()
    assert terminal.shown == ["data are made ready  0 s", "data are made ready  3 s"]
    shown.close()
    assert terminal.shown[2:] == [""]


def test_the_seconds_of_an_open_round_go_on_between_two_looks() -> None:
    clock, terminal = Clock(), Moving(60)
    shown = Display(terminal, clock=clock)
    clock.now = 1.0
    at_hand = pb.OpenRound(round=1, phase="open", elapsed_s=20.0)
    status = pb.StatusResponse(state=aggregator_pb2.RUN_STATE_RUNNING, rounds=9, open=at_hand)
    shown.look(status)
    clock.now = 6.0
    shown.draw()
    assert [line.split("  ")[1].strip() for line in terminal.shown] == ["20 s", "25 s"]


def test_energy_is_told_by_who_says_so() -> None:
    clients: dict[tuple[int, str | None], Numbers] = {
        (0, "rapl"): {"energy_j": 40.0, "flops": 3e9},
        (1, "rapl"): {"energy_j": 20.0},
        (1, "model"): {"energy_j": 7.0},
        (2, None): {"exam_s": 4.0},
    }
    rows = dict(Totals(clients, {"energy_j": 9.0, "exam_s": 2.0}).rows())
    assert rows == {
        "operations": "3 GFLOP at the clients",
        "clients' own tests": "4 s, 2 s of waiting: in no figure here",
        "energy, 1 client": "7 J (as --watts states it)",
        "energy, 2 clients": "60 J (from rapl)",
        "energy, server": "9 J (from its sensor)",
    }
    assert list(Totals().rows()) == []
