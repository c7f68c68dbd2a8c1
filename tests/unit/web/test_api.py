# SPDX-License-Identifier: Apache-2.0
"""The API answers what its document says, and the document names everything."""

from __future__ import annotations

import json
import re
from html import unescape

import pytest
from jsonschema import Draft202012Validator
from starlette.testclient import TestClient

from imagebuilder.nodes.evidence.boots import NodeBoots, write_boots
from imagebuilder.web.api import ENDPOINTS, PREFIX
from imagebuilder.web.app import make_app
from tests.fleet_world import NEW, OLD, FleetWorld, make_site

PATHS = (
    "/nodes", "/nodes/node040", "/releases", f"/releases/rx7600xt/{OLD}", "/rollouts",
    "/rollouts/rx7600xt", "/nightly", "/machines",
)  # fmt: skip


@pytest.fixture
def client(world: FleetWorld) -> TestClient:
    world.plant_history()
    return TestClient(make_app(make_site(world), ["testserver"]))


def pattern(path: str) -> re.Pattern[str]:
    return re.compile(PREFIX + re.sub(r"\{\w+\}", "[^/]+", path))


def test_every_answer_is_as_the_document_says(client: TestClient) -> None:
    document = client.get(f"{PREFIX}/openapi.json").json()
    for endpoint, path in zip(ENDPOINTS, PATHS, strict=True):
        assert pattern(endpoint.path).fullmatch(PREFIX + path)
        answer = client.get(PREFIX + path)
        assert answer.status_code == 200, path
        described = document["paths"][PREFIX + endpoint.path]["get"]["responses"]["200"]
        schema = described["content"]["application/json"]["schema"]
        whole = {**schema, "components": document["components"]}
        Draft202012Validator(whole).validate(answer.json())
        # The models forbid what they do not name, so that nothing goes out undocumented.
        endpoint.model.model_validate_json(answer.content)


def test_the_document_names_every_route(client: TestClient) -> None:
    document = client.get(f"{PREFIX}/openapi.json").json()
    assert document["openapi"].startswith("3.1")
    assert {*document["paths"]} == {
        *(PREFIX + endpoint.path for endpoint in ENDPOINTS), f"{PREFIX}/events",
        f"{PREFIX}/actions", f"{PREFIX}/actions/{{id}}",
    }  # fmt: skip
    names = re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document))
    assert {*names} <= {*document["components"]["schemas"]}


def test_a_node_says_what_the_command_says(client: TestClient) -> None:
    found = client.get(f"{PREFIX}/nodes/node015").json()
    assert found["release"] == f"generic@{OLD}"
    assert found["next"] == f"generic@{NEW}"
    assert found["condition"] == "ready"
    assert found["current"] is False
    assert [each["source"] for each in found["evidence"]] == ["ssh", "report"]


def test_nodes_are_chosen(client: TestClient) -> None:
    def names(query: str) -> list[str]:
        return [n["node"] for n in client.get(f"{PREFIX}/nodes?{query}").json()["nodes"]]

    assert len(names("")) == 80
    assert names("state=failed") == ["node040"]
    assert names("nodes=node040,node041") == ["node040", "node041"]
    assert len(names("group=rack2")) == 40


def test_a_release_names_who_runs_it(client: TestClient) -> None:
    found = client.get(f"{PREFIX}/releases/generic/{OLD}").json()
    assert found["nodes"] == ["node015", "node055"]
    assert found["channels"] == []


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nodes?state=well", 400),
        ("/nodes?nodes=none", 400),
        ("/nodes/none", 404),
        ("/releases/rx7600xt/none", 404),
        ("/releases/../x", 404),
        ("/releases/..%2f..%2f..%2fnodes/node000", 404),
        ("/rollouts/none", 404),
        ("/none", 404),
    ],
)
def test_errors_are_json(client: TestClient, path: str, status: int) -> None:
    answer = client.get(PREFIX + path)
    assert answer.status_code == status
    assert [*answer.json()] == ["error"]


def test_what_the_page_of_a_node_shows_is_json_too(client: TestClient, world: FleetWorld) -> None:
    record = NodeBoots("node003", (f"rx7600xt@{OLD}",), {f"rx7600xt@{NEW}": 1})
    write_boots(world.tree, {"node003": record})
    found = client.get(f"{PREFIX}/nodes/node003").json()
    assert found["confirmed"] == [f"rx7600xt@{OLD}"]
    assert found["tries"] == {f"rx7600xt@{NEW}": 1}
    assert found["fell-back-from"] is None
    assert (found["power"], found["login"]) == ("ssh", "compute")


def test_what_the_page_of_a_release_shows_is_json_too(client: TestClient) -> None:
    found = client.get(f"{PREFIX}/releases/generic/{OLD}").json()
    (report,) = found["reports"]
    assert not report["passed"]
    assert report["words"].startswith("FAILED")
    page = client.get(f"/releases/generic/{OLD}/reports/{report['id']}")
    assert page.status_code == 200
    newer = client.get(f"{PREFIX}/releases/rx7600xt/{NEW}").json()
    assert {each["question"] for each in newer["findings"]} == {*newer["proof"]}
    text = unescape(client.get(f"/releases/rx7600xt/{NEW}").text)
    assert all(each["what"] in text for each in newer["findings"])
