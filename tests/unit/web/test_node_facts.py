# SPDX-License-Identifier: Apache-2.0
"""The page of a node: its console, its health so far, what it measured, what a reboot changes."""

from __future__ import annotations

import html
import re

import pytest
from starlette.testclient import TestClient

from imagebuilder.web.node_facts import MOST_LENGTH, MOST_LINES
from tests.fleet_world import FleetWorld, mac_of

SECRET = "0123456789abcdef" * 2
NODE = "/nodes/node003"


def texts_of(page: str) -> list[str]:
    """What is in the boxes of consoles, as a person reads it."""
    found = re.findall(
        r'<pre class="wrap" tabindex="0" aria-label="Console.*?>(.*?)</pre>', page, re.S
    )
    return [html.unescape(each) for each in found]


def test_consoles_are_shown_newest_first_and_the_same_as_json(
    client: TestClient, world: FleetWorld
) -> None:
    assert "It does not send its console" in client.get(NODE).text
    world.plant_console(
        3, ["first boot"], ["second boot", "<script>alert(1)</script> \x1b[31mred\x07"]
    )
    page = client.get("/nodes/node003?new").text
    newest, older = texts_of(page)
    assert "second boot\n[    0.400000] <script>alert(1)</script> red" in newest
    assert "first boot" in older
    assert "<script>alert(1)" not in page
    assert "\x1b" not in page
    found = client.get("/api/v1/nodes/node003").json()["consoles"]
    assert [each["lines"] for each in found] == [newest.split("\n"), older.split("\n")]


def test_a_long_console_is_bounded_and_says_so(client: TestClient, world: FleetWorld) -> None:
    world.plant_console(3, [f"line {number} {'x' * 500}" for number in range(MOST_LINES + 50)])
    page = client.get(NODE).text
    (text,) = texts_of(page)
    assert len(text.split("\n")) == MOST_LINES
    assert max(map(len, text.split("\n"))) <= MOST_LENGTH
    assert f"line {MOST_LINES + 49} " in text
    assert "50 lines before these: <code>imagebuilder console node003</code>" in page
    assert client.get("/api/v1/nodes/node003").json()["consoles"][0]["left-out"] == 50


@pytest.mark.parametrize(
    "lines",
    [
        (f"Command line: quiet imagebuilder.report=http://10.0.0.1/report/{SECRET}/0a1b/rx/1 ro",),
        (f"Command line: quiet imagebuilder.report=http://10.0.0.1/report/{SECRET[:9]}",
         f"{SECRET[9:]}/0a1b/rx/1 ro"),
    ],
    ids=["whole", "in two packets"],
)  # fmt: skip
def test_the_ticket_of_a_boot_is_never_shown(
    client: TestClient, world: FleetWorld, lines: tuple[str, ...]
) -> None:
    world.plant_console(3, [*lines, "next"])
    for path in (NODE, "/api/v1/nodes/node003"):
        said = client.get(path).text
        assert "Command line: quiet" in said
        assert "/0a1b/rx/1 ro" in said
        assert SECRET[:9] not in said
        assert SECRET[9:] not in said
        assert "] next" in said


def test_changes_of_health_are_listed(client: TestClient, world: FleetWorld) -> None:
    assert "It never reported its health" in client.get("/nodes/node077").text
    world.plant_health(3, "ok", "missing device", "ok")
    page = client.get(NODE).text
    part = page.partition("Health history")[2].partition("<section")[0]
    shown = re.findall(r"<tr><td><time.*?</tr>", part)
    marks = ["ok", "missing device", "ok"]
    assert [mark in row for mark, row in zip(marks, shown, strict=True)] == [True] * 3
    found = client.get("/api/v1/nodes/node003").json()["health-history"]
    assert [each["verdict"] for each in found] == marks
    assert found[0]["at"] > found[1]["at"] > found[2]["at"]


def test_readings_are_shown_where_they_are_known(client: TestClient) -> None:
    page = client.get("/").text

    def cells(node: str) -> list[str]:
        row = re.search(rf'data-key="row-{node}".*?</tr>', page, re.S)
        assert row
        return [
            re.sub("<.*?>", "", cell)
            for cell in re.findall(r'<td class="short">(.*?)</td>', row[0])
        ]

    assert cells("node003") == ["63 °C", "47 % of 69 GB"]
    assert cells("node007") == cells("node040") == ["–", "–"]  # noqa: RUF001
    node = client.get(NODE).text
    assert re.search(r"<dt>Cards</dt><dd>63 °C</dd>\s*<dt>Processor</dt><dd>44 °C</dd>", node)
    assert "97 % of what is usual in this boot" in node
    assert "its last health report has no readings" in client.get("/nodes/node007").text
    found = client.get("/api/v1/nodes").json()["nodes"]
    assert found[3]["health"]["readings"]["card-celsius"] == 63
    assert found[7]["health"]["readings"] == dict.fromkeys(found[3]["health"]["readings"])
    assert found[40]["health"] is None


def test_temperatures_and_memory_are_metrics(client: TestClient) -> None:
    text = client.get("/metrics").text
    place = 'group="rack1",node="node003"'
    for line in (
        f'node_temperature_celsius{{{place},part="card",profile="rx7600xt"}} 63.0',
        f'node_memory_size_bytes{{{place},part="host",profile="rx7600xt"}} 6.8719476736e+10',
        f'node_speed_ratio{{{place},profile="rx7600xt"}} 0.97',
    ):
        assert f"imagebuilder_{line}\n" in text
    assert 'node_speed_ratio{group="rack1",node="node007"' not in text


def test_a_page_says_whether_a_reboot_would_change_the_node(
    client: TestClient, world: FleetWorld
) -> None:
    assert "<b>Not known</b>." in client.get(NODE).text
    assert f"nothing is served for {mac_of(3)} yet" in client.get(NODE).text
    served = world.tree.served_node(mac_of(3)) / "boot.ipxe"
    served.parent.mkdir(parents=True)
    served.write_text("chain --autofree ${http}/releases/rx7600xt/20991231T0/boot.ipxe ||\n")
    page = client.get("/nodes/node003?new").text
    assert "<b>Yes</b>, by what its last boot was given" in page
    assert "<li>rx7600xt/20991231T0, which it would boot, does not exist</li>" in page
    found = client.get("/api/v1/nodes/node003").json()["drift"]
    assert (found["reboot"], found["boots"]) == ("yes", None)
