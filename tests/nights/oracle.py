# SPDX-License-Identifier: Apache-2.0
"""What must hold after every night, read from the files alone: no code of the product looks here.

Each function yields what is wrong, in words.  A rule that the product has too is written down a
second time on purpose.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

NEEDED = {"vmlinuz", "initrd.img", "boot.ipxe", "manifest.json"}
BOOTED = ("vmlinuz", "early.img", "initrd.img", "boot.ipxe")


def examine(tree: Path, profiles: Sequence[str]) -> Iterator[str]:
    """Everything about a netboot tree that must hold at any moment."""
    for profile in profiles:
        yield from examine_stable(tree, profile)
    yield from examine_releases(tree)


def examine_stable(tree: Path, profile: str) -> Iterator[str]:
    """`stable` leads to a release that is whole, has its root, and has booted as it is now."""
    link = tree / "channels" / profile / "stable"
    if not link.is_symlink():
        yield f"{profile}: stable is no symlink"
        return
    place = Path(tree, "channels", profile, link.readlink()).resolve()
    if place.parent != (tree / "http/releases" / profile).resolve():
        yield f"{profile}: stable leads to {link.readlink()}, which is no place of its releases"
        return
    if not place.is_dir():
        yield f"{profile}: stable leads to {place.name}, which does not exist"
        return
    yield from examine_files(place, f"{profile}@{place.name}")
    yield from examine_root(tree, profile, place)
    yield from examine_reports(tree, profile, place)


def examine_files(place: Path, name: str) -> Iterator[str]:
    """The files of a release are those of its SHA256SUMS, byte for byte, and no others."""
    try:
        lines = (place / "SHA256SUMS").read_text().splitlines()
    except OSError as error:
        yield f"{name}: SHA256SUMS cannot be read: {error.strerror}"
        return
    sums = {file: digest for digest, _, file in (line.partition("  ") for line in lines)}
    if missing := NEEDED - sums.keys():
        yield f"{name}: SHA256SUMS does not name {', '.join(sorted(missing))}"
    there = {path.name for path in place.iterdir()} - {"SHA256SUMS"}
    for file in sorted(sums.keys() ^ there):
        yield f"{name}: {file} is {'not there' if file in sums else 'in no SHA256SUMS'}"
    for file in sorted(sums.keys() & there):
        if sha256(place / file) != sums[file]:
            yield f"{name}: {file} is not what SHA256SUMS says"


def examine_root(tree: Path, profile: str, place: Path) -> Iterator[str]:
    """Manifest, root and boot script of a release are of one image."""
    name = f"{profile}@{place.name}"
    try:
        manifest = json.loads((place / "manifest.json").read_text())
        script = (place / "boot.ipxe").read_text()
    except (OSError, ValueError) as error:
        yield f"{name}: manifest or boot script cannot be read: {error}"
        return
    if (manifest["profile"], manifest["version"]) != (profile, place.name):
        yield f"{name}: its manifest is of {manifest['profile']}@{manifest['version']}"
    named = set(re.findall(r"\b\d{14}-[0-9a-f]{8}\b", script))
    if named != {place.name}:
        yield f"{name}: its boot script names {', '.join(sorted(named)) or 'no version'}"
    root = tree / "roots" / profile / place.name
    if not root.is_dir():
        yield f"{name}: its root is not there"
        return
    installed = installed_in(root)
    said = packages_of(manifest)
    if installed != said:
        wrong = sorted(installed.items() ^ said.items())
        yield f"{name}: its root has other packages than its manifest: {wrong}"
    if not (root / "etc/os-release").exists():
        yield f"{name}: its root has no os-release"
    elif f"IMAGE_VERSION={place.name}" not in (root / "etc/os-release").read_text():
        yield f"{name}: its root is of another version"


def examine_reports(tree: Path, profile: str, place: Path) -> Iterator[str]:
    """The newest report of these bytes says that they have booted."""
    name = f"{profile}@{place.name}"
    bytes_ = {file: sha256(place / file) for file in BOOTED if (place / file).exists()}
    commit = tree / "repo/refs/heads/root" / profile / place.name
    bytes_["root"] = commit.read_text().strip() if commit.exists() else "nothing"
    reports = sorted((tree / "reports" / profile / place.name).glob("[!.]*/report.json"))
    own = []
    for path in reports:
        report = json.loads(path.read_text())
        if all(report["digests"].get(file) == digest for file, digest in bytes_.items()):
            own.append(report)
    if not own:
        yield f"{name} is stable without a report of its bytes"
    elif not own[-1]["trials"] or not all(t["verdict"]["passed"] for t in own[-1]["trials"]):
        yield f"{name} is stable although report {own[-1]['id']} did not pass"


def examine_releases(tree: Path) -> Iterator[str]:
    """Every folder that has a release's name is one, and channels lead to such."""
    for place in sorted((tree / "http/releases").glob("*/*")):
        name = f"{place.parent.name}@{place.name}"
        for file in ("SHA256SUMS", "manifest.json", "boot.ipxe", "vmlinuz", "initrd.img"):
            if not (place / file).is_file():
                yield f"{name} is half a release: it has no {file}"
        if not (tree / "roots" / place.parent.name / place.name).is_dir():
            yield f"{name} is half a release: it has no root"
    for link in sorted((tree / "channels").glob("*/[!.]*")):
        if not link.resolve().is_dir():
            yield f"{link.parent.name}: {link.name} leads nowhere"


def examine_tidy(tree: Path, state: Path) -> Iterator[str]:
    """What holds when a night is over: nothing unfinished lies about."""
    for top in (tree / "work", state / "work"):
        for path in sorted(top.iterdir()) if top.is_dir() else ():
            yield f"{path.parent.parent.name}/work: {path.name} was left"
    for path in sorted((tree / "channels").glob("*/.*")):
        yield f"channels: {path.name} was left"
    roots = {path.relative_to(tree / "roots") for path in (tree / "roots").glob("*/*")}
    there = {path.relative_to(tree / "http/releases") for path in tree.glob("http/releases/*/*")}
    for path in sorted(roots - there):
        yield f"roots/{path} has no release"


def examine_retention(tree: Path, keep: int) -> Iterator[str]:
    """Of each profile at most `keep` releases stay, beside what is stable and what was before."""
    for folder in sorted((tree / "http/releases").glob("*")):
        count = len(list(folder.iterdir()))
        if count > keep + 2:
            yield f"{folder.name} has {count} releases, {keep} were to be kept"


def examine_history(folder: Path, nights: int, begun: int) -> Iterator[str]:
    """There is a record of every night, and of no more than were begun; each has its page.

    One that is killed in its first moments, and begun again, has one record for both.
    """
    records = sorted((folder / "nights").glob("*.json"))
    if not nights <= len(records) <= begun:
        yield f"the history has {len(records)} records of {nights} nights, begun {begun} times"
    for path in records:
        try:
            night = json.loads(path.read_text())
        except ValueError as error:
            yield f"the history: {path.name} cannot be read: {error}"
            continue
        if night["id"] != path.stem:
            yield f"the history: {path.name} is the night {night['id']}"
        if not path.with_suffix(".html").is_file():
            yield f"the history: {path.stem} has no page"
    if not (folder / "index.html").is_file():
        yield "the history has no page"


def examine_told(
    folder: Path, before: Mapping[str, Mapping[str, str]], tree: Path, published: Sequence[str]
) -> Iterator[str]:
    """The last record, which people are told of, has all that a night did, killed or not.

    `before` are the packages that were stable, by profile; `published` are versions.
    """
    text = (folder / "latest.json").read_text()
    for done in newest_night(folder):
        profile, after = done["profile"], stable_packages(tree, done["profile"])
        old = before.get(profile, {})
        if not old or done["ending"] == "failed":
            continue
        names = sorted(old.keys() | after.keys())
        changed = {
            (n, old.get(n, ""), after.get(n, "")) for n in names if old.get(n) != after.get(n)
        }
        told = {(change["name"], change["old"], change["new"]) for change in done["changes"]}
        if told != changed:
            yield f"{profile}: {sorted(changed)} changed, told was {sorted(told)}"
        if changed and done["ending"] != "promoted":
            yield f"{profile}: packages of stable changed, but it is {done['ending']}"
    for version in published:
        if version not in text:
            yield f"nobody is told of the release {version}"


def examine_moves(tree: Path) -> Iterator[str]:
    """`stable` was only ever given to what had booted: each such line of the journal names the
    report, and no reason to do without one.
    """
    journal = tree / "journal.jsonl"
    for line in journal.read_text().splitlines() if journal.exists() else ():
        event = json.loads(line)
        if event["channel"] == "stable" and (event["reason"] or not event["report"]):
            yield f"{event['profile']}@{event['version']} was made stable without a boot test"


def newest_night(folder: Path) -> list[dict[str, Any]]:
    """The profiles of the night that was saved last; none where there is none."""
    try:
        found: list[dict[str, Any]] = json.loads((folder / "latest.json").read_text())["profiles"]
    except (OSError, ValueError, KeyError):
        return []
    return found


def packages_of(manifest: Mapping[str, Any]) -> dict[str, str]:
    """Names and versions in a manifest."""
    return {package["name"]: package["version"] for package in manifest["packages"]}


def stable_packages(tree: Path, profile: str) -> dict[str, str]:
    """Names and versions of what is stable; nothing where that cannot be read."""
    try:
        text = (tree / "channels" / profile / "stable/manifest.json").read_text()
        return packages_of(json.loads(text))
    except (OSError, ValueError, KeyError):
        return {}


def installed_in(root: Path) -> dict[str, str]:
    """Names and versions in a root's dpkg database."""
    stanzas = (root / "var/lib/dpkg/status").read_text().split("\n\n")
    fields = (dict(re.findall(r"^(\S+): (.*)$", stanza, re.MULTILINE)) for stanza in stanzas)
    return {
        each["Package"]: each["Version"]
        for each in fields
        if each.get("Status") == "install ok installed"
    }


def sha256(path: Path) -> str:
    """The digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
