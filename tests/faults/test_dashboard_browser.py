"""The dashboard in a real browser, over real runs: to the end, through a restart, and with hostile names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import grpc
import pytest

from edgeflock.common.wire.transport import PROTOCOL
from edgeflock.v1 import aggregator_pb2 as pb
from edgeflock.v1 import aggregator_pb2_grpc as rpc
from support import browser
from support.browser import Page
from support.commands import run
from support.large_run import LargeRun, large_run
from support.processes import Flock, until

EVIL = '<img src=x onerror="alert(1)"><script>alert(2)</script>'
SHOWN = ("--dashboard=127.0.0.1:0", "--clients=3")
NOW = "text => document.getElementById('because').textContent === text"
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
    page.wait(NOW, "Waiting for clients: 0 of 3 are here.")
    assert page.text("#run") == "fedavg on digits, iid · mlp · 3 clients"
    assert page.page.title() == "gathering 0 of 3 clients · fedavg"
    assert page.text("#come-title") == "3 of 3 clients are missing"
    assert page.text("#command") == f"fl-client --server {flock.address}"
    assert not page.page.locator("#curves").is_visible()
    clients = flock.clients("a", "b", "c")
    page.wait(STATE, "completed")
    assert [server.ended(), *(client.ended() for client in clients)] == [0, 0, 0, 0]
    page.wait("() => document.getElementById('link').textContent.startsWith('the server left')")
    page.wait("() => document.querySelectorAll('#timeline tbody tr').length === 3")  # nobody has looked there
    assert page.text("#round-note").startswith("Round 25: 3 members")
    assert page.text("#because") == "all 25 rounds are done"
    assert re.fullmatch(r"completed 25/25 · 0\.\d\d · fedavg", page.page.title())
    assert not page.page.locator("#come").is_visible()
    assert {*page.page.locator("#members td.wide:nth-of-type(1)").all_inner_texts()} == {"left"}
    choices = page.page.locator("#doing label").filter(visible=True).all_inner_texts()
    assert [text.split() for text in choices] == [["all", "3"], ["left", "3"]]
    assert page.text("#bars .bar-line").split("\n")[-1].startswith("25 of 25")
    assert "Budget of time" in page.text("#bars")
    assert "wanted 0.9999" in page.text("#bars")
    assert [
        row.split("\n")[0].split("\t")[0] for row in page.page.locator("#members tbody tr").all_inner_texts()
    ] == list("abc")
    accuracy = flock.rows("SELECT value FROM evaluations ORDER BY round DESC LIMIT 1")[0][0]
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


def test_what_is_left_is_left_of_the_budget_that_ends_first(flock: Flock, shown: Any) -> None:
    flock.server(*SHOWN, "--rounds=100000", "--budget=time=10m", "--budget=bytes=1GB", "--budget=energy=50kJ")
    flock.clients("a", "b", "c")
    page = shown()
    page.wait(ROUNDS, 5)
    page.wait(
        "() => / left at this pace; then the budget of (time|bytes) is used up/"
        ".test(document.getElementById('bars').textContent)"
    )
    energy = page.text("#bars .bar-line:has-text('Budget of energy')")
    assert (
        "not known of 50.0 kJ: no client states its energy" in energy or "J of 50.0 kJ" in energy
    )  # a sensor


def test_neighbouring_ticks_are_told_apart(flock: Flock, shown: Any) -> None:
    flock.server(*SHOWN)
    page = shown()
    ticks = (
        "async (all) => { const { tick } = await import('/static/format.js');"
        " return all.map(([step, values]) => values.map((value) => tick(value, step))); }"
    )
    asked = [
        [0.00025, [1, 1.00025, 1.0005]],
        [0.2, [0, 0.2, 0.4]],
        [2.5, [0, 2.5, 5]],
        [50000, [0, 50_000, 100_000, 1_250_000]],
        [0.0005, [0, 0.0005, 0.001]],
        [100, [250_000, 250_100]],
    ]
    assert page.page.evaluate(ticks, asked) == [
        ["1", "1.00025", "1.0005"],
        ["0", "0.2", "0.4"],
        ["0", "2.5", "5"],
        ["0", "50,000", "1e+5", "1.25e+6"],
        ["0", "5e-4", "0.001"],
        ["2.5e+5", "2.501e+5"],
    ]


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


def test_a_page_that_stays_open_knows_nothing_of_the_run_before(flock: Flock, shown: Any) -> None:
    """The next run has taken the port; it has no budget and no target, and has not begun."""
    server = flock.server(*SHOWN, "--rounds=25", "--budget=time=10m", "--target=accuracy=0.9999")
    page = shown()
    clients = flock.clients("a", "b", "c")
    page.wait(STATE, "completed")
    page.page.locator("#search").fill("a")
    page.page.locator("#number").fill("3")
    assert [server.ended(), *(client.ended() for client in clients)] == [0, 0, 0, 0]
    before = page.text("#run-id")
    port = (flock.run_dir / "dashboard").read_text("utf-8").strip()
    flock.seen = flock.folder / "next"
    flock.server(f"--dashboard={port}", "--clients=2", "--method=fedprox")
    page.wait("id => document.getElementById('run-id')?.textContent.length > 5 && "
              "document.getElementById('run-id').textContent !== id", before)  # fmt: skip
    page.wait(NOW, "Waiting for clients: 0 of 2 are here.")
    assert page.page.title() == "gathering 0 of 2 clients · fedprox"
    assert page.text("#bars").split("\n")[0] == "Rounds"
    assert "Budget" not in page.text("#bars")
    assert "Target" not in page.text("#bars")
    values = "() => [...document.querySelectorAll('#search, #number')].map((field) => field.value).join()"
    assert page.page.evaluate(values) == ","
    assert page.page.locator("#charts .legend li, #timeline tr, #members tbody tr").count() == 0
    assert "25" not in page.text("#story")


def test_a_chart_without_a_line_says_why_and_keeps_its_lines_once_it_has_them(
    flock: Flock, shown: Any
) -> None:
    flock.server(*SHOWN, "--rounds=100000", "--eval-every=0")
    page = shown()
    names = "() => [...document.querySelectorAll('#charts .chart')].slice(0, 4).map((box) => box.ariaLabel)"
    page.wait(f"() => ({names})()[0] === 'Accuracy. No round is committed yet.'")
    flock.clients("a", "b", "c")
    page.wait(ROUNDS, 3)
    page.wait("() => document.querySelector('#charts .chart').textContent.startsWith('No test yet')")
    accuracy, loss, *rest = page.page.evaluate(names)
    assert accuracy == "Accuracy. No test yet: --eval-every 0 tests no round."
    assert re.match(r"Loss, up to round \d+\. Newest: training \d", loss)
    assert all(re.match(r"(Bytes|Seconds) of a round, up to round ", name) for name in rest)
    kept = (
        "async () => { const { Store } = await import('/static/store.js'); const store = new Store();"
        " const round = Array.from({ length: 900 }, (_, index) => index + 1);"
        " const tested = round.map((number) => (number % 300 === 0 ? 0.5 : null));"
        " store.take({ run: {}, rounds: { round, loss: round, 'accuracy global': tested } });"
        " store.take({ run: {}, rounds: { round: [901], loss: [1] } }); return store.names(); }"
    )
    assert page.page.evaluate(kept) == ["round", "loss", "accuracy global"]


def test_what_is_typed_is_not_overwritten_and_the_tab_is_right_while_nobody_looks(
    flock: Flock, shown: Any
) -> None:
    server = flock.server(*SHOWN, "--rounds=100000")
    flock.clients("a", "b", "c")
    page = shown()
    page.wait(ROUNDS, 3)
    page.page.locator("#round").scroll_into_view_if_needed()
    page.wait("() => document.getElementById('number').value > 0")
    page.page.locator("#number").fill("1")
    page.wait("() => /^Round \\d/.test(document.getElementById('round-note').textContent)")
    seen = int(page.text("#round-note").split()[1].rstrip(":"))
    page.wait("round => parseInt(document.getElementById('round-note').textContent.slice(6)) > round", seen)
    page.page.keyboard.type("2")
    assert page.page.locator("#number").input_value() == "12"
    page.wait(ROUNDS, 12)
    page.page.keyboard.press("Enter")
    page.wait("() => document.getElementById('round-note').textContent.startsWith('Round 12')")
    page.page.evaluate(
        "() => { Object.defineProperty(document, 'hidden', { get: () => true });"
        " document.dispatchEvent(new Event('visibilitychange')); }"
    )
    shown_then = page.text("#bars")
    far = int(page.page.title().partition("/")[0])
    page.wait("far => parseInt(document.title) > far + 5", far)
    assert page.text("#bars") == shown_then  # nothing else is drawn for nobody
    server.kill()
    page.wait("() => /^no connection \\d+.100000 · 0.\\d\\d · fedavg$/.test(document.title)")


def test_very_many_clients_are_shown_page_by_page_and_found(flock: Flock, context: Any) -> None:
    """A run at rest of 10,000: rows that are shown do not grow with the clients."""
    run_dir = large_run(flock.folder / "large", LargeRun(rounds=3))
    lab = flock.start("fl-lab", "dashboard", str(run_dir), "--dashboard=127.0.0.1:0")
    url = until(lambda: re.search(r"http://127\.0\.0\.1:\d+/", lab.text), lambda: lab.text).group()
    page = Page(context, url)
    found = "text => document.getElementById('found').textContent === text"
    page.wait(found, "1 to 50 of 10,000")
    assert page.page.locator("#members tbody tr").count() == 50
    assert page.text("#versions").startswith("Versions: edgeflock 1.0.0 (7,")
    assert "10,000 clients" in page.text("#run")
    page.page.locator("#page-after").click()
    page.wait(found, "51 to 100 of 10,000")
    assert page.text("#members tbody th") == "c50"
    page.page.locator("#members th.cpu button").click()
    page.wait(found, "1 to 50 of 10,000")
    page.page.locator("#search").fill("c999")
    page.wait(found, "11 shown")
    page.wait("() => document.querySelectorAll('#members tbody tr').length === 11")
    page.page.locator("#spread-part summary").click()
    assert page.text("#spread th") == "Of 10,000 clients"
    page.page.locator("#round").scroll_into_view_if_needed()
    page.wait("() => document.querySelectorAll('#timeline tbody tr').length === 50")
    assert "Shown: the 50 that took longest of 500." in page.text("#round-note")
    page.page.close()
    assert page.wrong == []


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


def test_a_client_in_quarantine_is_shown_with_its_reason(flock: Flock, shown: Any) -> None:
    flock.server(
        *SHOWN, "--rounds=100000", "--min-updates=1", "--quarantine-after=2", "--quarantine-rounds=90000"
    )
    flock.clients("a", "b")
    page = shown()
    with grpc.insecure_channel(flock.address) as channel:
        send_bad_updates(rpc.AggregatorStub(channel), "c", 2)
        page.wait(
            "() => document.getElementById('members').textContent.includes('in quarantine up to round')"
        )
    row = page.page.locator("#members tbody tr", has_text="in quarantine")
    assert "in quarantine up to round 90,001, for 2 bad updates; the last one malformed" in row.inner_text()
    assert "c is in quarantine up to round 90001" in page.text("#story")
    page.page.get_by_label("quarantined 1").check()
    page.wait("() => document.querySelectorAll('#members tbody tr').length === 1")
    done = run("fl-lab", "control", flock.run_dir, "release", "--client=c")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "c is out of quarantine: it takes part from the next round on\n"
    page.wait(
        "() => document.getElementById('story').textContent.includes('c takes part again: an operator')"
    )
    page.wait("() => document.querySelectorAll('#members tbody tr').length === 0")


def send_bad_updates(stub: rpc.AggregatorStub, client: str, times: int) -> None:
    """Take part as far as the first task, and answer it with nonsense."""
    request = pb.JoinRequest(protocol=PROTOCOL, client_id=client, instance_id=b"1" * 16)
    admission = stub.Join(request, timeout=20).admission
    ready = pb.Ready(samples=10, layout_digest=admission.run.model.parameters.digest)
    said, round = False, 0
    for answer in stub.Watch(pb.WatchRequest(session=admission.session), timeout=60):
        if answer.view.HasField("seat") and not said:
            said = True
            stub.Report(pb.ReportRequest(session=admission.session, ready=ready), timeout=20)
        if round := answer.view.task.round:
            break
    for _ in range(times):
        header = pb.UpdateHeader(session=admission.session, round=round)
        (said_no,) = stub.Deliver(iter([pb.DeliverRequest(header=header)]), timeout=20)
        assert said_no.refusal.reason == pb.REASON_MALFORMED


def test_numbers_of_any_size_have_room(flock: Flock, shown: Any) -> None:
    """A training that diverges has losses of thirty digits."""
    flock.server(*SHOWN)
    page = shown()
    told = page.page.evaluate(
        "async (values) => { const { plain } = await import('/static/format.js'); return values.map(plain) }",
        [3.262e24, -1e300, 123456789, 0.5, 1e-9, 0],
    )
    assert told == ["3.26e+24", "-1.00e+300", "123,456,789", "0.5", "1.00e-9", "0"]


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
