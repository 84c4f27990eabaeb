"""The progress rule of transfers: how long a sender may still keep the server waiting. Pure."""

from __future__ import annotations

SLOWEST_BYTES_PER_S = 2048  # over twice a chunk's time, while credit is unused


class Patience:
    """Seconds of waiting that a sender has left; what it sends earns it more.

    So a sender of many small messages is held to the same rate as one of large chunks.
    """

    def __init__(self, chunk_bytes: int) -> None:
        self.most_s = self.left_s = 2 * chunk_bytes / SLOWEST_BYTES_PER_S

    def waited(self, seconds: float) -> None:
        self.left_s -= seconds

    def received(self, size: int) -> None:
        self.left_s = min(self.most_s, self.left_s + size / SLOWEST_BYTES_PER_S)
