"""How many bytes a gRPC message is on an Ethernet: an estimate of what an interface counts. Pure."""

from __future__ import annotations

MESSAGE_PREFIX = 5  # of gRPC: compressed or not, length
FRAME_HEADER, FRAME = 9, 16_384  # of HTTP/2: a DATA frame's header, and the most that one holds
SEGMENT = 1500 - 20 - 32  # payload of a full packet: the MTU without IPv4's header and TCP's with time stamps
PACKET_HEADER = 14 + 20 + 32  # Ethernet's too; its checksum is not counted by interfaces


def framed(message_bytes: int) -> int:
    """Return the bytes of the packets that carry a message.

    Not in it: TLS, what is lost and sent again, and bare acknowledgements, which go the other way. How many
    the other end sends, one for one to ten of our packets, is up to its kernel: 0.5 to 4 % of these bytes.
    """
    size = MESSAGE_PREFIX + message_bytes
    size += FRAME_HEADER * -(-size // FRAME)
    return size + PACKET_HEADER * -(-size // SEGMENT)
