"""What viewers get of very many clients: counts, sums and how they spread, and a page of those they want."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgeflock.common.command.crowd import EVERYBODY
from edgeflock.common.errors import BadValue
from edgeflock.server.journal.reader import Event, SeatRow
from edgeflock.server.web.picture import Picture, Seen
from edgeflock.server.web.selection import ORDERS, VIEWS, Wanted, gathered, selected
from edgeflock.server.web.tail import News, Tail
from edgeflock.server.web.timeline import read_round
from edgeflock.v1 import aggregator_pb2
from edgeflock.v1 import control_pb2 as pb
from support.large_run import LargeRun, large_run

STATIC = Path(__file__).parents[2] / "server" / "edgeflock" / "server" / "web" / "static"


def client(seat: int, **values: Any) -> dict[str, Any]:
    return {"id": f"c{seat}", "seat": seat, "state": "idle", **values}


def seated(count: int) -> News:
    return News(seats=[SeatRow(seat, f"c{seat}", 5) for seat in range(count)])


def ids(found: dict[str, Any]) -> list[str]:
    return [one["id"] for one in found["clients"]]


# ---------------------------------------------------------------------------------------- a page


def test_a_page_holds_so_many_and_says_how_many_there_are() -> None:
    clients = [client(seat) for seat in range(2 * EVERYBODY + 5)]
    first = selected(clients, Wanted())
    assert (first["found"], first["skip"], ids(first)) == (105, 0, [f"c{seat}" for seat in range(50)])
    last = selected(clients, Wanted(skip=10**9))
    assert (last["skip"], ids(last)) == (100, [f"c{seat}" for seat in range(100, 105)])
    assert selected([], Wanted(skip=7)) == {"found": 0, "skip": 0, "clients": []}


def test_whoever_is_wanted_is_found_by_state_and_by_a_part_of_the_id() -> None:
    clients = [
        client(1, state="training"),
        client(21, state="training"),
        client(12),
        client(13, state="gone"),
    ]
    assert ids(selected(clients, Wanted(show="training"))) == ["c1", "c21"]
    assert ids(selected(clients, Wanted(find="C1"))) == ["c1", "c12"]
    assert ids(selected(clients, Wanted(show="training", find="2"))) == ["c21"]


def test_the_most_come_first_and_of_equal_ones_the_lower_seat() -> None:
    clients = [client(3, up=5), client(1), client(2, up=9, late=1), client(0, up=5, missed=2)]
    assert ids(selected(clients, Wanted(by="up"))) == ["c2", "c0", "c3", "c1"]
    assert ids(selected(clients, Wanted(by="last update"))) == ["c0", "c2", "c1", "c3"]
    assert ids(selected(clients, Wanted(by="client", down=True))) == ["c3", "c2", "c1", "c0"]


@pytest.mark.parametrize(("show", "by"), [("nobody", "client"), ("all", "name")])
def test_what_there_is_not_is_refused_in_a_sentence(show: str, by: str) -> None:
    with pytest.raises(BadValue, match="allowed is one of"):
        Wanted(show=show, by=by)


def test_the_page_asks_by_the_names_that_the_server_knows() -> None:
    """The browser's choices and headings are the server's views and orders."""
    script = (STATIC / "clients.js").read_text("utf-8")
    views = script[script.index("const working") : script.index("const COLUMNS")]
    assert [name for name in VIEWS if f'"{name}"' not in views] == []
    columns = script[script.index("const COLUMNS") : script.index("const share")].lower()
    assert [name for name in ORDERS if f'["{name}", ' not in columns] == []


# ------------------------------------------------------------------------------------ all together


def test_all_together_are_counted_added_up_and_told_by_version() -> None:
    device = {"software": "1.0", "torch": "2.9.1", "machine": "aarch64"}
    found = gathered(
        [
            client(0, state="training", up=5, cpu=1.5, device=device, energy=2.0, energy_source="model"),
            client(1, state="away", up=7, device=device | {"software": "0.9"}, until=9),
            {"id": "stranger", "state": "waiting", "up": 3},
            client(3, state="gone"),
        ]
    )
    assert {name: many for name, many in found["views"].items() if many} == {
        "all": 3, "online": 2, "training": 1, "away": 1, "quarantined": 1,
    }  # fmt: skip
    assert (found["seated"], found["seated_here"], found["up"], found["cpu"]) == (2, 1, 12, 1.5)
    assert (found["energy"], found["sources"]) == (2.0, ["model"])
    assert found["versions"]["software"] == [("0.9", 1), ("1.0", 1)]
    assert found["versions"]["torch"] == [("2.9.1", 2)]
    assert "spread" not in found


def test_how_a_crowd_spreads_is_told_of_what_is_known() -> None:
    found = gathered([client(seat, up=seat) for seat in range(101)])
    assert found["spread"] == {"up": [0, 10, 50, 90, 100]}


def test_each_of_few_is_told_and_of_a_crowd_none() -> None:
    picture = Picture()
    picture.take(seated(EVERYBODY))
    told, seen = picture.since(Seen())
    assert (len(told["clients"]), told["crowd"]["each"]) == (EVERYBODY, True)
    picture.take(seated(EVERYBODY + 1))
    told, seen = picture.since(seen)
    assert ("clients" in told, told["crowd"]["each"], told["crowd"]["views"]["all"]) == (False, False, 51)
    assert "crowd" not in picture.since(seen)[0]


def test_once_too_many_they_are_not_told_one_by_one_again() -> None:
    """A viewer would not know of those that did not change since."""
    picture = Picture()
    members = [pb.ClientStatus(client_id=f"guest{number}", online=True) for number in range(EVERYBODY + 1)]
    running = aggregator_pb2.RUN_STATE_GATHERING
    picture.observe(pb.StatusResponse(state=running, members=members), {})
    picture.observe(pb.StatusResponse(state=running, members=members[:3]), {})
    told = picture.since(Seen())[0]
    assert ("clients" in told, told["crowd"]["views"]["all"]) == (False, 3)


def test_devices_of_all_seats_are_known_however_many_strangers_came() -> None:
    picture = Picture()
    picture.members.seats = count = 3000
    picture.about = type(picture.about)(clients=count)
    joins = [Event(n, 1.0, "client_joined", {"client": f"c{n}", "machine": "arm"}) for n in range(count)]
    picture.take(News(events=joins, seats=seated(count).seats))
    assert picture.members.gathered()["versions"]["machine"] == [("arm", count)]


# -------------------------------------------------------------------------------------- a large run


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return large_run(tmp_path_factory.mktemp("large"), LargeRun(300, cohort=100, rounds=2))


def test_the_picture_of_a_large_run_is_as_large_as_that_of_a_small_one(run_dir: Path, tmp_path: Path) -> None:
    sizes = []
    for path in (run_dir, large_run(tmp_path, LargeRun(EVERYBODY + 1, cohort=20, rounds=2))):
        picture, tail = Picture(), Tail(path)
        while (news := tail.look()) is not None:
            picture.take(news)
        tail.close()
        told = picture.since(Seen())[0]
        sizes.append(len(json.dumps({"crowd": told["crowd"], "rounds": told["rounds"]})))
    assert abs(sizes[0] - sizes[1]) < 300


def test_of_a_large_round_those_that_took_longest_are_shown(run_dir: Path) -> None:
    found = read_round(run_dir, 1)
    assert found is not None
    assert (found["count"], found["found"], len(found["members"]), found["complete"]) == (100, 100, 50, True)
    assert sum(many for _, many in found["verdicts"]) == 100
    trained = [member["train_s"] for member in found["members"]]
    assert trained == sorted(trained, reverse=True)
    assert trained[0] == found["spread"]["train_s"][-1]
    some = read_round(run_dir, 1, "c1")
    assert some is not None
    assert some["members"]
    assert all("c1" in member["id"] for member in some["members"])
