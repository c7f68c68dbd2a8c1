# SPDX-License-Identifier: Apache-2.0
"""What reads each kind of file: good beginnings, and a function that takes a mutated one in."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.checks.facts import Facts
from imagebuilder.cli.summary import render_image
from imagebuilder.decode import decode_box, encode_box
from imagebuilder.digest import canonical_json
from imagebuilder.errors import InputError
from imagebuilder.families.apt.mirrors import find_mirrors
from imagebuilder.families.apt.release import check_ends, check_names, read_release
from imagebuilder.families.apt.solving import locked_source
from imagebuilder.families.freshness import tell_old
from imagebuilder.image.diff import diff_images
from imagebuilder.image.types import Image, decode_image, encode_image, find_image
from imagebuilder.live.entries import load_live
from imagebuilder.lock.file import load_lock, render_lock
from imagebuilder.nightly.history import load_run
from imagebuilder.nodes.config import read_config
from imagebuilder.nodes.evidence.records import read_evidence
from imagebuilder.nodes.evidence.tickets import read_leases, read_tickets
from imagebuilder.nodes.evidence.usage import note_reports
from imagebuilder.nodes.load import load_nodes
from imagebuilder.nodes.show import render_shown, show_node
from imagebuilder.process import Completed
from imagebuilder.proof.reading.python import read_environment
from imagebuilder.proof.reading.report import MARK
from imagebuilder.proof.subject import Subject
from imagebuilder.publish.channel.gate import find_unproved
from imagebuilder.publish.channel.standing import read_memo, root_kind
from imagebuilder.publish.journal import find_history, read_tail
from imagebuilder.publish.release.content import read_identities
from imagebuilder.publish.transport.ssh import parse_answer, parse_remote
from imagebuilder.recipe.positions import parse_document
from imagebuilder.recipe.types import Source
from imagebuilder.report.page import render_page
from imagebuilder.report.save import load_report
from imagebuilder.root import Root
from imagebuilder.serve.interface import parse_links
from imagebuilder.store.records import find_record, record_file
from imagebuilder.tree import ReleaseName, Tree
from tests.fleet_world import mac_of, name_of
from tests.fuzz import fleet, rpm, seeds
from tests.unit.nodes_world import node_tree
from tests.unit.recipe.conftest import HERE, Project, make_project

Load = Callable[[bytes], None]

NOW = 1_757_500_000
GOOD = HERE / "cases" / "good"
OVERLAY = "overlays/a/overlay.yaml"
PROFILE, VERSION = seeds.PROFILE, seeds.VERSION


@dataclass(frozen=True)
class Target:
    """A kind of file: `begin` makes what stays around it and gives what reads a mutated one."""

    seeds: tuple[bytes, ...]
    begin: Callable[[Path], Load]


def writing(path: Path, load: Callable[[], object]) -> Load:
    """Write a mutated file to its place, and load it."""

    def take_in(content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        load()

    return take_in


def in_project(*parts: str) -> Callable[[Path], Load]:
    """A project with a profile, of which one file is mutated; all of it must be plain values."""

    def begin(place: Path) -> Load:
        project = Project(make_project(place / "project", GOOD))
        # Most of a case's time goes into what it does not mutate: no more of that than is needed.
        overlay = parse_document((GOOD / OVERLAY).read_bytes(), "good").value
        small = {key: overlay[key] for key in ("description", "vars", "files", "scripts")}
        project.write({"site.yaml": seeds.SITE.decode(), OVERLAY: json.dumps(small)})

        def load() -> None:
            recipe = project.load()
            canonical_json(dataclasses.asdict(recipe)["vars"])
            json.dumps(dataclasses.asdict(recipe), default=repr).encode()

        return writing(project.root.joinpath(*parts), load)

    return begin


def begin_nodes(place: Path) -> Load:
    """nodes.yaml of a tree."""
    tree = node_tree(place)

    def load() -> None:
        for node in load_nodes(tree).nodes:
            json.dumps(node.as_json()).encode()

    return writing(tree.nodes_file, load)


def begin_lock(place: Path) -> Load:
    """A lock file; what can be loaded can be written."""
    path = place / "p.lock"
    return writing(path, lambda: render_lock(load_lock(path)).encode())


def render_subject(subject: Subject) -> object:
    """All that a proof takes of an image."""
    return subject.family, subject.packages, subject.wheels, subject.enabled, subject.targets


def begin_manifest(place: Path) -> Load:
    """The manifest of an image, through everything that takes one apart."""
    good = decode_image(json.dumps(seeds.MANIFEST), "good")
    uses: tuple[Callable[[Image], object], ...] = (
        encode_image,
        find_unproved,
        lambda image: diff_images(good, image),
        lambda image: render_image(image).encode(),
        lambda image: (image.inputs, image.groups),
        lambda image: (image.users, image.units),
        lambda image: render_subject(Subject(image, Root(place), ask)),
        lambda image: decode_box(Facts, encode_box(Facts(image), nulls=False), "facts"),
    )

    def take_in(content: bytes) -> None:
        image = decode_image(content, "manifest.json")
        for use in uses:
            try:
                use(image)
            except InputError:
                continue

    return take_in


def ask(argv: Sequence[str], *, seconds: int = 1) -> Completed:
    """Nobody to ask."""
    del argv, seconds
    return Completed(1, "", "")


def begin_release(place: Path) -> Load:
    """The manifest of a release in a tree, for lists and gates that must go on without it."""
    tree = node_tree(place)
    release = ReleaseName(PROFILE, VERSION)
    folder = tree.release(ReleaseName(PROFILE, VERSION))

    def load() -> None:
        root_kind(tree, release)
        find_image(folder)

    return writing(folder / "manifest.json", load)


def begin_report(place: Path) -> Load:
    """The report of a boot test, and its page."""
    given = json.loads(seeds.report_text())
    folder = Tree(place).reports(ReleaseName(given["profile"], given["version"])) / given["id"]

    def load() -> None:
        render_page(load_report(folder), {}).encode()

    return writing(folder / "report.json", load)


def begin_night(place: Path) -> Load:
    """The record of a night, and its page."""
    path = place / "nights" / f"{json.loads(seeds.night_text())['id']}.json"
    return writing(path, lambda: load_run(path))


def begin_verified(place: Path) -> Load:
    """What verified files looked like."""
    tree = Tree(place)
    path = tree.verified(ReleaseName(PROFILE, VERSION))
    return writing(path, lambda: read_identities(tree, ReleaseName(PROFILE, VERSION)))


def begin_standing(place: Path) -> Load:
    """What the reports of a release came to."""
    return writing(place / "memo.json", lambda: read_memo(place / "memo.json", "ab"))


def begin_journal(place: Path) -> Load:
    """The journal of a tree."""
    path = place / "journal"
    return writing(path, lambda: find_history(read_tail(path), PROFILE, "stable", "v3"))


def begin_record(place: Path) -> Load:
    """What is known of a layer."""
    return writing(record_file(place, seeds.SHA), lambda: find_record(place, seeds.SHA))


def begin_live(place: Path) -> Load:
    """A live system."""
    return writing(place / "live.json", lambda: load_live(place / "live.json"))


def begin_seen(place: Path) -> Load:
    """The record of a node's boots: it may be damaged, and then counts as in use."""
    tree = node_tree(place)
    tree.nodes_file.write_bytes(seeds.NODES)
    nodes = load_nodes(tree)

    def load() -> None:
        read_evidence(tree, nodes)
        render_shown(show_node(tree, nodes.nodes[0])).encode()

    return writing(tree.seen(seeds.SEEN["mac"]), load)


def begin_reports(place: Path) -> Load:
    """The web server's log of nodes' reports."""
    tree = node_tree(place)
    tree.nodes_file.write_bytes(seeds.NODES)
    nodes = load_nodes(tree)

    def load() -> None:
        (tree.serve / "reports.offset").unlink(missing_ok=True)
        note_reports(tree, nodes)

    return writing(tree.reports_log, load)


def begin_tickets(place: Path) -> Load:
    """The secrets that nodes report with."""
    tree = node_tree(place)
    return writing(tree.tickets, lambda: read_tickets(tree.tickets))


def begin_leases(place: Path) -> Load:
    """dnsmasq's leases."""
    return writing(place / "leases", lambda: read_leases(place / "leases"))


def begin_given(place: Path) -> Load:
    """What a node was given at a boot."""
    tree, name = Tree(place), "0123456789abcdef"
    return writing(tree.node_configs / f"{name}.json", lambda: read_config(tree, name))


def begin_apt_release(place: Path) -> Load:
    """A Release file whose signature is good."""
    source = Source("debian", ("trixie",), ("main",), place / "key", mirror="debian")

    def take_in(content: bytes) -> None:
        (place / "InRelease").write_bytes(content)
        release = read_release(source, "trixie", f"{place}/")
        json.dumps(dataclasses.asdict(locked_source(release, NOW)))
        check_names([release], say)
        tell_old([release], NOW, say)
        check_ends((release,), NOW, say)

    return take_in


def say(text: str) -> None:
    """What a person would be told must be text."""
    text.encode()


def begin_apt_sources(place: Path) -> Load:
    """The apt sources of the host."""

    def take_in(content: bytes) -> None:
        for name in ("sources.list", "sources.list.d/a.sources"):
            (place / name).parent.mkdir(exist_ok=True)
            (place / name).write_bytes(content)
        find_mirrors({}, {}, place)

    return take_in


def begin_answer(place: Path) -> Load:
    """What the other machine answers over ssh."""
    del place
    remote = parse_remote("ssh://node/srv/netboot")
    return lambda content: use_text(content, lambda t: parse_answer(remote, Completed(0, t, "")))


def begin_environment(place: Path) -> Load:
    """What a Python of an image says of itself."""
    del place
    return lambda content: use_text(
        content, lambda text: read_environment(Completed(0, f"{MARK}{text}\n", ""))
    )


def use_text(content: bytes, use: Callable[[str], object]) -> None:
    """Give it as process.run() reads what a program prints."""
    use(content.decode(errors="replace"))


def as_json(value: object) -> tuple[bytes, ...]:
    """A value as the only seed."""
    return (json.dumps(value).encode(),)


ENVIRONMENT = {"python": "3.13", "modules": {"a": {"version": "1", "failure": ""}}, "torch": None}
TARGETS: dict[str, Target] = {
    "recipe": Target(
        ((GOOD / "recipes/p.yaml").read_bytes(), *seeds.shipped("recipes/*.yaml")),
        in_project("recipes", "p.yaml"),
    ),
    "overlay": Target(
        (
            (GOOD / OVERLAY).read_bytes(),
            *seeds.shipped("overlays/*/overlay.yaml"),
        ),
        in_project(OVERLAY),
    ),
    "template": Target(
        (seeds.TEMPLATE, (GOOD / "overlays/a/files/etc/server.conf.j2").read_bytes()),
        in_project("overlays", "a", "files", "etc", "server.conf.j2"),
    ),
    "base": Target(
        ((HERE / "base/debian-trixie.yaml").read_bytes(), *seeds.shipped("recipes/bases/*.yaml")),
        in_project("recipes", "bases", "debian-trixie.yaml"),
    ),
    "site": Target((seeds.SITE,), in_project("site.yaml")),
    "nodes": Target((seeds.NODES,), begin_nodes),
    "lock": Target((seeds.lock_text(),), begin_lock),
    "manifest": Target(as_json(seeds.MANIFEST), begin_manifest),
    "release": Target(as_json(seeds.MANIFEST), begin_release),
    "report": Target((seeds.report_text(),), begin_report),
    "night": Target((seeds.night_text(),), begin_night),
    "verified": Target(as_json({"vmlinuz": [1, 2, 3, 4]}), begin_verified),
    "standing": Target(
        as_json({"seen": "ab", "state": "passed", "why": "", "report": "r"}), begin_standing
    ),
    "journal": Target((seeds.journal_text(),), begin_journal),
    "record": Target(as_json(seeds.RECORD), begin_record),
    "live": Target(as_json(seeds.LIVE), begin_live),
    "given": Target(as_json(seeds.GIVEN), begin_given),
    "seen": Target(as_json(seeds.SEEN), begin_seen),
    "reports": Target((seeds.REPORTS,), begin_reports),
    "tickets": Target(as_json(seeds.TICKETS), begin_tickets),
    "leases": Target((seeds.LEASES,), begin_leases),
    "apt-release": Target((seeds.RELEASE,), begin_apt_release),
    "apt-sources": Target((seeds.SOURCES,), begin_apt_sources),
    "rpm-repomd": Target((rpm.REPOMD,), rpm.begin_repomd),
    "rpm-modules": Target((rpm.MODULES,), rpm.begin_modules),
    "rpm-verified": Target((rpm.VERIFIED,), rpm.begin_verified),
    "links": Target(
        as_json(seeds.LINKS),
        lambda _: lambda content: use_text(content, lambda text: parse_links(text, "eth1")),
    ),
    "answer": Target((b'{\n "protocol": 3, "refs": {}, "free": 1}\n',), begin_answer),
    "environment": Target(as_json(ENVIRONMENT), begin_environment),
    "fleet-seen": Target((fleet.SEEN_TEXT,), fleet.placing(lambda tree: tree.seen(mac_of(1)))),
    "fleet-boots": Target((fleet.BOOTS_TEXT,), fleet.placing(lambda tree: tree.boots)),
    "fleet-rollout": Target((fleet.ROLLOUT_TEXT,), fleet.placing(lambda t: t.rollout("rx7600xt"))),
    "fleet-clients": Target((fleet.CLIENTS_TEXT,), fleet.placing(lambda tree: tree.dhcp_clients)),
    "fleet-health": Target((fleet.HISTORY_TEXT,), fleet.placing(lambda t: t.health(name_of(1)))),
}
