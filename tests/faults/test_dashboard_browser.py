"""The dashboard in a real browser, over real runs: to the end, through a restart, and with hostile names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from edgeflock.common.transport import PROTOCOL
from edgeflock.v1 import aggregator_pb2 as pb
from edgeflock.v1 import aggregator_pb2_grpc as rpc
from support import browser
from support.browser import Page
from support.processes import Flock

EVIL = '<img src=x onerror="alert(1)"><script>alert(2)</script>'
SHOWN = ("--dashboard=127.0.0.1:0", "--clients=3")
STATE = "text => document.getElementById('state').textContent === text"
ROUNDS = (  # as the bar says them, once it is there
    "least => parseInt((document.querySelector('#bars span:last-child')?.textContent ?? '0')"
    ".replaceAll(',', '')) >= least"
)


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with browser.browser(tmp_path_factory.mktemp("profile")) as made:
        yield made


@pytest.fixture
def shown(flock: Flock, context: Any) -> Iterator[Any]:
    """Return what opens the page of the flock's server; nothing may have gone wrong on it."""
    pages: list[Page] = []

    def visit() -> Page:
        address = (flock.run_dir / "dashboard").read_text("utf-8").strip()
        pages.append(Page(context, f"http://{address}/"))
        return pages[-1]

    yield visit
    for page in pages:
        page.page.close()
    assert [wrong for page in pages for wrong in page.wrong] == []


def test_a_real_run_is_shown_to_its_end(flock: Flock, shown: Any) -> None:
    server = flock.server(*SHOWN, "--rounds=25", "--budget=time=10m", "--target=accuracy=0.9999")
    page = shown()
    page.wait(STATE, "gathering")
    clients = flock.clients("a", "b", "c")
    page.wait(STATE, "completed")
    assert [server.ended(), *(client.ended() for client in clients)] == [0, 0, 0, 0]
    page.wait("() => document.getElementById('link').textContent.startsWith('the server left')")
    assert page.text("#because") == "all 25 rounds are done"
    assert page.text("#bars .bar-line").split("\n")[-1].startswith("25 of 25")
    assert "Budget of time" in page.text("#bars")
    assert "wanted 0.9999" in page.text("#bars")
    assert [
        row.split("\n")[0].split("\t")[0] for row in page.page.locator("#members tbody tr").all_inner_texts()
    ] == list("abc")
    accuracy = flock.rows("SELECT accuracy FROM evaluations ORDER BY round DESC LIMIT 1")[0][0]
    assert page.text("#tiles dd span") == f"{accuracy:.4f}"
    assert page.page.locator("#charts canvas").count() >= 4
    assert "The run has ended, completed: all 25 rounds are done." in page.text("#story")


def test_curves_and_time_line_are_read_by_keyboard(flock: Flock, shown: Any) -> None:
    flock.server(*SHOWN, "--rounds=100000")
    flock.clients("a", "b", "c")
    page = shown()
    page.wait(ROUNDS, 5)
    page.wait("() => document.getElementById('bars').textContent.includes('left at this pace')")
    page.page.locator("#charts .chart").first.focus()
    for _ in range(200):
        page.page.keyboard.press("PageUp")
    page.wait("() => document.querySelector('#charts .legend').textContent.includes('in round 1')")
    page.page.keyboard.press("Enter")
    page.wait("() => document.getElementById('round-note').textContent.startsWith('Round 1:')")
    assert page.page.locator("#timeline tbody tr").count() == 3
    assert page.page.locator("#follow").is_checked() is False
    assert {"open", "fold", "commit"} <= set(page.text("#server-line").split())
    page.page.locator("#after").click()
    page.wait("() => document.getElementById('round-note').textContent.startsWith('Round 2:')")


def test_it_comes_back_by_itself_when_the_server_does(flock: Flock, shown: Any) -> None:
    server = flock.server(*SHOWN, "--rounds=100000")
    flock.clients("a", "b", "c")
    page = shown()
    page.wait(ROUNDS, 3)
    server.kill()
    page.wait("() => document.getElementById('link').hasAttribute('data-lost')")
    before = flock.rows("SELECT max(round) FROM rounds WHERE committed = 1")[0][0]
    flock.server()
    page.wait("() => document.getElementById('link').textContent === 'live'")
    page.wait(ROUNDS, before + 3)
    page.wait(STATE, "running")


def test_hostile_names_are_shown_as_text(flock: Flock, shown: Any) -> None:
    flock.server(*SHOWN)
    page = shown()
    with grpc.insecure_channel(flock.address) as channel:
        stub = rpc.AggregatorStub(channel)
        device = pb.Device(machine=EVIL, system=EVIL, compute="' onmouseover='alert(3)")
        for name in (EVIL, "javascript:alert(4)", "guest"):
            request = pb.JoinRequest(protocol=PROTOCOL, client_id=name, instance_id=b"0" * 16, device=device)
            answer = stub.Join(request, timeout=20)
        session = answer.admission.session
        watching = stub.Watch(pb.WatchRequest(session=session), timeout=60)
        page.wait("() => document.getElementById('refused').children.length === 2")
        page.wait("() => document.querySelectorAll('#members tbody tr').length === 1")
        watching.cancel()
    assert EVIL[:20] in page.text("#refused")
    assert "javascript:alert(4)" in page.text("#refused")
    assert EVIL[:20] in page.text("#members")
    page.wait("() => document.getElementById('story').textContent.includes('<script>')")
    assert page.page.locator("main img, main script, main [onmouseover], main [onerror]").count() == 0
    page.page.screenshot()  # painted, hence anything that could load has been asked for


def test_it_is_readable_on_a_phone_and_by_a_screen_reader(flock: Flock, shown: Any) -> None:
    flock.server(*SHOWN, "--rounds=100000")
    flock.clients("a", "b", "c")
    page = shown()
    page.wait(ROUNDS, 5)
    for width in (360, 1280):
        page.page.set_viewport_size({"width": width, "height": 740})
        page.wait("() => document.documentElement.scrollWidth <= window.innerWidth")
    page.page.set_viewport_size({"width": 360, "height": 740})
    tree = page.page.locator("body").aria_snapshot()
    wanted = [
        *("banner:", "navigation", "main:", "contentinfo:", 'heading "Clients" [level=2]', "status: running"),
        *('progressbar "Rounds', 'rowheader "a"', "columnheader", 'img "Accuracy,', 'group "Against'),
    ]
    assert [text for text in wanted if text not in tree] == [], tree
