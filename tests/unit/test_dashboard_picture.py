"""The picture that viewers get: complete at first, then what has changed, and nothing that breaks a page."""

from __future__ import annotations

import json
import math
import pickle
import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from edgeflock.server.journal.reader import Event, Growth, SeatRow
from edgeflock.server.web import members as members_module
from edgeflock.server.web.curves import Curves
from edgeflock.server.web.members import DOINGS, doing
from edgeflock.server.web.picture import Picture, Seen
from edgeflock.server.web.story import KEPT, Story, short
from edgeflock.server.web.tail import News
from edgeflock.v1 import aggregator_pb2
from edgeflock.v1 import control_pb2 as pb

NOW = Seen()
QUARANTINE = aggregator_pb2.Quarantine(until_round=9, reason="non_finite")


def event(cursor: int, name: str, /, **fields: Any) -> Event:
    return Event(cursor, 1e9 + cursor, name, fields)


def committed(round: int, **fields: Any) -> Event:
    return event(round, "round_committed", round=round, counted=2, not_counted={}, seconds=0.5, **fields)


def status(*members: pb.ClientStatus, **fields: Any) -> pb.StatusResponse:
    running = aggregator_pb2.RUN_STATE_RUNNING
    return pb.StatusResponse(
        **{"state": running, "round": 1, "rounds": 9, "clients": 2, "members": members, **fields}
    )


# -------------------------------------------------------------------------------------------- curves


def test_a_viewer_gets_all_rounds_and_then_the_changed_ones() -> None:
    curves = Curves()
    for round in (1, 2, 3):
        curves.put(round, {"loss": 1.0 / round})
    assert curves.since(0) == {"round": [1, 2, 3], "loss": [1.0, 0.5, 0.333333]}
    known = curves.revision
    assert curves.since(known) == {}
    curves.put(2, {"accuracy global": 0.75})
    assert curves.since(known) == {"round": [2], "loss": [0.5], "accuracy global": [0.75]}


def test_a_whole_time_line_takes_the_place_of_what_the_commit_knew() -> None:
    picture = Picture()
    picture.take(News(events=[committed(1, open_s=0.375, commit_s=0.125)]))
    picture.take(News(lines={1: {"open_s": 0.375, "commit_s": 0.25}, 2: {"open_s": 1.0}}))
    rounds = picture.curves.since(0)
    assert (rounds["round"], rounds["commit_s"], rounds["seconds"]) == ([1], [0.25], [0.625])


def test_the_seconds_of_a_run_are_those_of_all_its_rounds() -> None:
    """Also of one that was discarded, of which no line says anything; gathering is no round's time."""
    picture = Picture()
    picture.take(News(seconds={"open_s": 1.5, "commit_s": 0.25, "gather_s": 9.0}))
    assert picture.since(NOW)[0]["run"]["seconds"] == 1.75
    picture.take(News())  # of a page in the midst of a long story
    assert picture.since(NOW)[0]["run"]["seconds"] == 1.75


def test_what_is_not_finite_is_no_number_of_a_curve() -> None:
    curves = Curves()
    curves.put(1, {"loss": math.nan, "tau": math.inf, "name": "x", "flag": True})
    assert curves.since(0) == {"round": [1], "loss": [None], "tau": [None]}


def test_moments_keep_their_seconds() -> None:
    picture = Picture()
    picture.take(News(events=[Event(1, 1_795_025_794.256, "round_committed", {"round": 1})]))
    assert picture.since(NOW)[0]["rounds"]["at"] == [1_795_025_794.26]


def test_rounds_that_were_lost_are_taken_back_and_viewers_begin_anew() -> None:
    picture = Picture()
    picture.take(News(events=[committed(1), committed(2), committed(3)]))
    told, seen = picture.since(NOW)
    assert told["rounds"]["round"] == [1, 2, 3]
    picture.take(News(events=[event(4, "epoch_raised", epoch=1, round=1, lost_up_to=3)]))
    told, _ = picture.since(seen)
    assert (told["fresh"], told["rounds"]["round"]) == (True, [1])


# ------------------------------------------------------------------------------------------- viewers


def test_a_viewer_that_has_everything_gets_the_state_of_the_run_alone() -> None:
    picture = Picture()
    picture.take(News(events=[committed(1)], seats=[SeatRow(0, "a", 5)]))
    told, seen = picture.since(NOW)
    assert (told["fresh"], len(told["clients"]), len(told["events"])) == (True, 1, 1)
    told, again = picture.since(Seen.read(str(seen)))
    assert (set(told), told["fresh"], again) == ({"fresh", "run"}, False, seen)


@pytest.mark.parametrize(
    "text", ["", "nonsense", "a/1/2", "a/1/2/x", "a/1/2/3/4", "a/-1/2/3", f"a/{'9' * 30}/1/1"]
)
def test_an_identifier_that_makes_no_sense_is_that_of_a_new_viewer(text: str) -> None:
    assert Seen.read(text) == Seen()


def test_an_identifier_of_another_process_begins_anew() -> None:
    first, second = Picture(), Picture()
    for picture in (first, second):
        picture.take(News(events=[committed(1)]))
    _, seen = first.since(NOW)
    assert second.since(seen)[0]["fresh"] is True


def test_every_picture_is_json_that_a_browser_parses() -> None:
    picture = Picture()
    poison = {"loss": math.nan, "list": [math.inf, {"deep": -math.inf}], "text": "<script>\u2028</script>"}
    picture.take(News(events=[committed(1, **poison), event(2, "odd", **poison)]))
    picture.observe(status(pb.ClientStatus(client_id="a", online=True)), {"cpu_percent": 1.0})
    text = json.dumps(picture.since(NOW)[0], allow_nan=False)
    assert json.loads(text)["events"][1]["fields"]["list"] == ["inf", {"deep": "-inf"}]


def test_the_state_is_that_of_the_server_or_else_that_of_the_journal() -> None:
    picture = Picture()
    assert picture.state() == "unreachable"
    picture.observe(status(), {})
    assert picture.state() == "running"
    picture.observe(None, {})
    picture.take(News(meta={"ended_kind": "completed", "ended_reason": "all done"}))
    assert (picture.state(), picture.since(NOW)[0]["run"]["reason"]) == ("finished", "all done")


# ------------------------------------------------------------------------------------------- clients


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ({}, "away"),
        ({"online": True}, "waiting"),
        ({"online": True, "seated": True}, "preparing"),
        ({"online": True, "seated": True, "ready": True}, "idle"),
        ({"online": True, "seated": True, "ready": True, "in_cohort": True}, "training"),
        ({"online": True, "seated": True, "ready": True, "quarantine": QUARANTINE}, "quarantined"),
        ({"seated": True, "ready": True, "quarantine": QUARANTINE}, "away"),
        ({"online": True, "seated": True, "ready": True, "in_cohort": True, "upload_size": 9}, "uploading"),
        ({"online": True, "seated": True, "ready": True, "in_cohort": True, "received": True}, "delivered"),
        ({"online": True, "seated": True, "ready": True, "in_cohort": True, "refused": True}, "refused"),
    ],
)
def test_what_a_client_does_is_one_of_the_known_words(fields: dict[str, Any], word: str) -> None:
    assert doing(pb.ClientStatus(**fields), open=True, overdue=False) == word
    assert word in DOINGS


def test_without_an_open_round_nobody_trains_and_without_a_deadline_it_is_overdue() -> None:
    member = pb.ClientStatus(online=True, seated=True, ready=True, in_cohort=True)
    assert doing(member, open=False, overdue=False) == "idle"
    assert doing(member, open=True, overdue=True) == "overdue"


def clients(picture: Picture) -> dict[str, dict[str, Any]]:
    return {shown["id"]: shown for shown in picture.since(NOW)[0].get("clients", [])}


def test_a_client_is_what_the_journal_and_the_server_say_of_it() -> None:
    picture = Picture()
    joined = event(1, "client_joined", client="a", machine="aarch64", cores=4, software="1")
    latest = {"cpu_s": 1.0, "peak_rss_bytes": 7, "bytes_up": 2}
    picture.take(
        News(
            events=[joined],
            seats=[SeatRow(0, "a", 20)],
            settled={0: Growth({"bytes_up": 100, "cpu_s": 3.0}, {"peak_rss_bytes": 6})},
            recent={0: Growth({"bytes_up": 2, "cpu_s": 1.0}, latest)},
            verdicts=[(0, "counted", 4, 4), (0, "late", 1, 5)],
        )
    )
    member = pb.ClientStatus(
        client_id="a",
        seated=True,
        online=True,
        ready=True,
        in_cohort=True,
        steps_done=3,
        steps_total=12,
        samples=20,
    )
    picture.observe(status(member, open=pb.OpenRound(round=6, phase="open", remaining_s=3)), {})
    shown = clients(picture)["a"]
    assert shown["device"] == {"machine": "aarch64", "cores": 4, "software": "1"}
    assert (shown["state"], shown["done"], shown["total"]) == ("training", 3, 12)
    assert (shown["up"], shown["cpu"], shown["rss"]) == (102, 4.0, 7)
    assert (shown["counted"], shown["late"], shown["missed"], shown["verdict"]) == (4, 1, 0, "late")
    assert shown["last_round"] == 5


def test_an_open_round_counts_its_clients_also_those_that_are_away() -> None:
    picture = Picture()
    states = {"a": (True, True), "b": (True, False), "c": (False, False), "d": (False, True)}
    members = [
        pb.ClientStatus(client_id=name, in_cohort=True, online=online, received=received)
        for name, (online, received) in states.items()
    ]
    spare = pb.ClientStatus(client_id="e", online=True)
    picture.observe(status(*members, spare, open=pb.OpenRound(round=6, phase="open")), {})
    told = picture.since(NOW)[0]["run"]["open"]
    assert (told["cohort"], told["here"], told["away"]) == (4, 2, 1)


def test_recent_costs_are_not_added_twice() -> None:
    picture = Picture()
    picture.take(News(seats=[SeatRow(0, "a", 1)]))
    for grown in (1.0, 2.5):
        picture.take(News(recent={0: Growth({"cpu_s": grown}, {"cpu_s": grown})}))
    assert clients(picture)["a"]["cpu"] == 2.5


def test_a_seated_client_that_is_not_there_is_away_and_a_stranger_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(members_module, "_MOST_STRANGERS", 2)
    picture = Picture()
    picture.take(News(seats=[SeatRow(0, "a", 1)]))
    before = picture.generation
    for number in range(4):
        picture.observe(status(pb.ClientStatus(client_id=f"x{number}", online=True)), {})
    assert clients(picture)["a"]["state"] == "away"
    assert picture.generation != before
    assert len(clients(picture)) <= 3
    picture.observe(None, {})
    assert clients(picture)["a"]["state"] == "unknown"


@pytest.mark.parametrize("answers", [True, False])
def test_after_the_end_clients_have_left_whether_the_server_still_answers_or_not(answers: bool) -> None:
    picture = Picture()
    seated = pb.ClientStatus(
        client_id="a", seated=True, online=True, in_cohort=True, steps_total=9, ready=True
    )
    picture.observe(status(seated, open=pb.OpenRound(phase="open", remaining_s=3)), {})
    assert clients(picture)["a"]["state"] == "training"
    picture.take(News(meta={"ended_kind": "completed"}))
    finished = status(pb.ClientStatus(client_id="a", seated=True), state=aggregator_pb2.RUN_STATE_FINISHED)
    picture.observe(finished if answers else None, {})
    assert (clients(picture)["a"]["state"], clients(picture)["a"]["total"]) == ("left", 0)


def test_a_stranger_that_went_does_not_come_back_with_the_end() -> None:
    picture = Picture()
    picture.observe(status(pb.ClientStatus(client_id="x", online=True)), {})
    picture.observe(status(), {})
    picture.take(News(meta={"ended_kind": "completed"}))
    picture.observe(None, {})
    assert clients(picture)["x"]["state"] == "gone"


def test_a_quarantine_is_told_with_its_reason_and_then_no_more() -> None:
    picture = Picture()
    there = partial(pb.ClientStatus, client_id="a", seated=True, online=True, ready=True, bad_updates=5)
    picture.observe(status(there(quarantine=QUARANTINE)), {})
    shown = clients(picture)["a"]
    assert (shown["state"], shown["until"], shown["why"], shown["bad"]) == ("quarantined", 9, "non_finite", 5)
    picture.observe(status(there()), {})
    shown = clients(picture)["a"]
    assert (shown["state"], shown["until"], shown["bad"]) == ("idle", 0, 5)


# --------------------------------------------------------------------------------------------- story


def test_the_page_has_a_sentence_for_every_event_that_the_server_writes() -> None:
    server = Path(members_module.__file__).parents[1]
    sources = "".join(path.read_text("utf-8") for path in server.rglob("*.py") if "console" not in path.parts)
    written = re.findall(r'(?:Announce|note|write_event)\(\s*(?:connection, )?"(\w+)"', sources)
    page = (server / "web" / "static" / "story.js").read_text("utf-8")
    known = set(re.findall(r"^  (\w+): \(", page, re.MULTILINE))
    assert len(written) > 15
    assert {*written, "round_cut", "round_discarded", "run_ended", "round_opened"} - known == set()


def test_many_rounds_do_not_push_other_events_out_of_the_story() -> None:
    story = Story()
    story.add(event(1, "run_paused", reason="why"))
    for cursor in range(2, KEPT + 100):
        story.add(event(cursor, "round_committed", round=cursor))
    told = story.since(0)
    assert (told[0]["name"], len(told)) == ("run_paused", KEPT + 1)
    assert [entry["cursor"] for entry in told] == sorted(entry["cursor"] for entry in told)
    assert [entry["cursor"] for entry in story.since(KEPT + 97)] == [KEPT + 98, KEPT + 99]


def test_refusals_are_kept_by_caller_and_reason_and_not_without_end() -> None:
    story = Story()
    for cursor in range(1, 200):
        story.add(
            event(cursor, "refused", client=f"stranger {cursor % 70}", reason="REASON_BUSY", times=cursor)
        )
    assert len(story.refused_since(0)) == 50
    assert [entry["times"] for entry in story.refused_since(198)] == [199]


def test_long_lists_texts_and_objects_are_cut() -> None:
    value = {"cohort": [f"c{n}" for n in range(200)], "text": "x" * 5000, **{f"k{n}": n for n in range(40)}}
    cut = short(value)
    assert cut["cohort"][-1] == "and 188 more"
    assert (len(cut["text"]), cut["…"]) == (301, "and 30 more")
    most = len(cut) - 1
    for number, words in ((most, {}), (most + 1, {"…": "and 1 more"})):
        whole = {f"k{n}": n for n in range(number)}
        assert {name: value for name, value in short(whole).items() if name == "…"} == words
        assert short(list(whole))[most:] == list(words.values())


# ---------------------------------------------------------------------------------------- a long run


def played(picture: Picture, first: int, last: int) -> None:
    """Let rounds go by, each with all that comes with one."""
    for round in range(first, last + 1):
        told = {"bytes_up": 1000 + round % 7, "bytes_down": 500, "loss": 1.0 / round, "open_s": 0.25}
        cursor = 3 * round
        opened = event(cursor, "round_opened", round=round, cohort=["a", "b"])
        done = Event(cursor + 1, 1e9 + round, "round_committed", {"round": round, "seconds": 0.5, **told})
        tested = event(cursor + 2, "evaluated", round=round, model="global", accuracy=round / 1e6, loss=0.5)
        news = News(events=[opened, done, *([tested] if round % 300 == 0 else [])])
        news.lines = {round: {"open_s": 0.5, "wait_s": 0.5}}
        picture.take(news)


def drawn(picture: Picture) -> dict[int, dict[str, Any]]:
    columns = picture.since(NOW)[0]["rounds"]
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return {row["round"]: row for row in rows}


def test_of_a_long_run_as_much_is_kept_and_drawn_as_there_is_room_for() -> None:
    picture = Picture()
    played(picture, 1, 2000)
    size = len(pickle.dumps(picture))
    played(picture, 2001, 20_000)
    assert len(pickle.dumps(picture)) - size < 2**18
    rows = drawn(picture)
    assert 500 < len(rows) < 1024
    assert set(range(19_745, 20_001)) <= set(rows)  # the newest are all there
    assert set(range(300, 20_001, 300)) <= set(rows)  # and those with a test
    for name, whole in (("bytes_up", sum(1000 + n % 7 for n in range(1, 20_001))), ("seconds", 20_000.0)):
        told = sum((row[name] or 0) + (row.get(f"skipped {name}") or 0) for row in rows.values())
        assert told == pytest.approx(whole, rel=1e-5)


def test_a_viewer_that_has_rows_which_were_left_out_gets_all_rows_anew_and_nothing_else() -> None:
    picture = Picture()
    played(picture, 1, 1023)
    told, seen = picture.since(NOW)
    assert "thinned" not in told
    played(picture, 1024, 1024)
    told, seen = picture.since(seen)
    assert (told["fresh"], told["thinned"], len(told["events"])) == (False, True, 2)
    assert len(told["rounds"]["round"]) == len(picture.curves) < 1024
    assert (told["run"]["drawn"], told["rounds"]["round"][0]) == (2, 1)
    played(picture, 1025, 1025)
    assert picture.since(seen)[0]["rounds"]["round"] == [1025]


def test_the_best_round_is_known_though_it_is_left_out_and_forgotten_when_it_is_taken_back() -> None:
    picture = Picture()
    for round, accuracy in ((1, 0.5), (2, 0.75), (3, 0.625), (4, 0.875)):
        picture.take(News(events=[committed(round), event(9 + round, "evaluated", round=round,
                                                          accuracy=accuracy, loss=1.0)]))  # fmt: skip
    assert picture.since(NOW)[0]["run"]["best"] == (0.875, 4)
    picture.take(News(events=[event(20, "epoch_raised", epoch=1, round=3, lost_up_to=4)]))
    assert picture.since(NOW)[0]["run"]["best"] == (0.75, 2)
