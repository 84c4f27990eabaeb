"""What both ends of a connection agree on besides the messages: revision, chunk sizes, gRPC options."""

from __future__ import annotations

from edgeflock.common.payload.checksum import GRANULE

PROTOCOL = 1  # the newest revision of edgeflock.v1 that is spoken here
PROTOCOL_LEAST = 1  # the oldest one

SMALL_CHUNK = GRANULE  # after an interruption and on slow links
CHUNK = 1 << 20  # otherwise
MAX_CHUNK = 4 << 20  # the most that is accepted
MAX_MESSAGE = 5 << 20  # a chunk of the largest size and its envelope
MAX_STATUS = 128 << 20  # what the operator may be told at a time: a line for each of a million clients

SLOWEST = 2048  # bytes a second of a line that is still one

Revisions = tuple[int, int]  # the oldest and the newest
Options = list[tuple[str, int | str]]


def channel_options(proxy: str = "", largest: int = MAX_MESSAGE) -> Options:
    """Return the options of a client's channel, through an HTTP proxy if one is named.

    A channel has its own connection: out of gRPC's global pool a fresh one would inherit an old back-off.
    What the environment says of proxies does not count: gRPC would dial this very machine through them.
    """
    way: Options = [("grpc.http_proxy", proxy)] if proxy else [("grpc.enable_http_proxy", 0)]
    return [*_common(largest), ("grpc.use_local_subchannel_pool", 1), *way]


def server_options(largest: int = MAX_MESSAGE) -> Options:
    """Return the options of a server; it tolerates the pings that `channel_options` sends."""
    return [
        *_common(largest),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", 10_000),
        ("grpc.http2.max_ping_strikes", 0),  # no GOAWAY for pings: the minimum interval alone bounds them
        ("grpc.so_reuseport", 0),  # a taken port is an error, not a second server
    ]


def spoken() -> Revisions:
    """Return the revisions of edgeflock.v1 that this end speaks."""
    return PROTOCOL_LEAST, PROTOCOL


def common_revision(ours: Revisions, theirs: Revisions) -> int | None:
    """Return the newest revision that both ends speak."""
    least, newest = (
        pick(pair) for pick, pair in zip((max, min), zip(ours, theirs, strict=True), strict=True)
    )
    return newest if newest >= least else None


def in_words(revisions: Revisions) -> str:
    """Return a range as people write it."""
    least, newest = revisions
    return str(newest) if least == newest else f"{least} to {newest}"


def _common(largest: int) -> Options:
    """Pings every 20 s also when nothing is called, so that an idle hour ends in nothing.

    An answer may take gRPC's 60 s while other data come: on a narrow line it waits behind these.
    """
    return [
        ("grpc.keepalive_time_ms", 20_000),
        ("grpc.keepalive_timeout_ms", 10_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        ("grpc.max_send_message_length", largest),
        ("grpc.max_receive_message_length", largest),
    ]
