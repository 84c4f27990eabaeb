"""The board: how far every piece of work is, told by those who do it and read by who waits for it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Notice:
    """What one attempt has said last."""

    sent: int
    round: int
    node: str


@dataclass
class Board:
    """One of a comparison, on the machine of who waits. Later attempts end earlier ones."""

    newest: dict[str, int] = field(default_factory=dict)
    entries: dict[str, Notice] = field(default_factory=dict)
    models: dict[str, dict[int, tuple[str, str]]] = field(default_factory=dict)  # digest and node by attempt

    def tell(self, key: str, sent: int, round: int, node: str) -> bool:
        """Take how far an attempt is; return whether it is still wanted."""
        newest = self.newest[key] = max(sent, self.newest.get(key, 0))
        if sent == newest:
            self.entries[key] = Notice(sent, round, node)
        return sent == newest

    def made(self, key: str, sent: int, digest: str, node: str) -> None:
        """Take which model an attempt has come to, wanted or not."""
        self.models.setdefault(key, {})[sent] = (digest, node)

    def read(self) -> tuple[dict[str, Notice], dict[str, dict[int, tuple[str, str]]]]:
        return dict(self.entries), {key: dict(made) for key, made in self.models.items()}
