# SPDX-License-Identifier: Apache-2.0
"""The pages show what is known, and nothing that a stranger sends becomes markup."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from starlette.testclient import TestClient

from imagebuilder.web.app import make_app
from imagebuilder.web.site import WebSite
from tests.fleet_world import NEW, OLD, FleetWorld, mac_of, make_site

HOSTS = ("testserver",)
ATTACK = '"><script>alert(1)</script><img src=x onerror=alert(2)>'


@pytest.fixture(scope="module")
def client(steady_client: TestClient) -> TestClient:
    """One for all: with it tests only read."""
    return steady_client


def rows_of(text: str) -> list[str]:
    return re.findall(r'data-key="row-([^"]+)"', text)


def test_the_fleet_has_a_tile_and_a_row_for_each_node(client: TestClient) -> None:
    text = client.get("/").text
    assert len(rows_of(text)) == 80
    assert len(re.findall(r'data-key="tile-', text)) == 80
    assert "<h1>80 nodes</h1>" in text
    assert "never reported a boot" not in text


def test_what_needs_a_person_comes_first(client: TestClient) -> None:
    text = client.get("/").text
    assert rows_of(text)[:4] == ["node040", "node050", "node077", "node013"]
    assert rows_of(text)[4:6] == ["node000", "node001"]
    tiles = re.findall(r'data-key="tile-([^"]+)"', text)
    assert tiles == sorted(tiles)


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("state=failed", ["node040"]),
        ("state=silent&group=rack2", ["node077"]),
        ("state=silent&group=rack1", []),
        ("nodes=node[003-004]", ["node003", "node004"]),
        ("nodes=@rack2%26node077", ["node077"]),
        ("health=missing device", ["node050"]),
        ("q=no PCI device", ["node050"]),
        ("q=00:77:00:05", ["node005"]),
        ("q=NODE01&state=booting", ["node013"]),
    ],
)
def test_the_fleet_can_be_filtered(client: TestClient, query: str, names: list[str]) -> None:
    assert rows_of(client.get(f"/?{query}").text) == names


def test_a_filter_that_makes_no_sense_is_refused(client: TestClient) -> None:
    assert client.get("/?state=well").status_code == 400
    assert client.get("/?nodes=[[[").status_code == 400
    assert client.get("/?health=well").status_code == 400
    assert client.get("/?nodes=n[0-99999999]").status_code == 400


def test_only_limits_the_rows_and_keeps_the_counts(client: TestClient) -> None:
    text = client.get("/?only=node001&only=node040").text
    assert rows_of(text) == ["node040", "node001"]
    assert "<h1>80 nodes</h1>" in text


def test_a_node_has_its_reason_and_what_it_boots(client: TestClient) -> None:
    text = client.get("/nodes/node040").text
    assert "its boot failed 11 min ago" in text
    assert OLD in text
    assert mac_of(40) in text
    behind = client.get("/nodes/node015").text
    assert OLD in behind
    assert NEW in behind


def test_a_node_that_is_ill_says_so_everywhere(client: TestClient) -> None:
    text = client.get("/").text
    assert re.search(r"<b>1</b> missing device</a>", text)
    assert re.search(r'data-key="tile-node050" class="cell failed"', text)
    assert "pci: no PCI device 1002:7480" in text
    node = client.get("/nodes/node050").text
    assert "pci: no PCI device 1002:7480" in node
    assert "its report" in node
    found = client.get("/api/v1/nodes?health=missing device").json()["nodes"]
    assert [(each["node"], each["health"]["verdict"]) for each in found] == [
        ("node050", "missing device"),
    ]  # fmt: skip


def test_a_booting_node_is_not_said_to_have_stopped(client: TestClient) -> None:
    text = client.get("/nodes/node013").text
    assert "How far it is" in text
    assert "stopped in stage" not in text


@pytest.mark.parametrize(
    "path", ["/nodes/none", "/nodes/", "/nodes/..%2f..%2fetc%2fpasswd", "/etc/passwd",
             "/assets/../web.css", "/assets/..%2fapp.py", "/assets/app.py", "/nodes/node001/x"]
)  # fmt: skip
def test_what_is_not_there_is_not_found(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 404
    assert "root:" not in answer.text
    assert "import annotations" not in answer.text


def test_assets_never_change_under_their_name(client: TestClient) -> None:
    for name in re.findall(r'"(/assets/[^"]+)"', client.get("/").text):
        answer = client.get(name)
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]


def test_pages_load_nothing_from_elsewhere(client: TestClient) -> None:
    for path in ("/", "/nodes/node001", "/nodes/none"):
        text = client.get(path).text
        assert not re.search(r'(?:src|href)="(?:https?:)?//', text)
        assert not re.search(r'\s(?:style|on[a-z]+)="', text)
        assert "<style" not in text


def test_what_a_machine_reports_is_shown_as_text(world: FleetWorld) -> None:
    world.report(3, ATTACK, OLD, timedelta(seconds=5))
    world.tree.serve.joinpath("logs").mkdir()
    line = f"dnsmasq-dhcp[1]: 7 DHCPDISCOVER(br0) {mac_of(3)} {ATTACK}\n"
    said = "dnsmasq-dhcp[1]: 7 vendor class: PXEClient:Arch:00007:UNDI:003016\n"
    world.tree.serve.joinpath("logs/dnsmasq.log").write_text(said + line)
    del world.answers["node003"]
    with TestClient(make_app(make_site(world), HOSTS)) as client:
        for path in ("/", "/nodes/node003"):
            text = client.get(path).text
            assert "<script>alert" not in text
            assert "<img" not in text
        assert "&lt;script&gt;alert(1)" in text
        assert "DHCPDISCOVER" in text
        found = client.get("/api/v1/nodes/node003")
        assert ATTACK in found.json()["words"]
        assert found.headers["content-type"] == "application/json"


def test_what_a_person_typed_comes_back_as_text(client: TestClient) -> None:
    for query in ("q", "state", "group", "nodes"):
        text = client.get("/", params={query: ATTACK}).text
        assert "<script>alert" not in text
        assert "<img" not in text
    assert "<script>alert" not in client.get("/nodes/" + ATTACK).text


def test_a_damaged_nodes_file_is_told_and_the_rest_stays(world: FleetWorld, site: WebSite) -> None:
    world.tree.nodes_file.write_text("nodes: [<b>")
    site.watcher.snapshot = site.watcher.maker.take()
    with TestClient(make_app(site, HOSTS)) as client:
        text = client.get("/").text
        assert "Files that cannot be read" in text
        assert len(rows_of(text)) == 80


def test_a_fleet_without_nodes_says_how_to_add_one(world: FleetWorld) -> None:
    world.tree.nodes_file.unlink()
    with TestClient(make_app(make_site(world), HOSTS)) as client:
        assert "imagebuilder nodes add" in client.get("/").text
