"""The dashboard's process over HTTP: what it shows, what it refuses, and that it changes nothing."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import socket
from pathlib import Path
from typing import Any

import psutil
from prometheus_client.parser import text_string_to_metric_families

from edgeflock.server.web.stream import MOST_VIEWERS
from edgeflock.v1 import aggregator_pb2
from support.tiny_server import MIB, WAIT_S, Home, Served
from support.web_process import Web, watch

EVIL = "<img src=x onerror=alert(1)>"
PAGES = (
    "/",
    "/static/main.js",
    "/metrics",
    "/healthz",
    "/readyz",
    "/api/rounds/1",
    "/api/events",
    "/api/clients",
    "/api/stream",
)


def doing(known: dict[str, Any]) -> dict[str, str]:
    return {name: shown["state"] for name, shown in known["clients"].items()}


def answer_to(url: str, request: str) -> str:
    """Send a request that no library would send; return the answer's first line."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=WAIT_S) as connection:
        connection.sendall(request.encode())
        return connection.makefile("rb").readline().decode().strip()


# ------------------------------------------------------------------------------------- what it shows


def test_a_viewer_sees_what_every_client_does(tmp_path: Path) -> None:
    async def talk(served: Served, shown: Web) -> None:
        peers = await served.gather()
        said = aggregator_pb2.Progress(round=1, steps_done=30, steps_total=120, cpu_s=1.5, temperature_c=61.0)
        await peers[0].report(progress=said)
        await peers[1].deliver(served.made(1))
        refusal = aggregator_pb2.Refusal(sentence="no data today")
        await peers[2].report(refused=aggregator_pb2.TaskRefused(round=1, refusal=refusal))
        wanted = {"c0": "training", "c1": "delivered", "c2": "refused"}
        known = await shown.until(lambda known: doing(known) == wanted)
        first, run = known["clients"]["c0"], known["run"]
        assert (first["done"], first["total"], first["seat"], first["samples"]) == (30, 120, 0, 10)
        assert (first["spent"], first["temperature"]) == (1.5, 61.0)
        assert (run["state"], run["method"], run["round"], run["rounds"]) == ("running", "fedavg", 0, 3)
        assert (run["open"]["round"], run["open"]["phase"]) == (1, "open")
        assert run["open"]["began"] <= run["now"] + 1 < run["open"]["deadline"]
        assert [e["fields"]["reason"] for e in known["events"] if e["name"] == "task_refused"] == [
            "no data today"
        ]

    watch(Home(tmp_path), talk)


def test_a_viewer_sees_how_far_an_upload_is_and_that_a_client_has_gone(tmp_path: Path) -> None:
    async def talk(served: Served, shown: Web) -> None:
        peers = await served.gather()
        made, upload = served.made(0), peers[0].upload()
        await upload.send(header=made.header(peers[0].session, 1))
        credit = (await upload.read()).credit
        await upload.feed(made.payload, credit, MIB // 2, MIB)
        await peers[1].close()
        known = await shown.until(
            lambda known: doing(known).get("c1") == "away" and known["clients"]["c0"].get("done") == MIB
        )
        first = known["clients"]["c0"]
        assert (first["state"], first["total"]) == ("uploading", len(made.payload))
        assert known["run"]["now"] - first["seen"] < WAIT_S

    watch(Home(tmp_path, numbers=MIB), talk)


def test_rounds_come_as_they_are_committed_with_their_time_line(tmp_path: Path) -> None:
    async def talk(served: Served, shown: Web) -> None:
        peers = await served.gather()
        assert (await shown.get("/api/rounds/1"))[0] == 200
        assert (await shown.get("/api/rounds/9"))[0] == 404
        await served.finish_round(peers)
        known = await shown.until(
            lambda known: 1 in known["rounds"] and "up" in known["clients"].get("c2", {})
        )
        assert known["clients"]["c2"]["up"] == len(served.made(2).payload)
        assert known["clients"]["c2"]["verdict"] == "counted"
        _, text = await shown.get("/api/rounds/1")
        told = json.loads(text)
        assert [(m["id"], m["verdict"]) for m in told["members"]] == [(f"c{n}", "counted") for n in range(3)]
        assert {"open_s", "fold_s", "commit_s"} <= set(told["server"])

    watch(Home(tmp_path), talk)


def test_who_comes_back_with_an_identifier_gets_the_rest_only(tmp_path: Path) -> None:
    async def talk(served: Served, shown: Web) -> None:
        peers = await served.gather()
        await served.finish_round(peers)
        await shown.until(lambda known: 1 in known["rounds"])
        name = (await anext(shown.pictures()))["name"]
        await served.run.open(2)
        await served.finish_round(peers)
        rounds, fresh = [], []
        async for told in shown.pictures(**{"Last-Event-ID": name}):
            fresh.append(told["fresh"])
            rounds += told.get("rounds", {}).get("round", [])
            if 2 in rounds:
                break
        assert (rounds[0], any(fresh)) == (2, False)

    watch(Home(tmp_path), talk)


def test_the_last_picture_is_of_the_end_and_then_the_viewer_is_let_go(tmp_path: Path) -> None:
    async def talk(served: Served, shown: Web) -> None:
        peers = await served.gather()
        states: list[str] = []

        async def view() -> None:
            async for told in shown.pictures():
                states.append(told["run"]["state"])

        viewer = asyncio.create_task(view())
        for number in (1, 2, 3):
            await served.run.open(number)
            await served.finish_round(peers)
        await served.run.until(lambda: served.run.now.ending is not None)
        assert shown.process.stdin is not None
        shown.process.stdin.close()
        await asyncio.wait_for(viewer, WAIT_S)
        assert states[-1] == "finished"

    watch(Home(tmp_path), talk)


def test_hostile_texts_arrive_as_they_are_in_json(tmp_path: Path) -> None:
    """They are data of a JSON document that the page shows as text; no page is ever made of them."""

    async def talk(served: Served, shown: Web) -> None:
        stranger = served.peer(EVIL)
        assert (await stranger.join()).HasField("refusal")
        guest = served.peer("guest")
        device = aggregator_pb2.Device(machine=EVIL, system="</script>\u2028", cores=2)
        await guest.join(device=device)
        guest.watch()
        known = await shown.until(lambda known: known["refused"] and "guest" in known["clients"])
        assert known["refused"][0]["client"] == EVIL
        assert known["clients"]["guest"]["device"]["machine"] == EVIL
        for page in PAGES[:-1]:
            async with shown.http.get(shown.url + page) as answer:
                html = answer.content_type == "text/html"
                assert not (html and EVIL in await answer.text())
                assert answer.headers["X-Content-Type-Options"] == "nosniff"

    watch(Home(tmp_path), talk)


# ----------------------------------------------------------------------------------- what it refuses


def test_nothing_but_reading_is_answered_and_nothing_is_changed(tmp_path: Path) -> None:
    async def talk(served: Served, shown: Web) -> None:
        await served.gather()
        await asyncio.wrap_future(served.run.journal.ask(lambda past: None))  # with all news
        before = _content(served.home.run_dir)
        for page in (*PAGES, "/nowhere"):
            for verb in ("POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND"):
                async with shown.http.request(verb, shown.url + page, data=b"x" * 9) as answer:
                    assert (verb, page, answer.status) == (verb, page, 405)
                    assert answer.headers["Allow"] == "GET, HEAD"
        for page in PAGES:
            async with shown.http.head(shown.url + page) as answer:
                assert (page, answer.status, await answer.read()) == (page, 200, b"")
        assert _content(served.home.run_dir) == before

    watch(Home(tmp_path), talk)


def _content(run_dir: Path) -> dict[str, str]:
    """Return the digests of what lies in the run directory; readers of SQLite share its -shm file."""
    files = [path for path in sorted(run_dir.rglob("*")) if path.is_file() and path.suffix != ".sqlite-shm"]
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_only_the_files_of_the_page_are_served(tmp_path: Path) -> None:
    async def talk(served: Served, shown: Web) -> None:
        secret = served.home.run_dir / "secret.js"
        secret.write_text("secret")
        paths = [
            *("/static/../__main__.py", "/static/..%2f__main__.py", "/static/%2e%2e/__main__.py"),
            *(f"/static/{secret}", f"/static/{str(secret).replace('/', '%2f')}", "/journal.sqlite"),
            *("/static/", "/static", "//etc/passwd", "/static/....//x", "/api/rounds/../x"),
            *("/static/main.js%00.html", "/static/..\\..\\x", "/static/main.js/"),
        ]
        for path in paths:
            line = await asyncio.to_thread(
                answer_to, shown.url, f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
            )
            assert re.match(r"HTTP/1\.[01] (404|400) ", line), (path, line)
        assert (await shown.get("/healthz"))[1] == "ok\n"

    watch(Home(tmp_path), talk)


def test_what_is_no_number_is_a_sentence(tmp_path: Path) -> None:
    async def talk(served: Served, shown: Web) -> None:
        for text in ("x", "-1", "1e3", "9" * 99, "%D9%A1", "%00", "0x10", "1;2"):
            for path in ("/api/rounds/", "/api/events?before=", "/api/clients?skip="):
                status, answer = await shown.get(path + text)
                assert (text, status, answer.count("\n")) == (text, 400, 1)
                assert answer.endswith("a whole number\n")

    watch(Home(tmp_path), talk)


def test_a_foreign_name_is_answered_only_if_that_was_asked_for(tmp_path: Path) -> None:
    async def strict(served: Served, shown: Web) -> None:
        assert (await shown.get("/", headers={"Host": "evil.example"}))[0] == 421
        assert (await shown.get("/", headers={"Host": "localhost:9"}))[0] == 200

    async def open_to_all(served: Served, shown: Web) -> None:
        assert (await shown.get("/", headers={"Host": "board.example"}))[0] == 200

    watch(Home(tmp_path), strict)
    watch(Home(tmp_path), open_to_all, "--host=*")


def test_requests_that_make_no_sense_do_not_end_it(tmp_path: Path) -> None:
    async def talk(served: Served, shown: Web) -> None:
        huge = "GET / HTTP/1.1\r\nHost: localhost\r\n" + "X-Much: " + "x" * 100_000 + "\r\n\r\n"
        for request in (
            "\0\0\0\r\n\r\n",
            "GET\r\n\r\n",
            "GET / HTTP/9.9\r\n\r\n",
            huge,
            "GET http://[ HTTP/1.1\r\n\r\n",
        ):
            line = await asyncio.to_thread(answer_to, shown.url, request)
            assert re.match(r"HTTP/1\.[01] 4\d\d ", line), (request[:40], line)
        assert (await shown.get("/healthz"))[0] == 200

    watch(Home(tmp_path), talk)


def test_more_viewers_than_it_has_places_for_are_told_to_come_later(tmp_path: Path) -> None:
    async def talk(served: Served, shown: Web) -> None:
        answers = [await shown.http.get(f"{shown.url}/api/stream") for _ in range(MOST_VIEWERS)]
        assert {answer.status for answer in answers} == {200}
        assert (await shown.get("/api/stream"))[0] == 503
        answers[0].close()
        while (await shown.get("/healthz"))[0] == 200:
            async with shown.http.get(f"{shown.url}/api/stream") as answer:
                if answer.status == 200:
                    break
        for answer in answers:
            answer.close()

    watch(Home(tmp_path), talk)


def test_scripts_come_from_this_server_only(tmp_path: Path) -> None:
    async def talk(served: Served, shown: Web) -> None:
        async with shown.http.get(shown.url) as answer:
            page, policy = await answer.text(), answer.headers["Content-Security-Policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert "unsafe" not in policy
        assert re.findall(r"<script(?![^>]* src=)|<style|\son\w+=|style=|https?://|javascript:", page) == []
        for name in re.findall(r'(?:src|href)="(/[^"#]*)"', page):
            assert (name, (await shown.get(name))[0]) == (name, 200)

    watch(Home(tmp_path), talk)


# ------------------------------------------------------------------------------ metrics and health


def samples(text: str) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the values of a Prometheus text by name and labels' values."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sample.labels.values())] = sample.value
    return found


def test_the_metrics_are_those_of_the_run(tmp_path: Path) -> None:
    async def talk(served: Served, shown: Web) -> None:
        peers = await served.gather()
        await served.finish_round(peers)
        await shown.until(lambda known: 1 in known["rounds"] and "up" in known["clients"].get("c2", {}))
        found = samples((await shown.get("/metrics"))[1])
        size = len(served.made(0).payload)
        assert (found["edgeflock_up"][()], found["edgeflock_round"][()], found["edgeflock_seats"][()]) == (
            1,
            1,
            3,
        )
        assert found["edgeflock_run_state"][("running",)] == 1
        assert found["edgeflock_rounds_total"][()] == 1
        assert found["edgeflock_updates_total"][("counted",)] == 3
        assert found["edgeflock_payload_bytes_total"][("up",)] == 3 * size
        assert found["edgeflock_client_payload_bytes_total"][("c1", "up")] == size
        assert found["edgeflock_client_online"][("c1",)] == 1
        assert found["edgeflock_server_process_resident_memory_bytes"][()] > MIB
        assert all(name.startswith("edgeflock_") for name in found)

    watch(Home(tmp_path), talk)


def test_series_do_not_grow_with_clients_beyond_the_limit_nor_with_strangers(tmp_path: Path) -> None:
    async def talk(served: Served, shown: Web) -> None:
        await served.gather()
        await shown.until(lambda known: len(known["clients"]) == 3)
        before = samples((await shown.get("/metrics"))[1])
        for number in range(20):
            assert (await served.peer(f"{EVIL}{number}").join()).HasField("refusal")
        await shown.until(lambda known: len(known["refused"]) == 20)
        after = samples((await shown.get("/metrics"))[1])
        assert "edgeflock_client_online" not in after
        assert {name: set(series) for name, series in after.items() if "events" not in name} == {
            name: set(series) for name, series in before.items() if "events" not in name
        }
        assert set(after["edgeflock_events_total"]) - set(before["edgeflock_events_total"]) == {("refused",)}

    watch(Home(tmp_path), talk, "--metrics-clients=2")


def test_it_is_healthy_always_and_ready_while_the_server_serves_a_run(tmp_path: Path) -> None:
    async def talk(served: Served, shown: Web) -> None:
        assert (await shown.get("/healthz"), await shown.get("/readyz")) == (
            (200, "ok\n"),
            (200, "gathering\n"),
        )
        (served.home.run_dir / "control").write_text("127.0.0.1:1\n")  # nobody answers there
        async for told in shown.pictures():
            if told["run"]["state"] == "unreachable":
                break
        assert (await shown.get("/healthz"), await shown.get("/readyz")) == (
            (200, "ok\n"),
            (503, "unreachable\n"),
        )
        assert samples((await shown.get("/metrics"))[1])["edgeflock_up"][()] == 0

    watch(Home(tmp_path), talk)


def test_it_steps_back_for_the_run(tmp_path: Path) -> None:
    async def talk(served: Served, shown: Web) -> None:
        await shown.get("/healthz")
        assert psutil.Process(shown.process.pid).nice() > psutil.Process().nice()

    watch(Home(tmp_path), talk)
