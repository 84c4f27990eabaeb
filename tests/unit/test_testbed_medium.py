"""The medium of a testbed, stepped by hand: one air for all and both ways, cables, turns, order and loss."""

from __future__ import annotations

import pytest

from edgeflock.lab.testbed.medium import SERVER, Ether, LinkTerms, Packet

AIR, CABLE = LinkTerms(rate=8e6), LinkTerms(rate=1e12)
SIZE = 986  # with its header it takes a millisecond of the air


def packet(sender: int, receiver: int, mark: int = 0) -> Packet:
    return Packet(sender, receiver, bytes([mark]) * SIZE)


def carried(ether: Ether, *packets: Packet, until: float = 10.0) -> list[tuple[float, Packet]]:
    """Return what arrives, and when, if all are sent at once."""
    for one in packets:
        ether.send(one, 0.0)
    return ether.due(until)


def times(found: list[tuple[float, Packet]]) -> list[float]:
    return [round(at, 6) for at, _ in found]


def test_all_devices_and_both_ways_share_one_air() -> None:
    ether = Ether(AIR, CABLE, shared=True)
    found = carried(ether, packet(0, SERVER), packet(1, SERVER), packet(SERVER, 0), packet(2, SERVER))
    assert times(found) == [0.001, 0.002, 0.003, 0.004]
    assert ether.tally.busy_s == pytest.approx(0.004)


def test_devices_with_cables_disturb_nobody() -> None:
    ether = Ether(AIR, CABLE, shared=False)
    found = carried(ether, packet(0, SERVER), packet(1, SERVER), packet(SERVER, 0))
    assert times(found) == [0.001, 0.001, 0.001]


def test_who_sends_much_waits_for_who_sends_little() -> None:
    ether = Ether(AIR, CABLE, shared=True)
    found = carried(ether, *(packet(0, SERVER) for _ in range(5)), packet(1, SERVER))
    assert [one.sender for _, one in found] == [0, 1, 0, 0, 0, 0] or [one.sender for _, one in found][2] == 1
    assert times(found)[-1] == 0.006


def test_jitter_keeps_the_order_of_what_goes_to_one_receiver() -> None:
    ether = Ether(LinkTerms(rate=8e6, delay=0.003, jitter=0.05), CABLE, shared=True)
    found = carried(ether, *(packet(0, SERVER, mark) for mark in range(50)))
    assert [one.data[0] for _, one in found] == list(range(50))
    assert all(at >= 0.003 + 0.001 * (number + 1) for number, at in enumerate(times(found)))


def test_a_full_queue_drops_and_is_its_sender_s_alone() -> None:
    ether = Ether(LinkTerms(rate=8e6, queue=3000), CABLE, shared=True)
    found = carried(ether, *(packet(0, SERVER) for _ in range(10)), packet(1, SERVER))
    assert [one.sender for _, one in found].count(0) == 3
    assert [one.sender for _, one in found].count(1) == 1
    assert ether.tally.dropped == 7


def test_the_server_s_side_of_the_air_has_room_for_every_device() -> None:
    ether = Ether(LinkTerms(rate=8e6, queue=3000), CABLE, shared=True)
    found = carried(ether, *(packet(SERVER, device) for device in range(5) for _ in range(3)))
    assert [one.receiver for _, one in found].count(4) == 3
    assert ether.tally.dropped == 0


def test_loss_takes_about_its_share() -> None:
    ether = Ether(LinkTerms(rate=8e9, loss=0.1, queue=10_000_000), CABLE, shared=True)
    found = carried(ether, *(packet(0, SERVER) for _ in range(2000)))
    assert len(found) + ether.tally.lost == 2000
    assert 150 < ether.tally.lost < 250


def test_a_late_look_costs_no_rate() -> None:
    """Whoever wakes up late finds what has arrived since at its own times, and the air goes on from there."""
    ether = Ether(AIR, CABLE, shared=True)
    for number in range(3):
        ether.send(packet(0, SERVER), 0.0002 * number)
    assert times(ether.due(5.0)) == [0.001, 0.002, 0.003]
    ether.send(packet(0, SERVER), 5.0)
    assert ether.next_at == pytest.approx(5.001)
    assert ether.due(5.0005) == []


def test_neighbours_reach_each_other_by_the_air_alone() -> None:
    assert times(carried(Ether(AIR, LinkTerms(rate=1.0), shared=True), packet(0, 1))) == [0.001]
