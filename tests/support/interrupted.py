"""A real run whose server and clients are killed on the way and come back."""

from __future__ import annotations

from pathlib import Path

from support.processes import flock, run_to_the_end

HOSTS = ("c0,c1", "c2")


def check_that_kills_leave_no_trace(folder: Path, *flags: str, after: int = 3) -> None:
    """Run twice, once killing everybody after some rounds: the models must have the same bits."""
    (folder / "calm").mkdir()
    (folder / "killed").mkdir()
    calm = run_to_the_end(folder / "calm", flags, HOSTS)
    with flock(folder / "killed") as made:
        server = made.server(*flags)
        clients = made.clients(*HOSTS)
        server.wait_for("round_committed", count=after)
        for program in (*clients, server):
            program.kill()
        server = made.server()
        clients = made.clients(*HOSTS)
        assert [server.ended(), *(client.ended() for client in clients)] == [0, 0, 0]
        assert server.events("round_committed")  # it was not over when they died
        assert made.sha256() == calm
