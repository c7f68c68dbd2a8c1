# SPDX-License-Identifier: Apache-2.0
"""Acting on a group and on what the filter of the fleet shows; more than one group is asked for."""

from __future__ import annotations

import re
from html import unescape
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.fleet_world import name_of
from tests.unit.web.acting import ActingSite

pytestmark = pytest.mark.slow

RACK1 = " ".join(map(name_of, range(40)))
BOTH = f"{RACK1} node040"
QUESTION = "restart 41 nodes of 2 groups (rack1, rack2): node[000-040]"


def hidden(page: str) -> dict[str, str]:
    """What the form of a page sends without being asked."""
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page)
    return {name: unescape(value) for name, value in found}


def keep_from_acting(people: ActingSite) -> None:
    """From now on commands end before they look for a node; the page goes on with what it knows."""
    people.site.tree.nodes_file.write_text("nodes: [")


@pytest.mark.parametrize(
    ("query", "count", "words"),
    [
        ("group=rack1", "40 nodes", RACK1),
        ("state=failed", "1 node", "node040"),
        ("group=rack2&state=ready&q=node05", "10 nodes", " ".join(map(name_of, range(50, 60)))),
        ("health=missing+device", "1 node", "node050"),
        ("nodes=node00%5B1-3%5D&group=rack1", "3 nodes", "node001 node002 node003"),
    ],
)
def test_what_the_filter_shows(people: ActingSite, query: str, count: str, words: str) -> None:
    """The button counts the nodes, the page after it lists them, and nothing else is sent."""
    people.log_in("power")
    page = people.client.get(f"/?{query}").text
    places = dict(re.findall(r'<a class="button" href="([^"]+)">([^<]+)…</a>', page))
    assert [*places.values()] == [f"{x} {count}" for x in ("Switch on", "Restart", "Shut down")]
    for place in map(unescape, places):
        shown = people.client.get(place)
        assert shown.status_code == 200, shown.text
        assert hidden(shown.text)["nodes"] == words
        listed = re.findall(r'<th scope="row">(node\d+)</th>', shown.text)
        assert listed == words.split()


def test_without_a_filter_or_a_token_there_are_no_such_buttons(people: ActingSite) -> None:
    for path in ("/", "/?group=", "/?q=nothing-fits"):
        assert "/act?" not in people.client.get(path).text, path
    people.file.unlink()
    assert "/act?" not in people.client.get("/?group=rack1").text


def test_a_filter_that_finds_nothing_any_more_acts_on_nothing(people: ActingSite) -> None:
    people.log_in("power")
    answer = people.client.get("/act?verb=restart&q=nothing-fits")
    assert (answer.status_code, "no node fits this filter any more" in answer.text) == (400, True)


def test_whoever_logs_in_first_comes_to_the_same_nodes(people: ActingSite) -> None:
    place = "/act?verb=restart&group=rack1&state=&q=node00"
    led = people.client.get(place).headers["location"]
    (following,) = (value for name, value in parse_qsl(urlsplit(led).query) if name == "next")
    after = people.log_in("power", next=following).headers["location"]
    words = " ".join(map(name_of, range(10)))
    assert hidden(people.client.get(after).text)["nodes"] == words


def test_what_was_confirmed_is_what_is_done(people: ActingSite) -> None:
    people.log_in("power")
    keep_from_acting(people)
    page = people.client.get("/act?verb=restart&group=rack1").text
    assert 'name="yes"' not in page
    answer = people.post("/act", hidden(page))
    assert answer.status_code == 303, answer.text
    assert people.ended().begun.command == f"imagebuilder restart -- {RACK1}"


@pytest.mark.parametrize("verb", ["restart", "down"])
def test_more_than_one_group_is_asked_for(people: ActingSite, verb: str) -> None:
    people.log_in("power")
    keep_from_acting(people)
    question = QUESTION.replace("restart", {"down": "shut down"}.get(verb, verb))
    page = people.client.get("/act", params={"verb": verb, "nodes": BOTH}).text
    assert '<input type="checkbox" name="yes" required>' in page
    assert f"Yes, {question}" in page
    for yes in ({}, {"yes": ""}, {"yes": "off"}):
        answer = people.post("/act", {**hidden(page), **yes})
        assert (answer.status_code, f"not confirmed: {question}?" in answer.text) == (409, True)
    assert people.records() == ()
    answer = people.post("/act", {**hidden(page), "yes": "on"})
    assert answer.status_code == 303, answer.text
    assert people.ended().begun.command == f"imagebuilder {verb} --yes -- {BOTH}"


def test_nobody_is_asked_before_nodes_are_switched_on(people: ActingSite) -> None:
    """As on the command line: that ends nothing."""
    people.log_in("power")
    keep_from_acting(people)
    page = people.client.get("/act", params={"verb": "up", "nodes": BOTH}).text
    assert 'name="yes"' not in page
    assert people.post("/act", hidden(page)).status_code == 303


def test_the_api_asks_the_same(people: ActingSite) -> None:
    keep_from_acting(people)
    headers = {"authorization": f"Bearer {people.tokens['power']}"}
    for nodes in (["@rack1", "node040"], ["node[000-040]"]):
        order = {"verb": "restart", "nodes": nodes}
        answer = people.client.post("/api/v1/actions", json=order, headers=headers)
        said = f"not confirmed: {QUESTION}? `yes` confirms it"
        assert (answer.status_code, answer.json()["error"]) == (409, said)
    assert people.records() == ()
    one = {"verb": "restart", "nodes": ["@rack1"]}
    answer = people.client.post("/api/v1/actions", json=one, headers=headers)
    assert answer.status_code == 202
    assert people.ended().begun.command == "imagebuilder restart -- @rack1"
    answer = people.client.post("/api/v1/actions", json={**order, "yes": True}, headers=headers)
    assert answer.status_code == 202
    assert people.ended().begun.command == "imagebuilder restart --yes -- 'node[000-040]'"


def test_a_group_that_a_node_came_into_meanwhile_is_not_touched(people: ActingSite) -> None:
    """The command asks by itself, by the nodes.yaml of its own time."""
    people.log_in("power")
    page = people.client.get("/act", params={"verb": "restart", "nodes": "node001 node002"}).text
    file = people.site.tree.nodes_file
    text = file.read_text()
    file.write_text(
        text.replace("[52:54:00:77:00:02], group: rack1", "[52:54:00:77:00:02], group: rack2")
    )
    assert people.post("/act", hidden(page)).status_code == 303
    ended = people.ended().ended
    assert ended
    assert ended.status == 2
    said = people.client.get(f"/api/v1/actions/{ended.id}").json()["lines"]
    assert "not confirmed: restart 2 nodes of 2 groups" in "".join(said)
