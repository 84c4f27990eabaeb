"""The estimate of what a message is on the wire."""

from __future__ import annotations

import pytest

from edgeflock.common.wire.framing import framed


@pytest.mark.parametrize(
    ("message", "wire"),
    [
        (0, 14 + 66),  # a message of nothing is a packet
        (1448 - 14, 1448 + 66),  # the largest in one packet
        (1448 - 13, 1449 + 2 * 66),
        (16_384 - 5, 16_384 + 9 + 12 * 66),  # the largest in one frame
        (16_384 - 4, 16_385 + 18 + 12 * 66),
    ],
)
def test_a_message_has_its_prefix_frames_and_packets(message: int, wire: int) -> None:
    assert framed(message) == wire


def test_a_large_message_takes_five_hundredths_more() -> None:
    assert 1.045 < framed(1 << 20) / (1 << 20) < 1.047
