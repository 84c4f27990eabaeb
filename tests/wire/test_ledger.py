"""The ledger of real runs adds up, and nothing of it is lost when a server is stopped, or a write fails."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Mapping
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgeflock.common.errors import JournalBroken
from edgeflock.lab.history import TIME_LINE, bundle_rows, client_rows, read
from edgeflock.server.costs.budget import Budget
from edgeflock.server.costs.rows import Costs
from edgeflock.server.engine import bookkeeping
from edgeflock.server.journal.events import write_event
from edgeflock.server.journal.journal import Journal
from edgeflock.v1 import aggregator_pb2 as pb
from support import processes
from support.commands import run
from support.rows import rows
from support.tiny_run import Made
from support.tiny_server import WAIT_S, Home, Served, serve

ROUNDS = 120  # some seconds: the last report and the last line of the log are milliseconds apart


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run of two processes, one of which hosts two clients, and what was shown of it."""
    run_dir = tmp_path_factory.mktemp("ledger") / "run"
    words = ["run", "--method=fedtrip", "--clients=3", "--processes=2", f"--rounds={ROUNDS}", "--model=mlp"]
    words += [
        f"--run-dir={run_dir}",
        "--cohort=2",
        "--codec=int8",
        "--partition=dirichlet:0.5",
        "--eval-blocking",
    ]
    done = run("fl-lab", *words, FL_CLIENT_WATTS="4")
    assert (done.returncode, done.stderr) == (0, "")
    return run_dir, done.stdout


def test_the_server_s_time_line_is_its_wall_time(made: tuple[Path, str]) -> None:
    journal = made[0] / "journal.sqlite"
    names = ", ".join(f"'{name}'" for name in ("gather_s", *TIME_LINE))
    ((line,),) = rows(journal, f"SELECT sum(value) FROM round_costs WHERE name IN ({names})")
    at = dict(rows(journal, "SELECT name, at FROM events WHERE name IN ('run_started', 'run_ended')"))
    assert line == pytest.approx(at["run_ended"] - at["run_started"], rel=0.02)
    shown = dict(rows(journal, "SELECT name, count(*) FROM round_costs GROUP BY name"))
    for name in ("select_s", "open_s", "fold_s", "commit_s", "evaluate_s", "server_cpu_s", "server_flops"):
        assert shown[name] == ROUNDS, name


def test_the_cpu_seconds_of_the_books_are_those_of_the_budget(tmp_path: Path) -> None:
    """With what the server does after the last commit: its last test of the model is most of this run."""
    with processes.flock(tmp_path) as flock:
        server = flock.server("--rounds=1", "--clients=1", "--model=lenet5", "--steps=1")
        client = flock.client("c0")
        assert (server.ended(), client.ended()) == (0, 0)
        ((own,),) = flock.rows("SELECT sum(value) FROM round_costs WHERE name = 'server_cpu_s'")
        ((clients,),) = flock.rows("SELECT sum(cpu_s) FROM costs")
        ((used,),) = flock.rows("SELECT value FROM meta WHERE name = 'used_cpu'")
    assert own + clients == pytest.approx(float(used), rel=0.02)


def test_a_client_s_time_line_is_its_wall_time(made: tuple[Path, str]) -> None:
    """From the start of its process to the end of the run, also if it had no task in the last rounds."""
    spent = {row["client"]: 0.0 for row in client_rows(made[0])}
    for row in client_rows(made[0]):
        assert row["epoch"] == 0
        spent[row["client"]] += row["fetch_s"] + row["train_s"] + row["deliver_s"] + row["wait_s"]
    checked = 0
    for log in (made[0] / "logs").glob("client-*.jsonl"):
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        started = next(line for line in lines if line["event"] == "client_started")
        for client in started["clients"]:
            over = next(line for line in lines if line["event"] == "run_over" and line["client_id"] == client)
            wall = (_at(over) - _at(started)).total_seconds()
            assert spent[client] == pytest.approx(wall, rel=0.02), client
            checked += 1
    assert checked == len(spent) == 3


def _at(line: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(line["timestamp"])


def test_bytes_by_bundle_add_up_to_the_payload(made: tuple[Path, str]) -> None:
    payload: dict[tuple[int, str, str], int] = {}
    for row in client_rows(made[0]):
        for way in ("down", "up"):
            payload[row["round"], row["client"], way] = row[f"bytes_{way}"]
            assert row[f"bytes_{way}"] < row[f"message_bytes_{way}"] < row[f"wire_bytes_{way}"]
    told: dict[tuple[int, str, str], int] = {}
    for row in bundle_rows(made[0]):
        key = row["round"], row["client"], row["direction"]
        told[key] = told.get(key, 0) + row["bytes"]
        expected = ("down", "model", "identity"), ("up", "delta", "int8")
        assert (row["direction"], row["kind"], row["codec"]) in expected
    assert told == payload


def test_operations_are_those_of_the_work(made: tuple[Path, str]) -> None:
    """An MLP of 64-100-10: two for every weight forward, again backward, and the way to its first layer."""
    forward, backward, weights = 2 * 7400, 2 * (7400 + 1000), 7510
    for row in client_rows(made[0]):
        assert row["method_flops"] == 4 * row["steps"] * weights
        assert row["flops"] == row["samples_done"] * (forward + backward) + row["method_flops"]


TABLE_5 = """
SELECT round,
  sum(samples_done * (SELECT value FROM meta WHERE name = 'forward_flops') / 2.0
      + method_flops - method_pass_flops / 2.0)
FROM costs GROUP BY round ORDER BY round
"""
FORWARD, STEPS, WEIGHTS = 600 * 79_400, 12, 79_510  # multiply-adds of a round's samples; |w|


@pytest.mark.parametrize(
    ("method", "rounds", "first", "own", "gflops"),
    [
        ("fedtrip", 28, 4 * STEPS * WEIGHTS, 4 * STEPS * WEIGHTS, 1.441),
        ("fedavg", 49, 0, 0, 2.334),
        ("moon", 25, 0, 2 * FORWARD, 3.573),  # by the paper's formula; at first it has no model of its own
    ],
)
def test_fedtrip_s_table_5_is_recomputed_from_the_journal(
    tmp_path: Path, method: str, rounds: int, first: int, own: int, gflops: float
) -> None:
    """Its MLP, one client of its 600 samples: every round of a real run costs what the paper's do."""
    random = np.random.default_rng(1)
    x = random.random((600, 1, 28, 28), np.float32)
    np.savez(tmp_path / "own.npz", x=x, y=np.arange(600) % 10)
    with processes.flock(tmp_path) as flock:
        flags = (f"--method={method}", "--clients=1", "--rounds=2", "--model=mlp", "--batch-size=50")
        server = flock.server(*flags, "--eval-every=0", f"--eval-data={tmp_path / 'own.npz'}")
        client = flock.client("c0", f"--data={tmp_path / 'own.npz'}")
        assert [server.ended(), client.ended()] == [0, 0]
        assert flock.rows(TABLE_5) == [(1, FORWARD + first), (2, FORWARD + own)]
    assert round(rounds * (FORWARD + own) / 1e9, 3) == gflops


def test_energy_is_a_model_and_says_so(made: tuple[Path, str]) -> None:
    for row in client_rows(made[0]):
        assert row["energy_source"] == "model"
        active = row["fetch_s"] + row["train_s"] + row["deliver_s"]
        assert row["energy_j"] == pytest.approx(4.0 * active, rel=1e-6)
    history = read(made[0])
    assert history.rounds[-1].spent["energy_j"] == pytest.approx(
        sum(row["energy_j"] for row in client_rows(made[0]))
    )


def test_the_end_of_a_run_shows_what_it_took(made: tuple[Path, str]) -> None:
    shown = {line.split("  ")[0].strip(): line for line in made[1].splitlines() if "  " in line}
    assert "FLOP at the clients" in shown["operations"]
    assert shown["energy, 3 clients"].endswith("J (as --watts states it)")


# ------------------------------------------------------------------------------------------ what may be lost


def costs(home: Home, what: str, round: int = 1) -> list[tuple[Any, ...]]:
    return home.rows(f"SELECT {what} FROM costs WHERE round = {round} ORDER BY seat")


def bundles(home: Home) -> list[tuple[Any, ...]]:
    query = "SELECT direction, sum(bytes) FROM bundle_bytes WHERE seat = 0 GROUP BY direction"
    return home.rows(query)


def test_a_round_that_outlives_its_server_keeps_its_books(tmp_path: Path) -> None:
    """What both lives moved is in the one row, and what the first one was told."""
    home = Home(tmp_path, clients=2, rounds=1)
    size = 0

    async def first(served: Served) -> None:
        nonlocal size
        peers = await served.gather()
        await served.fetch_model(peers[0])
        made = served.made(0)
        size = len(made.payload)
        upload = peers[0].upload()
        header = made.header(peers[0].session, 1)
        header.cost.CopyFrom(pb.TrainCost(train_s=2.5, samples_done=30))
        await upload.send(header=header)
        answer = await upload.feed(made.payload, (await upload.read()).credit, 1 << 20, None)
        assert answer.HasField("received")

    async def second(served: Served) -> None:
        peers = await served.gather()
        assert (await peers[1].deliver(served.made(1))).HasField("received")
        await served.run.committed(1)

    serve(home, first)
    ((down, up, train_s), *_) = costs(home, "bytes_down, bytes_up, train_s")
    assert (up, train_s, down >= size) == (size, 2.5, True)
    serve(home, second)
    assert costs(home, "bytes_up, resent_bytes, train_s") == [(size, 0, 2.5), (size, 0, 0.0)]
    ((again, _), _) = costs(home, "bytes_down, bytes_up")
    assert bundles(home) == [("down", again), ("up", size)]


def test_a_killed_server_s_spool_tells_what_had_arrived(tmp_path: Path) -> None:
    """Its counters are gone, all of one client, of the other those of the last bytes; what lies in the spool
    was moved."""
    home = Home(tmp_path, clients=2, rounds=1)
    made: list[Made] = []

    async def first(served: Served) -> None:
        peers = await served.gather()
        made.extend(served.made(seat) for seat in (0, 1))
        assert (await peers[0].deliver(made[0])).HasField("received")
        upload = peers[1].upload()
        await upload.send(header=made[1].header(peers[1].session, 1))
        await upload.feed(made[1].payload, (await upload.read()).credit, 10, 170)
        async with asyncio.timeout(WAIT_S):
            while served.held(1) < 170:
                await peers[1].report(progress=pb.Progress())

    async def second(served: Served) -> None:
        peers = await served.gather()
        await peers[1].deliver(made[1])
        await served.run.committed(1)

    serve(home, first)
    for table in ("costs", "bundle_bytes"):  # as if it had been killed before it wrote them
        home.change(f"DELETE FROM {table} WHERE seat = 0")
    home.change("UPDATE costs SET bytes_up = 150 WHERE seat = 1")  # or before it wrote all
    home.change("UPDATE bundle_bytes SET bytes = 150 WHERE kind = 'delta' AND seat = 1")
    home.change("DELETE FROM bundle_bytes WHERE kind <> 'delta' AND direction = 'up' AND seat = 1")
    serve(home, second)
    assert costs(home, "bytes_up, resent_bytes") == [(len(one.payload), 0) for one in made]
    sizes = sorted((str(section.kind), section.size_bytes) for section in made[0].package.sections)
    statement = "SELECT kind, bytes FROM bundle_bytes WHERE direction = 'up' AND seat = {} ORDER BY kind"
    assert [home.rows(statement.format(seat)) for seat in (0, 1)] == [sizes, sizes]


@pytest.mark.parametrize("limits", [{}, {"time": 1000.0}], ids=["no budget", "a budget"])
def test_the_open_round_is_written_down_while_bytes_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: dict[str, float]
) -> None:
    """Its books and its seconds: the watch over budgets writes, too."""
    monkeypatch.setattr(bookkeeping, "KEEP_S", 0.01)
    monkeypatch.setattr(bookkeeping, "WATCH_S", 0.01)
    home = Home(tmp_path, clients=2, budget=Budget(limits))

    def seconds() -> dict[str, float]:
        return dict(home.rows("SELECT name, value FROM round_costs WHERE round = 1"))

    async def talk(served: Served) -> None:
        peers = await served.gather()
        made = served.made(0)
        await peers[0].deliver(made)
        async with asyncio.timeout(WAIT_S):
            while costs(home, "bytes_up") != [(len(made.payload),), (0,)]:
                await peers[1].report(progress=pb.Progress())
            while not {"gather_s", "open_s"} <= seconds().keys():
                await peers[1].report(progress=pb.Progress())
        assert served.run.now.committed == 0

    serve(home, talk)


def test_the_bytes_of_a_discarded_round_were_paid(tmp_path: Path) -> None:
    home = Home(tmp_path, clients=2)

    async def talk(served: Served) -> None:
        peers = await served.gather()
        made = served.made(0)
        await peers[0].deliver(made)
        await served.run.intake.stop("enough")
        await served.run.until(lambda: served.run.now.ending is not None)
        assert costs(home, "bytes_up") == [(len(made.payload),), (0,)]

    serve(home, talk)


def test_what_a_client_states_of_a_discarded_round_stays_in_the_books(tmp_path: Path) -> None:
    """Its last report comes after the end; what its header had stated does not take its place again."""
    home = Home(tmp_path, clients=2)

    async def talk(served: Served) -> None:
        peers = await served.gather()
        made, upload = served.made(0), peers[0].upload()
        header = made.header(peers[0].session, 1)
        header.cost.cpu_s = 1.0
        await upload.send(header=header)
        await upload.feed(made.payload, (await upload.read()).credit, 1 << 20, None)
        await served.run.intake.stop("enough")
        await served.run.until(lambda: served.run.now.ending is not None)
        assert costs(home, "cpu_s") == [(1.0,), (None,)]
        assert not (await peers[0].report(cost=pb.RoundCost(round=1, cpu_s=1.5))).HasField("refusal")

    serve(home, talk)
    assert costs(home, "cpu_s") == [(1.5,), (None,)]


def test_many_reports_after_the_end_are_few_notes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each would hold the books of all clients."""
    monkeypatch.setattr(bookkeeping, "KEEP_S", 1000.0)  # none but the last
    home = Home(tmp_path, clients=2)
    notes: list[int] = []
    keep = Journal.keep

    def counted(self: Journal, costs: Costs) -> Future[None]:
        notes.append(len(costs.pending.late))
        return keep(self, costs)

    async def talk(served: Served) -> None:
        await served.gather()
        await served.run.intake.stop("enough")
        await served.run.until(lambda: served.run.now.ending is not None)
        monkeypatch.setattr(Journal, "keep", counted)
        for told in range(100):
            served.run.intake.stated(f"c{told % 2}", 1, {"cpu_s": float(told)})

    serve(home, talk)
    assert costs(home, "cpu_s") == [(98.0,), (99.0,)]
    assert notes == [2]


def test_a_report_after_the_end_does_not_wait_for_the_last_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who lingers may be killed: the next note takes it along."""
    monkeypatch.setattr(bookkeeping, "KEEP_S", 0.01)
    home = Home(tmp_path, clients=2)

    async def talk(served: Served) -> None:
        peers = await served.gather()
        await served.run.intake.stop("enough")
        await served.run.until(lambda: served.run.now.ending is not None)
        assert not (await peers[0].report(cost=pb.RoundCost(round=1, cpu_s=1.5))).HasField("refusal")
        async with asyncio.timeout(WAIT_S):
            while costs(home, "cpu_s") != [(1.5,), (None,)]:
                await peers[0].report(progress=pb.Progress())

    serve(home, talk)


def test_who_says_goodbye_in_mid_round_leaves_its_bytes_in_the_books(tmp_path: Path) -> None:
    home = Home(tmp_path, clients=2, rounds=1, min_updates=1)

    async def talk(served: Served) -> None:
        peers = await served.gather()
        package, _ = await served.fetch_model(peers[1])
        refusal = pb.Refusal(reason=pb.REASON_REFUSED_BY_CLIENT, sentence="going")
        await peers[1].report(refused=pb.TaskRefused(round=1, refusal=refusal))
        await peers[1].stub.Leave(pb.LeaveRequest(session=peers[1].session), timeout=WAIT_S)
        await peers[0].deliver(served.made(0))
        await served.run.committed(1)
        assert costs(home, "bytes_down") == [(package.size_bytes,), (2 * package.size_bytes,)]

    serve(home, talk)


def test_a_late_cost_survives_a_transaction_that_is_rolled_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path, clients=2, rounds=3)

    async def talk(served: Served) -> None:
        peers = await served.gather()
        await served.finish_round(peers)
        await served.run.open(2)
        assert not (await peers[0].report(cost=pb.RoundCost(round=1, wait_s=1.25))).HasField("refusal")
        failed: list[int] = []

        def write(connection: sqlite3.Connection, name: str, fields: Mapping[str, object]) -> None:
            write_event(connection, name, fields)
            if name == "round_committed" and not failed:  # all was written, and then the disk was full
                failed.append(2)
                raise sqlite3.OperationalError("database or disk is full")

        monkeypatch.setattr("edgeflock.server.journal.journal.write_event", write)
        await served.finish_round(peers)
        assert failed == [2]
        assert costs(home, "wait_s") == [(1.25,), (None,)]
        up = [bytes_up for (bytes_up,) in costs(home, "bytes_up", 2)]
        assert up == [len(served.made(0).payload)] * 2

    serve(home, talk)


def test_costs_are_taken_only_of_a_client_s_last_two_rounds(tmp_path: Path) -> None:
    home = Home(tmp_path, clients=2, rounds=5)

    async def talk(served: Served) -> None:
        peers = await served.gather()
        for number in (1, 2, 3):
            await served.run.open(number)
            await served.finish_round(peers)
        for round in (0, 1, 2, 3, 4, 2**64 - 1):
            cost = pb.RoundCost(round=round, wait_s=7.0)
            assert not (await peers[0].report(cost=cost)).HasField("refusal")
        await served.run.open(4)
        await served.finish_round(peers)
        query = "SELECT round FROM costs WHERE wait_s = 7 ORDER BY round"
        assert home.rows(query) == [(2,), (3,)]

    serve(home, talk)


def test_a_broken_journal_is_not_hidden_by_the_ledger(tmp_path: Path) -> None:
    """What `writing` hands out stays due when its transaction fails."""
    home = Home(tmp_path, clients=2)

    async def talk(served: Served) -> None:
        await served.gather()
        ledger = served.run.means.bookkeeping.ledger
        ledger.add_late(1, 0, {"wait_s": 3.0})
        with pytest.raises(JournalBroken), ledger.writing() as pending:
            raise JournalBroken(OSError("gone"))
        with ledger.writing() as again:
            pass
        assert again.late == pending.late == {(1, 0): {"wait_s": 3.0}}
        total = sum(sum(values.values()) for values in pending.seconds.values())
        assert sum(sum(values.values()) for values in again.seconds.values()) >= total > 0

    serve(home, talk)
