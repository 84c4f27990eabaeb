"""fl-client for people, from the lines of its log: one client, many, a server that is not there."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from edgeflock.client.console import ClientConsole, Work, _at_work
from edgeflock.client.link.trouble import in_words
from edgeflock.common.command.terminal import Terminal, text_of
from support.screen import Clock, Screen


class Scene:
    """A console and its screen; what is told goes to both."""

    def __init__(self, hosted: int = 1) -> None:
        self.clock, self.screen = Clock(), Screen()
        self.console = ClientConsole(Terminal(self.screen, {}), self.clock)
        names = [f"c{number}" for number in range(min(hosted, 20))]
        self.tell("client_started", server="h:9300", clients=names, hosted=hosted, state_dir="/s")
        self.screen.truncate(0)
        self.screen.seek(0)

    def tell(self, name: str, level: str = "info", **fields: Any) -> None:
        self.console.tell(level, name, fields)

    def settle(self, client: str, round: int, **more: Any) -> None:
        fields = {"counted": True, "samples": 280, "train_s": 0.4, "bytes_up": 60_000, **more}
        self.tell("update_settled", client_id=client, round=round, **fields)


def test_a_client_tells_its_story_in_a_few_lines() -> None:
    scene = Scene()
    scene.tell("connected", client_id="c0", server="h:9300")
    scene.tell("ready", client_id="c0", seat=2, samples=280, new=True)
    scene.settle("c0", 1)
    scene.settle("c0", 2, counted=False, reason="late")
    scene.tell("run_over", client_id="c0", reason="all 2 rounds are done", failed=False)
    scene.tell("ended", reason="all 2 rounds are done")
    assert scene.screen.lines() == [
        "TT  connected to h:9300 as c0",
        "TT  seat 2: 280 samples are ready",
        "round 1  280 samples in 0.4 s, 60.0 kB up  counted",
        "round 2  280 samples in 0.4 s, 60.0 kB up  not counted: late",
        "the run is over: all 2 rounds are done; 2 rounds, 1 counted, 120.0 kB up",
    ]


def test_a_client_that_moves_and_is_dropped_hears_both_in_words() -> None:
    scene = Scene()
    scene.tell("moved", client_id="c0", to="h:9301")
    scene.tell("connected", client_id="c0", server="h:9301")
    scene.settle("c0", 1)
    reason = "the run is over for you: you were dropped, by its operator"
    scene.tell("run_over", client_id="c0", reason=reason, failed=False)
    told = scene.screen.lines()
    assert told[0] == "TT  goes on to the gate at h:9301"
    assert told[-1] == f"{reason}; 1 round, 1 counted, 60.0 kB up"


def test_a_server_that_is_not_there_is_told_of_once_a_minute() -> None:
    scene = Scene()
    for second in range(0, 130, 5):
        scene.clock.now = float(second)
        scene.tell("server_not_reached", "warning", client_id="c0", reason="connection refused")
    said = "TT  no server at h:9300 yet (connection refused): trying again"
    assert scene.screen.lines() == [said] * 3


def test_a_reason_with_a_hint_in_brackets_gets_none_of_its_own() -> None:
    scene = Scene()
    scene.tell("server_not_reached", "warning", client_id="c0", reason="it was closed (give --tls-ca)")
    assert scene.screen.lines() == [
        "TT  no server at h:9300 yet, it was closed (give --tls-ca): trying again"
    ]


def test_a_server_that_goes_and_comes_back_is_told_of_as_such() -> None:
    scene = Scene()
    scene.tell("connected", client_id="c0")
    scene.tell("server_not_reached", "warning", client_id="c0", reason="the connection was closed")
    scene.tell("server_not_reached", "warning", client_id="c0", reason="connection refused")
    scene.tell("connected", client_id="c0")
    gone, back = scene.screen.lines()[1:]
    assert gone.startswith("TT  the server at h:9300 is away (the connection was closed); nothing is lost")
    assert back == "TT  connected again to h:9300 as c0"


def test_a_hundred_clients_are_one_line_a_round() -> None:
    scene = Scene(hosted=100)
    for number in range(100):
        scene.tell("connected", client_id=f"c{number}")
        scene.tell("ready", client_id=f"c{number}", seat=number, samples=28, new=True)
    for number in range(100):
        scene.settle(f"c{number}", 1, **({"counted": False, "reason": "late"} if number == 7 else {}))
        scene.tell("transfer_interrupted", client_id=f"c{number}", reason="x", reached=1)
    for number in range(100):
        scene.tell("run_over", client_id=f"c{number}", reason="done", failed=False)
    assert scene.screen.lines() == [
        "TT  connected to h:9300 for 100 clients",
        "round 1  28,000 samples in 0.4 s, 6.0 MB up  99 of 100 counted, not c7 (late)",
        "the run is over: done; 1 round, 99 counted, 6.0 MB up",
    ]


def test_a_round_of_some_of_many_is_told_with_the_next_or_the_end() -> None:
    scene = Scene(hosted=10)
    scene.settle("c1", 1)
    scene.settle("c2", 1)
    assert scene.screen.lines() == []
    scene.settle("c3", 2)
    assert scene.screen.lines() == ["round 1  560 samples in 0.4 s, 120.0 kB up  2 of 2 counted"]
    scene.console.close()
    assert len(scene.screen.lines()) == 2


@pytest.mark.parametrize(("hosted", "who"), [(1, ""), (2, "c0: ")])
def test_who_it_was_is_said_where_there_is_more_than_one(hosted: int, who: str) -> None:
    scene = Scene(hosted)
    scene.tell("quarantined", "warning", client_id="c0", until_round=9, reason="bad updates")
    assert scene.screen.lines() == [f"TT  {who}in quarantine up to round 9: bad updates"]


def test_what_is_left_of_a_round_is_told_before_the_end_of_its_run() -> None:
    scene = Scene(hosted=2)
    scene.settle("c0", 1)
    for client in ("c0", "c1"):
        scene.tell("run_over", client_id=client, reason="done", failed=client == "c1")
    assert [line.partition("  ")[0] for line in scene.screen.lines()] == [
        "round 1",
        "the run is over: failed, done; 1 round, 1 counted, 60.0 kB up",
    ]


def test_warnings_and_errors_of_many_stay_visible() -> None:
    scene = Scene(hosted=100)
    scene.tell("task_refused", "error", client_id="c5", round=3, reason="out of memory")
    scene.tell("library_message", "warning", library="lib", text="x\x1b[2J")
    assert scene.screen.lines() == [
        "TT  c5: round 3 cannot be done: out of memory",
        "TT  warning: library message (library=lib, text=x\N{REPLACEMENT CHARACTER}[2J)",
    ]


def test_of_a_bug_the_way_to_it_is_told() -> None:
    scene = Scene()
    scene.tell("library_message", "error", text="lost", exception="Traceback:\n  File")
    assert scene.screen.lines() == ["TT  error: library message (text=lost)", "Traceback:", "  File"]


def test_another_run_at_the_same_server_is_summed_by_itself() -> None:
    scene = Scene(hosted=2)
    for client in ("c0", "c1"):
        scene.tell("ready", client_id=client, seat=0, samples=280, new=True)
        scene.settle(client, 7)
    for client in ("c0", "c1"):  # the server was killed, and one with another run took its port
        scene.tell("ready", client_id=client, seat=0, samples=280, new=True)
    for client in ("c0", "c1"):
        scene.settle(client, 1)
        scene.tell("ready", client_id=client, seat=0, samples=280, new=False)  # connected again
        scene.tell("run_over", client_id=client, reason="done", failed=False)
    assert scene.screen.lines()[-1] == "the run is over: done; 1 round, 2 counted, 120.0 kB up"


def test_who_is_asked_to_go_says_that_nothing_is_lost() -> None:
    scene = Scene()
    scene.settle("c0", 1)
    scene.tell("ended", reason="asked by SIGINT", still_at_work=0)
    assert scene.screen.lines()[-1] == (
        "TT  gone, asked by Ctrl-C; 1 round, 1 counted, 60.0 kB up. The same command goes on"
    )


@pytest.mark.parametrize("name", ["update_settled", "run_over", "server_not_reached", "try_again"])
def test_words_of_a_server_do_not_move_the_cursor(name: str) -> None:
    scene = Scene()
    scene.tell(name, client_id="c0", round=1, counted=False, reason="x\x1b[2J\r\ny")
    assert scene.screen.lines()
    assert all(line.isprintable() for line in scene.screen.lines())


def test_the_moment_says_how_far_a_training_is() -> None:
    assert text_of(_at_work([Work(3, 12, 1040)])) == "  trains, step 12 of 1,040"
    assert text_of(_at_work([Work(3, 0, 0)])) == "  trains"
    assert text_of(_at_work([Work(3, 1, 9)] * 40)) == "  40 clients train"


_REFUSED = (
    "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:9300: "
    "Failed to connect to remote host: connect: Connection refused (111)"
)


@pytest.mark.parametrize(
    ("code", "details", "words"),
    [
        (grpc.StatusCode.UNAVAILABLE, _REFUSED, "connection refused"),
        (
            grpc.StatusCode.UNAVAILABLE,
            "DNS resolution failed for x:1: C-ares",
            "no address is known for that name",
        ),
        (grpc.StatusCode.UNAVAILABLE, "Socket closed", "the connection was closed"),
        (grpc.StatusCode.UNAVAILABLE, "recvmsg:Connection reset by peer", "the connection was reset"),
        (grpc.StatusCode.UNAVAILABLE, "something new {grpc_status:14}", "no connection"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", "no answer"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "raw", "gRPC status resource exhausted"),
    ],
)
def test_what_grpc_says_is_told_in_words_of_ours(code: grpc.StatusCode, details: str, words: str) -> None:
    metadata = grpc.aio.Metadata()
    assert in_words(grpc.aio.AioRpcError(code, metadata, metadata, details)) == words
