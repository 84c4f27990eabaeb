"""Sessions: one for each client, what a publication wakes, and strangers who shall not fill the memory."""

from __future__ import annotations

import pytest

from edgeflock.server.costs.traffic import TrafficBook
from edgeflock.server.service import sessions as module
from edgeflock.server.service.sessions import CONTEST_S, TAKEOVERS, Contests, DuplicateId, Session, Sessions
from edgeflock.server.service.views import spread_ms


def session(client_id: str, instance: bytes = b"i", *, watching: int = 0, life: bytes = b"") -> Session:
    return Session(client_id, instance, "test", {}, life=life, watching=watching)


def test_a_newer_session_takes_over_the_traffic_and_the_upload_and_wakes_the_older_one() -> None:
    book = TrafficBook()
    all_of_them = Sessions(book)
    old = all_of_them.admit(session("a"))
    old.sent(20, 10)
    new = all_of_them.admit(session("a"))
    assert (old.superseded, old.changed.is_set(), new.superseded) == (True, True, False)
    assert new.traffic is old.traffic is book.of("a")
    new.received(9, 5)
    assert book.moved == 15
    assert (all_of_them.find(old.token), all_of_them.find(new.token)) == (None, new)
    assert all_of_them.by_id("a") is new
    all_of_them.remove(old)  # late
    assert all_of_them.by_id("a") is new
    all_of_them.remove(new)
    assert (all_of_them.by_id("a"), list(all_of_them)) == (None, [])


def test_a_living_id_of_another_instance_is_refused_and_one_that_does_not_watch_is_not() -> None:
    all_of_them = Sessions(TrafficBook())
    all_of_them.admit(session("a", b"1", watching=1))
    with pytest.raises(DuplicateId, match="another living client uses the id 'a'"):
        all_of_them.admit(session("a", b"2"))
    all_of_them.admit(session("b", b"1"))
    all_of_them.admit(session("b", b"2"))


def test_a_publication_wakes_whom_it_concerns() -> None:
    all_of_them = Sessions(TrafficBook())
    three = [all_of_them.admit(session(name)) for name in ("a", "b")]
    three.append(all_of_them.admit(Session("c", b"i", "test", {}, saves="best")))

    def woken() -> list[str]:
        names = [one.client_id for one in three if one.changed.is_set()]
        for one in three:
            one.changed.clear()
        return names

    all_of_them.publish(["b", "not here"])
    assert woken() == ["b"]
    all_of_them.publish([], offered=True)
    assert woken() == ["c"], "who keeps a model hears of a better one"
    all_of_them.publish()
    assert woken() == ["a", "b", "c"]


def test_of_too_many_strangers_the_oldest_that_does_not_watch_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "MOST_STRANGERS", 2)
    book = TrafficBook()
    all_of_them = Sessions(book)

    def here(free: int = 0) -> list[str]:
        all_of_them.forget_strangers(lambda client_id: client_id.startswith("seated"), free)
        return [one.client_id for one in all_of_them]

    for name in ("seated-1", "watching", "x1"):
        all_of_them.admit(session(name, watching=name == "watching"))
        book.of(name).sent(9, 5)
    assert here() == ["seated-1", "watching", "x1"]
    all_of_them.admit(session("seated-2"))
    assert len(here()) == 4, "whoever has a seat is no stranger"
    all_of_them.admit(session("x2"))
    assert len(here(free=1)) == 5, "a seat is free: one more may be on its way to it"
    all_of_them.admit(session("x3"))
    assert here() == ["seated-1", "watching", "seated-2", "x2", "x3"]
    assert book.moved == 2 * 5, "what a stranger has moved is nobody's"
    for number in range(9):
        all_of_them.admit(session(f"w{number}", watching=1))
    assert len(here()) == 14, "who watches may still take a seat"
    assert all_of_them.unwatch(all_of_them.admit(session("x4", watching=1))) is all_of_them.by_id("x4")
    assert "x2" not in here(), "who watches no more is one of them"
    assert {"x3", "x4"} <= set(here())


def test_a_roster_of_thousands_finds_room_on_its_way_from_join_to_watch() -> None:
    all_of_them, clients = Sessions(TrafficBook()), 3 * module.MOST_STRANGERS
    for number in range(clients):
        all_of_them.admit(session(f"c{number}"))
        all_of_them.forget_strangers(lambda client_id: False, clients)
    for one in all_of_them:
        all_of_them.watch(one)
    assert len(list(all_of_them)) == clients
    for number in range(clients):
        stranger = all_of_them.admit(session(f"x{number}"))
        all_of_them.forget_strangers(lambda client_id: client_id[0] == "c", 0)
        assert all_of_them.by_id(stranger.client_id) is stranger, "the newest is never forgotten at once"
    assert len(list(all_of_them)) == clients + module.MOST_STRANGERS, "a flood stays bounded"


@pytest.mark.parametrize(
    ("clients", "seconds"), [(0, 0), (8, 0.08), (200, 2), (2_000, 10), (10_000, 20), (100_000, 200)]
)
def test_a_herd_has_the_more_time_to_come_back_the_larger_it_is(clients: int, seconds: float) -> None:
    assert spread_ms(clients) == seconds * 1000


def test_takeovers_of_a_minute_make_a_contest_which_lasts_a_minute() -> None:
    now = 1000.0
    contests = Contests(lambda: now)
    for _ in range(TAKEOVERS - 1):
        contests.take("a")
    now += CONTEST_S  # as long ago as may be
    assert "a" not in contests
    contests.take("a")
    assert "a" in contests
    assert "b" not in contests
    now += CONTEST_S - 1
    assert "a" in contests
    now += 1
    assert "a" not in contests
    contests.take("a")
    assert "a" in contests, "the next time once is enough"


def test_takeovers_that_are_seldom_make_none() -> None:
    now = 1000.0
    contests = Contests(lambda: now)
    for _ in range(3 * TAKEOVERS):
        now += CONTEST_S / (TAKEOVERS - 1.5)
        contests.take("a")
        assert "a" not in contests


def test_in_a_contest_nobody_is_let_in_until_the_run_is_over() -> None:
    all_of_them = Sessions(TrafficBook())
    for number in range(TAKEOVERS):
        all_of_them.admit(session("a", watching=1, life=b"%d" % number))
    with pytest.raises(DuplicateId, match="two living clients with the id 'a' take it from each other"):
        all_of_them.admit(session("a", watching=1, life=b"x"))
    all_of_them.admit(session("a", watching=1, life=b"y"), over=True)


def test_a_client_that_comes_back_takes_its_own_session_over_as_often_as_it_likes() -> None:
    all_of_them = Sessions(TrafficBook())
    for _ in range(3 * TAKEOVERS):
        all_of_them.admit(session("a", watching=1, life=b"1"))
