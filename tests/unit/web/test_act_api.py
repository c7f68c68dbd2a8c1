# SPDX-License-Identifier: Apache-2.0
"""Actions by the API: a token in a header, JSON, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from jsonschema import Draft202012Validator

from imagebuilder.digest import Json
from imagebuilder.web.action_journal import ActionState
from tests.unit.web.acting import ActingSite

PATH = "/api/v1/actions"
ORDER: dict[str, Json] = {"verb": "rollback", "profile": "generic"}


def bearer(people: ActingSite, name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {people.tokens[name]}"}


def test_an_action_and_what_is_on_record_of_it(people: ActingSite) -> None:
    answer = people.client.post(PATH, json=ORDER, headers=bearer(people, "release"))
    assert answer.status_code == 202, answer.text
    place = answer.headers["location"]
    assert place == f"{PATH}/{answer.json()['id']}"
    people.ended()
    schemas = people.client.get("/api/v1/openapi.json").json()["components"]["schemas"]
    for path, model in ((place, "ApiActionDetail"), (PATH, "ApiActions")):
        value = people.client.get(path).json()
        schema = {"$ref": f"#/components/schemas/{model}", "components": {"schemas": schemas}}
        Draft202012Validator(schema).validate(value)
    shown = people.client.get(place).json()
    assert (shown["by"], shown["state"], shown["from"]) == ("release", "failed", "testclient")
    assert shown["command"] == "imagebuilder rollback -- generic"
    assert shown["lines"]


def test_a_cookie_is_no_token(people: ActingSite) -> None:
    people.log_in("admin")
    answer = people.client.post(PATH, json=ORDER)
    assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
    assert people.records() == ()


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": "Bearer ibt_wrong"}, 401),
        ({"authorization": "Bearer "}, 401),
        ({"authorization": "Basic YTpi"}, 401),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "null"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"host": "evil.example"}, 421),
        ({"content-type": "text/plain"}, 415),
        ({"content-type": "application/x-www-form-urlencoded"}, 415),
    ],
    ids=str,
)
def test_requests_that_must_not_work(
    steady_people: ActingSite, headers: Mapping[str, str], status: int
) -> None:
    sent = {"content-type": "application/json", **bearer(steady_people, "admin"), **headers}
    body = b'{"verb": "rollback", "profile": "generic"}'
    assert steady_people.client.post(PATH, content=body, headers=sent).status_code == status
    assert steady_people.records() == ()


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_but_reading_and_posting(steady_people: ActingSite, method: str) -> None:
    answer = steady_people.client.request(method, PATH, headers={"origin": "http://evil.example"})
    assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD, POST")
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b'{"verb": "sh"}', b'{"verb": "promote", "release": "p@1\\n"}',
     b'{"verb": "down", "nodes": ["--force"]}', b'{"verb": "down", "nodes": ["n1"], "x": 1}'],
)  # fmt: skip
def test_orders_that_are_none(steady_people: ActingSite, body: bytes) -> None:
    sent = {"content-type": "application/json", **bearer(steady_people, "admin")}
    answer = steady_people.client.post(PATH, content=body, headers=sent)
    assert (answer.status_code, [*answer.json()]) == (400, ["error"])
    assert steady_people.records() == ()


def test_a_role_too_small(people: ActingSite) -> None:
    answer = people.client.post(PATH, json=ORDER, headers=bearer(people, "power"))
    assert answer.status_code == 403
    assert "takes the role release" in answer.json()["error"]
    assert people.records()[0].state is ActionState.REFUSED


def test_what_is_not_on_record(people: ActingSite) -> None:
    for key in ("x", "..%2f..%2fetc", "20261123T000000-00000000"):
        assert people.client.get(f"{PATH}/{key}").status_code == 404
