# SPDX-License-Identifier: Apache-2.0
"""Releases, roll-outs, nightly runs, machines: what is shown, and nothing else of a folder is."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from imagebuilder.tree import ReleaseName
from imagebuilder.web.app import make_app
from imagebuilder.web.guard import POLICY, REPORT_POLICY
from imagebuilder.web.site import WebSite
from tests.fleet_world import NEW, OLD, FleetWorld, make_site, make_world

ATTACK = "<script>alert(1)</script>"
REPORT = f"/releases/rx7600xt/{NEW}/reports/20261121T100002Z"


@pytest.fixture
def world(world: FleetWorld) -> FleetWorld:
    world.plant_history()
    return world


@pytest.fixture(scope="module")
def steady_world(steady_world: FleetWorld) -> FleetWorld:
    steady_world.plant_history()
    (steady_world.reports / "nights/secret").write_text("secret")
    return steady_world


@pytest.fixture(scope="module")
def client(steady_client: TestClient) -> TestClient:
    """One for all: with it tests only read."""
    return steady_client


def test_releases_have_channels_tests_proof_and_changes(client: TestClient) -> None:
    text = client.get("/releases").text
    assert text.count("1 security") == 2
    assert re.findall(r"</i> (passed|failed)<", text) == ["passed", "failed", "passed", "passed"]
    assert re.findall(r"</i> (proved|warned)<", text) == ["warned", "proved"] * 2
    assert "10 nodes" not in text
    assert "2 nodes" in text


def test_a_release_shows_what_changed_security_first(client: TestClient) -> None:
    text = client.get(f"/releases/rx7600xt/{NEW}").text
    assert f"Changed since {OLD}" in text
    assert text.index("openssl:amd64") < text.index("mesa-vulkan-drivers:amd64")
    assert re.findall(r">(\S+?)</th>.*?security</span>", text) == ["openssl:amd64"]
    assert "bash:amd64" not in text
    assert "a password hash is in /etc/shadow" in text
    assert "+5.0 MB" in text
    first = client.get(f"/releases/rx7600xt/{OLD}").text
    assert "The oldest release of rx7600xt here" in first
    assert "node000" in first


def test_the_api_has_the_difference(client: TestClient) -> None:
    found = client.get(f"/api/v1/releases/rx7600xt/{NEW}").json()
    assert found["previous"] == f"rx7600xt@{OLD}"
    assert found["security"] == ["openssl:amd64"]
    assert found["proof"] == {"kernel": "proved", "secrets": "warned"}
    assert {each["name"] for each in found["difference"]["packages"]} == {
        "openssl:amd64", "mesa-vulkan-drivers:amd64",
    }  # fmt: skip


def test_a_boot_test_is_its_own_page(client: TestClient) -> None:
    answer = client.get(REPORT)
    assert answer.status_code == 200
    assert "imagebuilder boot test" in answer.text
    assert answer.headers["content-security-policy"] == REPORT_POLICY
    assert "script" not in REPORT_POLICY
    assert client.get("/releases").headers["content-security-policy"] == POLICY
    listed = client.get(f"/releases/rx7600xt/{NEW}").text
    assert f'href="{REPORT}"' in listed


def test_without_root_a_boot_test_says_nothing_of_these_bytes(site: WebSite) -> None:
    site.watcher.snapshot = replace(site.snapshot, standings_known=False)
    client = TestClient(make_app(site, ["testserver"]))
    assert client.get("/releases").text.count("not known") == 4
    assert client.get(f"/api/v1/releases/rx7600xt/{NEW}").json()["standing"] is None
    assert "release_tested{" not in client.get("/metrics").text


def test_a_damaged_manifest_leaves_the_others(world: FleetWorld) -> None:
    path = world.tree.release(ReleaseName("rx7600xt", NEW)) / "manifest.json"
    path.write_text("{")
    client = TestClient(make_app(make_site(world), ["testserver"]))
    assert client.get(f"/releases/rx7600xt/{NEW}").status_code == 200
    assert client.get("/releases").text.count("warned") == 1


def test_manifests_are_read_again_only_if_they_changed(world: FleetWorld, site: WebSite) -> None:
    maker = site.watcher.maker
    before = maker.take().details
    assert all(each is before[name] for name, each in maker.take().details.items())
    path = world.tree.release(ReleaseName("rx7600xt", NEW)) / "manifest.json"
    path.write_text(path.read_text().replace("Nodes that compute", "Others"))
    after = maker.take().details
    assert after[ReleaseName("rx7600xt", NEW)].description == "Others"
    assert after[ReleaseName("generic", NEW)] is before[ReleaseName("generic", NEW)]


def test_a_roll_out_says_why_it_stopped(client: TestClient) -> None:
    text = client.get("/rollouts").text
    assert "node006: its health is missing device" in text
    assert "4 done, 1 returned, 33 waiting" in text
    assert "imagebuilder rollout resume rx7600xt" in text


def test_nightly_runs_lead_to_the_pages_that_nightly_wrote(client: TestClient) -> None:
    text = client.get("/nightly").text
    assert "The last 9 nightly runs" in text
    places = {each.partition("#")[0] for each in re.findall(r'href="(/nightly/files/[^"]+)"', text)}
    assert len(places) == 9
    for place in places:
        answer = client.get(place)
        assert answer.status_code == 200
        assert answer.headers["content-security-policy"] == REPORT_POLICY


@pytest.mark.parametrize(
    "path",
    [
        "latest.json", "nights/secret", "../tree/nodes.yaml", "..%2ftree%2fnodes.yaml", "nights/",
        "nights/..%2f..%2ftree%2fnodes.yaml", "/etc/passwd", "%2fetc%2fpasswd", "index.html%00.png",
        "nights/\u0662\u0660261122T025900Z-4711.html",
    ],
)  # fmt: skip
def test_nothing_else_of_the_folder_of_reports_is_shown(
    steady_world: FleetWorld, client: TestClient, path: str
) -> None:
    assert (steady_world.reports / "nights/secret").read_text() == "secret"
    assert client.get(f"/nightly/files/{path}").status_code == 404


@pytest.mark.parametrize(
    "path",
    [
        f"/releases/rx7600xt/{NEW}/reports/none",
        f"/releases/rx7600xt/{NEW}/reports/.new-x",
        f"/releases/rx7600xt/{NEW}/reports/%2e%2e%2f{OLD}",
        "/releases/rx7600xt/none",
        "/releases/..%2f..%2f/x",
        "/releases/rx7600xt",
    ],
)
def test_releases_and_reports_that_are_not_there(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_machines_can_be_adopted(client: TestClient) -> None:
    text = client.get("/machines").text
    assert "imagebuilder adopt 52:54:00:aa:00:01" in text
    found = client.get("/api/v1/machines").json()["machines"]
    assert [each["firmware"] for each in found] == ["UEFI", ""]


def test_what_strangers_and_programs_said_is_text(world: FleetWorld) -> None:
    asked = world.tree.dhcp_clients
    asked.write_text(asked.read_text().replace("PXEClient", ATTACK))
    for night in (world.reports / "nights").glob("*.json"):
        night.write_text(night.read_text().replace("builder-1", ATTACK))
    rollout = world.tree.rollout("rx7600xt")
    rollout.write_text(rollout.read_text().replace("its health", ATTACK))
    manifest = world.tree.release(ReleaseName("generic", NEW)) / "manifest.json"
    manifest.write_text(manifest.read_text().replace("Nodes that compute", ATTACK))
    client = TestClient(make_app(make_site(world), ["testserver"]))
    shown = 0
    for path in ("/machines", "/nightly", "/rollouts", "/releases", f"/releases/generic/{NEW}"):
        text = client.get(path).text
        assert ATTACK not in text
        shown += "&lt;script&gt;" in text
    assert shown == 3


def test_a_damaged_roll_out_is_told(world: FleetWorld) -> None:
    world.tree.rollout("rx7600xt").write_text("{")
    client = TestClient(make_app(make_site(world), ["testserver"]))
    assert "Files that cannot be read" in client.get("/").text


def test_nightly_runs_as_json(client: TestClient) -> None:
    found = client.get("/api/v1/nightly").json()["nightly"]
    assert len(found) == 9
    assert found[0]["id"] > found[-1]["id"]
    assert json.dumps(found).count('"failed": true') >= 1


def test_answers_to_any_number_of_questions_are_kept_up_to_a_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("imagebuilder.web.site.KEPT_BYTES", 1000)
    site = make_site(make_world(tmp_path, racks=1, each=2))
    made: list[str] = []

    def ask(key: str) -> None:
        def make() -> bytes:
            made.append(key)
            return bytes(300)

        site.once(key, site.snapshot, make)

    for key in ("a", "b", "c", "d", "a", "b", "c", "d", "e"):
        ask(key)
    assert made == ["a", "b", "c", "d", "d", "e"]
