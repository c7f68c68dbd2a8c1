# SPDX-License-Identifier: Apache-2.0
"""Log in, confirm, see what came of it; and everything that must not work."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from imagebuilder.web.action_journal import ActionState
from imagebuilder.web.session import COOKIE, IDLE, LONGEST
from imagebuilder.web.tokens import remove_token
from tests.fleet_world import NEW, OLD, FleetWorld
from tests.unit.web.acting import FORM, ORIGIN, ActingSite

pytestmark = pytest.mark.slow

PLAIN = {"verb": "rollback", "profile": "generic"}
PAGES = ("/", "/nodes/node001", f"/releases/rx7600xt/{NEW}", "/rollouts")
ATTACK = "<script>alert(1)</script>'\"><img src=x onerror=alert(2)>"


def test_without_a_token_nothing_is_different(client: TestClient, world: FleetWorld) -> None:
    world.plant_history()
    for path in PAGES:
        page = client.get(path).text
        assert "/act" not in page, path
        assert "this server only reads" in page
    for path in ("/login", "/act?verb=up&nodes=node001", "/actions"):
        assert client.get(path).status_code == 404, path
    for path in ("/login", "/act", "/logout", "/api/v1/actions"):
        answer = client.post(path, content=b"")
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD"), path


def test_buttons_lead_to_what_they_say(people: ActingSite) -> None:
    people.log_in("admin")
    for path, wanted in {
        "/nodes/node001": ("/act?verb=restart&amp;nodes=node001", "Restart node001?"),
        f"/releases/rx7600xt/{NEW}": (
            f"/act?verb=rollout&amp;release=rx7600xt%40{NEW}", f"Roll out rx7600xt@{NEW}?",
        ),
        f"/releases/generic/{NEW}": (
            "/act?verb=rollback&amp;profile=generic", "Roll back generic?",
        ),
        "/rollouts": ("/act?verb=abort&amp;profile=rx7600xt", "Abort rx7600xt?"),
    }.items():  # fmt: skip
        place, title = wanted
        assert f'href="{place}"' in people.client.get(path).text, path
        assert f"<h1>{title}</h1>" in people.client.get(place.replace("&amp;", "&")).text


def test_it_is_confirmed_done_and_on_record(people: ActingSite) -> None:
    """A roll-back that the product refuses, because there is no release before."""
    place = "/act?verb=rollback&profile=generic"
    first = people.client.get(place)
    assert (first.status_code, first.headers["location"][:12]) == (303, "/login?next=")
    done = people.log_in("release", next=place)
    assert done.headers["location"] == place
    page = people.client.get(place).text
    assert "imagebuilder rollback -- generic" in page
    assert "Moves stable of generic back to the release before." in page
    answer = people.act(**PLAIN)
    assert answer.status_code == 303, answer.text
    record = people.ended()
    assert answer.headers["location"] == f"/actions/{record.begun.id}"
    assert (record.begun.by, record.begun.role, record.begun.address) == (
        "release", "release", "testclient",
    )  # fmt: skip
    assert (record.state, record.ended and record.ended.status) == (ActionState.FAILED, 2)
    page = people.client.get(answer.headers["location"]).text
    assert "exit status 2" in page
    assert "generic" in people.client.get("/actions").text


def test_what_is_promoted_is_named(people: ActingSite) -> None:
    people.log_in("release")
    page = people.client.get("/act?verb=promote&release=rx7600xt").text
    assert f"imagebuilder promote -- rx7600xt@{NEW}" in page
    page = people.client.get("/act?verb=down&nodes=@rack1!node[001-039]").text
    assert "imagebuilder down -- node000" in page


@pytest.mark.parametrize(
    ("headers", "secure"),
    [
        ({}, False),
        ({"x_forwarded_proto": "http"}, False),
        ({"origin": "https://testserver"}, True),
        ({"origin": "https://testserver", "x_forwarded_proto": "http"}, True),
        ({"origin": "https://testserver", "x_forwarded_proto": "https"}, True),
        ({"origin": "", "x_forwarded_proto": "HTTPS"}, True),
    ],
)
def test_the_cookie(people: ActingSite, headers: Mapping[str, str], *, secure: bool) -> None:
    answer = people.post("/login", {"token": people.tokens["power"]}, **headers)
    assert answer.status_code == 303, answer.text
    cookie = answer.headers["set-cookie"]
    words = [word.strip().lower() for word in cookie.split(";")]
    assert {"httponly", "samesite=strict", "path=/"} <= {*words}
    assert ("secure" in words) is secure
    assert people.tokens["power"] not in cookie


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://testserver.evil.example"}, 403),
        ({"origin": "http://testserver:8471"}, 403),
        ({"origin": "null"}, 403),
        ({"x_forwarded_proto": "https"}, 403),  # and the page was a plain one
        ({"origin": "https://evil.example", "x_forwarded_proto": "https"}, 403),
        ({"origin": "", "x_forwarded_host": "testserver", "sec_fetch_site": ""}, 403),
        ({"sec_fetch_site": "cross-site"}, 403),
        ({"sec_fetch_site": "same-site"}, 403),
        ({"origin": "", "sec_fetch_site": ""}, 403),
        ({"host": "evil.example"}, 421),
        ({"content_type": "text/plain"}, 415),
        ({"content_type": "multipart/form-data; boundary=x"}, 415),
        ({"content_type": "application/json"}, 415),
        ({"content_type": ""}, 415),
    ],
)  # fmt: skip
def test_a_form_of_a_page_elsewhere(
    steady_people: ActingSite, headers: Mapping[str, str], status: int
) -> None:
    steady_people.log_in("admin")
    fields = {"csrf": steady_people.csrf(), **PLAIN}
    for path in ("/act", "/login", "/logout"):
        assert steady_people.post(path, fields, **headers).status_code == status, path
    assert steady_people.records() == ()
    assert steady_people.csrf() == fields["csrf"]  # still logged in


def test_two_origins_are_one_too_many(people: ActingSite) -> None:
    people.log_in("admin")
    sent = [("origin", ORIGIN), ("origin", "http://evil.example"), *FORM.items()]
    assert people.client.post("/act", content="csrf=x", headers=sent).status_code == 403


def test_a_form_without_the_secret_of_its_session(people: ActingSite) -> None:
    people.log_in("admin")
    other = people.another()
    other.log_in("release")
    for csrf in ({}, {"csrf": ""}, {"csrf": other.csrf()}, {"csrf": "\u00e9"}):
        assert people.post("/act", {**csrf, **PLAIN}).status_code == 403
        assert people.post("/logout", csrf).status_code == 403
    assert people.records() == ()


@pytest.mark.parametrize(
    "place",
    ["//evil.example/", "/\\evil.example", "https://evil.example/", "/act?x\r\nSet-Cookie: a=b",
     "javascript:alert(1)", "/act?verb=up\n", "/actions/../login", "/nodes/node001"],
)  # fmt: skip
def test_a_log_in_leads_nowhere_else(steady_people: ActingSite, place: str) -> None:
    answer = steady_people.log_in("power", next=place)
    assert answer.headers["location"] == "/actions"
    assert [*answer.headers].count("set-cookie") == 1
    assert (
        steady_people.client.get("/login", params={"next": place}).text.count('value="/actions"')
        == 1
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"verb": "down", "nodes": "--force"},
        {"verb": "down", "nodes": "-h"},
        {"verb": "down", "nodes": "node001 --yes"},
        {"verb": "down", "nodes": "node001;id"},
        {"verb": "down", "nodes": "$(id)"},
        {"verb": "down", "nodes": "../../etc/passwd"},
        {"verb": "down", "nodes": "node999"},
        {"verb": "down", "nodes": "@none"},
        {"verb": "down", "nodes": "node[0-99999999999]"},
        {"verb": "down"},
        {"verb": "down", "nodes": "node001", "profile": "generic"},
        {"verb": "up", "nodes": "node001", "force": "on"},
        {"verb": "up", "nodes": "node001", "yes": "on"},
        {"verb": "down", "group": ""},
        {"verb": "down", "group": "none"},
        {"verb": "down", "state": "none"},
        {"verb": "rollback", "group": "rack1"},
        {"verb": "promote", "release": "--untested=because"},
        {"verb": "promote", "release": "rx7600xt@--untested"},
        {"verb": "promote", "release": f"rx7600xt@{OLD}@{NEW}"},
        {"verb": "promote", "release": "../rx7600xt"},
        {"verb": "promote", "release": "nobody"},
        {"verb": "rollback", "profile": "-x"},
        {"verb": "rollback", "profile": "a b"},
        {"verb": "rollout", "release": "rx7600xt", "batch": "--at-once=9"},
        {"verb": "rollout", "release": "rx7600xt", "canary": "--untested=x"},
        {"verb": "publish", "release": "rx7600xt"},
        {"verb": "UP", "nodes": "node001"},
        {"nodes": "node001"},
        {},
    ],
    ids=str,
)
def test_what_is_no_order(steady_people: ActingSite, fields: dict[str, str]) -> None:
    steady_people.log_in("admin")
    answer = steady_people.act(**fields)
    assert answer.status_code in (400, 404), answer.text
    shown = steady_people.client.get("/act", params=fields)
    assert shown.status_code in (400, 404)
    assert steady_people.records() == ()


def test_a_role_that_is_for_something_else(people: ActingSite) -> None:
    people.log_in("power")
    page = people.client.get("/act?verb=rollback&profile=generic")
    assert page.status_code == 403
    assert "<button" not in page.text
    assert people.act(**PLAIN).status_code == 403
    (record,) = people.records()
    assert (record.state, record.begun.by) == (ActionState.REFUSED, "power")
    assert "takes the role release" in people.client.get("/actions").text


def test_a_token_that_was_removed_ends_its_sessions(people: ActingSite) -> None:
    people.log_in("release")
    csrf = people.csrf()
    remove_token(people.file, "release")
    answer = people.post("/act", {"csrf": csrf, **PLAIN})
    assert answer.status_code == 401
    assert "token was removed" in answer.text
    assert "Not logged in" in people.client.get("/actions").text
    assert people.records() == ()


def test_a_session_that_was_ended_is_not_taken_up_again(people: ActingSite) -> None:
    people.log_in("release")
    csrf, cookie = people.csrf(), people.client.cookies[COOKIE]
    assert people.post("/logout", {"csrf": csrf}).status_code == 303
    people.client.cookies.set(COOKIE, cookie)
    answer = people.post("/act", {"csrf": csrf, **PLAIN})
    assert answer.headers["location"].startswith("/login")
    people.log_in("release")  # and no session has an id that a browser brought along
    assert people.site.sessions.find(cookie, "testclient") is None
    assert people.records() == ()


@pytest.mark.parametrize(("field", "seconds"), [("used", IDLE), ("begun", LONGEST)])
def test_a_session_ends(people: ActingSite, field: str, seconds: float) -> None:
    people.log_in("release")
    session = people.site.sessions.find(people.client.cookies[COOKIE], "testclient")
    assert session
    setattr(session, field, getattr(session, field) - seconds - 1)
    assert "Not logged in" in people.client.get("/actions").text


def test_who_is_wrong_too_often_has_to_wait(people: ActingSite) -> None:
    for _ in range(10):
        assert people.post("/login", {"token": "ibt_guess"}).status_code == 401
    right = people.log_in("admin")
    assert (right.status_code, COOKIE in right.headers.get("set-cookie", "")) == (429, False)
    bearer = {"authorization": f"Bearer {people.tokens['admin']}"}
    assert people.client.post("/api/v1/actions", json=PLAIN, headers=bearer).status_code == 429
    assert people.another("10.0.0.9").log_in("admin").status_code == 303


def test_a_full_disk_refuses_the_action(people: ActingSite) -> None:
    people.log_in("release")
    people.site.tree.actions.symlink_to("/dev/full")
    answer = people.act(**PLAIN)
    assert answer.status_code == 507
    assert "it cannot be recorded, so it is not done" in answer.text
    assert "the disk is full" in answer.text
    people.site.tree.actions.unlink()
    assert people.records() == ()
    assert not people.site.tree.journal.exists()


def test_what_machines_and_people_say_is_text(people: ActingSite) -> None:
    people.log_in("release")
    people.act(**PLAIN)
    record = people.ended()
    assert record.ended
    journal = people.site.tree.actions
    words = ATTACK.replace('"', '\\"')
    planted = journal.read_text().replace('"by": "release"', f'"by": "{words}"')
    planted = planted.replace(f'"words": "{record.ended.words}"', f'"words": "{words}"')
    journal.write_text(planted)
    people.site.tree.action_log(record.begun.id).write_text(f"$ x\n{ATTACK}\x1b[2J\n")
    sent = quote(ATTACK, safe="")
    places = ("/actions", f"/actions/{record.begun.id}", f"/actions/{sent}")
    for path in (*places, f"/act?verb={sent}", f"/act?verb=up&nodes={sent}", f"/login?next={sent}"):
        page = people.client.get(path).text
        assert "<script>alert" not in page, path
        assert "<img" not in page, path
        assert "\x1b" not in page
    assert "&lt;script&gt;" in people.client.get(f"/actions/{record.begun.id}").text
    assert people.client.get("/actions").headers["content-security-policy"].count("unsafe") == 0


def test_a_journal_names_no_file_of_the_host(people: ActingSite, tmp_path: Path) -> None:
    people.log_in("release")
    people.act(**PLAIN)
    record = people.ended()
    secret = tmp_path / "secret.log"
    secret.write_text("not for you\n")
    away = os.path.relpath(secret, people.site.tree.actions.with_name("actions"))[:-4]
    journal = people.site.tree.actions
    journal.write_text(journal.read_text().replace(record.begun.id, away))
    assert people.records() == ()
    for path in (f"/actions/{quote(away, safe='')}", f"/api/v1/actions/{quote(away, safe='')}"):
        answer = people.client.get(path)
        assert (answer.status_code, "not for you" in answer.text) == (404, False)


def test_a_body_that_is_too_long_or_no_form(people: ActingSite) -> None:
    assert people.post("/login", {"token": "x" * 200_000}).status_code == 413
    many = {f"x{number}": "" for number in range(100)}
    assert people.post("/login", many).status_code == 400
    headers = {"origin": ORIGIN, **FORM}
    for body in (b"\xff\xfe", b"token", b"token=%ff"):
        answer = people.client.post("/login", content=body, headers=headers)
        assert answer.status_code == 400, body
