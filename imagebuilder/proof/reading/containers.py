# SPDX-License-Identifier: Apache-2.0
"""Settings of container engines; and the containers that a site starts, with the options that they
get: by command lines and scripts of services, by Compose files, and by Quadlet files
(podman-systemd.unit(5)).
"""

from __future__ import annotations

import codecs
import ipaddress
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from imagebuilder.decode import parse_json
from imagebuilder.errors import InputError
from imagebuilder.image.proof import Evidence
from imagebuilder.proof.reading import scripts
from imagebuilder.proof.reading.commands import options_of
from imagebuilder.proof.reading.config import (
    SettingsFile,
    assignments,
    is_false,
    list_at,
    read_settings,
    read_yaml,
    table_at,
    value_at,
)
from imagebuilder.proof.reading.shell import parse_shell
from imagebuilder.proof.reading.systemd import LoadedUnit
from imagebuilder.proof.reading.texts import unquoted
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

DAEMON = "/etc/docker/daemon.json"
CONTAINERD = "/etc/containerd/config.toml"
# Packages with dockerd, by distribution.
DOCKERS = ("docker-ce", "docker.io", "moby-engine")
MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
MARKS_SINCE = 23  # of dockerd, which refused a mark and a blank file before
MAJOR = re.compile(r"(?:\d+:)?(\d+)\.")
OLD_NAMES = frozenset(("io.containerd.grpc.v1.cri", "cri"))
# Where containerd has the settings of its containers for a kubelet, of every version.
CRI_NAMES = (*sorted(OLD_NAMES), "io.containerd.cri.v1.runtime")
CRI_IMAGES = "io.containerd.cri.v1.images"
CRIO = ("/etc/crio/crio.conf", "/etc/crio/crio.conf.d/*")
CNI, CNI_ENDINGS = "/etc/cni/net.d", (".conf", ".conflist", ".json")
ENGINES = frozenset(("podman", "docker", "nerdctl"))
COMPOSES = {"docker-compose": "docker", "podman-compose": "podman"}
VERBS = ("run", "create")
# Words before `create` and `run` that make something else of them.
OTHER_OBJECTS = frozenset(
    ("artifact", "compose", "config", "context", "healthcheck", "kube", "machine", "manifest",
     "network", "plugin", "pod", "secret", "service", "volume")
)  # fmt: skip
# Options without a value, of podman-run(1), docker run and nerdctl run.
FLAGS = frozenset(
    ("detach", "disable-content-trust", "env-host", "help", "http-proxy", "init", "interactive",
     "no-healthcheck", "no-hostname", "no-hosts", "oom-kill-disable", "passwd", "privileged",
     "publish-all", "quiet", "read-only", "read-only-tmpfs", "replace", "rm", "rmi", "rootfs",
     "sig-proxy", "tls-verify", "tty", "unsetenv-all", "use-api-socket")
)  # fmt: skip
SHORT_FLAGS, SHORT = "ditPq", {"v": "volume", "e": "env", "u": "user"}
COMPOSE_FILES = ("compose.yaml", "compose.yml", "docker-compose.yaml", "docker-compose.yml")
# Keys of Quadlet and of Compose files, and the options that they stand for.
QUADLET = {
    "AddDevice": "device", "Volume": "volume", "GroupAdd": "group-add", "Annotation": "annotation",
    "Environment": "env", "UserNS": "userns", "UIDMap": "uidmap", "GIDMap": "gidmap",
}  # fmt: skip
COMPOSE = {
    "devices": "device", "volumes": "volume", "group_add": "group-add", "environment": "env",
    "annotations": "annotation", "gpus": "gpus", "runtime": "runtime", "userns_mode": "userns",
}  # fmt: skip
# Folders of Quadlet files: of the system, of all users and of one.
OF_ROOT = (
    "/etc/containers/systemd",
    "/usr/share/containers/systemd",
    "/root/.config/containers/systemd",
)
OF_USERS = ("/etc/containers/systemd/users", "/usr/share/containers/systemd/users")
ROOTS = ("", "root", "0")


@dataclass(frozen=True)
class CniNetwork:
    """A network of the Container Network Interface: its file, its first plugin, and the ranges that
    host-local takes addresses from, without those that something fills in on a node.
    """

    path: str
    plugin: str
    ranges: tuple[str, ...]


def read_networks(root: Root, folder: str) -> Iterator[CniNetwork]:
    """The networks of a folder in the order of their names, as libcni lists them (ConfFiles())."""
    for name in sorted(root.names(folder)):
        path = f"{folder}/{name}"
        if not name.endswith(CNI_ENDINGS):
            continue
        try:
            read = parse_json(root.text(path) or "{}", path)
        except InputError:
            continue
        plugins = read.get("plugins", [read]) if isinstance(read, dict) else []
        first = plugins[0] if isinstance(plugins, list) and plugins else None
        if isinstance(first, dict) and isinstance(first.get("type"), str):
            yield CniNetwork(path, first["type"], tuple(ranges_of(first.get("ipam"))))


def ranges_of(ipam: object) -> Iterator[str]:
    """The ranges of host-local (cni.dev, "host-local IP address management plugin")."""
    if value_at(ipam, "type") != "host-local":
        return
    for one in (ipam, *(one for each in list_at(ipam, "ranges") for one in list_at(each))):
        try:
            yield str(ipaddress.ip_network(str(value_at(one, "subnet")), strict=False))
        except ValueError:  # a word such as usePodCidr
            continue


def has_no_cri(settings: Mapping[str, Any]) -> bool:
    """Whether containerd is told to leave out what the kubelet asks."""
    return not OLD_NAMES.isdisjoint(map(str, list_at(settings, "disabled_plugins")))


def read_daemon(subject: Subject) -> SettingsFile:
    """The settings of dockerd, as getConflictFreeConfiguration() of moby's daemon/config reads
    them: text in UTF-8, or with the mark of UTF-8 or UTF-16; a blank file has none.
    """
    content = subject.root.read(DAEMON)
    if content is None:
        return SettingsFile(DAEMON)
    mark = next((mark for mark in MARKS if content.startswith(mark)), b"")
    try:
        # A decoder of Go replaces halves of pairs; outside of strings they are no JSON.
        errors = "strict" if MARKS.get(mark, "utf-8") == "utf-8" else "replace"
        text = content[len(mark) :].decode(MARKS.get(mark, "utf-8"), errors).strip()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, len(mark) + error.start) + 1
        return SettingsFile(DAEMON, problem="is not UTF-8 text", where=f"{DAEMON}:{line}")
    if (mark or not text) and is_old(subject):
        problem = "begins with a byte order mark" if mark else "is empty"
        return SettingsFile(DAEMON, problem=f"{problem}, which dockerd accepts since version 23")
    if not text:
        return SettingsFile(DAEMON)
    try:
        value = parse_json(text, DAEMON)
    except InputError as error:
        return SettingsFile(DAEMON, problem=error.faults[0].what, where=error.faults[0].where)
    return read_settings(DAEMON, value)


def is_old(subject: Subject) -> bool:
    """Whether the image's dockerd is older than MARKS_SINCE; no if its version is not known."""
    versions = (subject.packages.get(name, "") for name in DOCKERS)
    majors = [int(found[1]) for version in versions if (found := MAJOR.match(version))]
    return bool(majors) and max(majors) < MARKS_SINCE


@dataclass(frozen=True)
class ContainerRun:
    """A container that something starts.

    `who` is a unit or a file, `account` whom the engine runs as, "" for root; `unit` is the service
    that starts it, if it is not a file of its own.  `options` are the values of each long option,
    without dashes.
    """

    who: str
    engine: str
    account: str
    image: str
    program: str
    options: Mapping[str, Sequence[str]]
    evidence: Evidence
    unit: LoadedUnit | None = field(default=None, compare=False)

    def every(self, name: str) -> Sequence[str]:
        return self.options.get(name, ())

    @property
    def privileged(self) -> bool:
        return any(not is_false(value) for value in self.every("privileged"))


def container_runs(subject: Subject) -> Iterator[ContainerRun]:
    """Every container that services and Quadlet files of a site start."""
    units = {service.name: service.unit for service in scripts.site_services(subject)}
    for unit in units.values():
        account = "" if unit.last("User") in ROOTS else unit.last("User")
        if unit.last("DynamicUser") == "yes":
            account = account or unit.name.partition(".")[0]
        for key, written in unit.started():
            service = scripts.SiteService(subject, unit, written)
            where = Evidence(unit.place, said=f"{key}={' '.join(written)}")
            for words in commands_of(subject.root, service.words):
                yield from runs_of(subject.root, service, words, account, where)
    yield from quadlets(subject)


def commands_of(root: Root, words: Sequence[str]) -> Iterator[Sequence[str]]:
    """A command line, and the commands of the shell script that it runs."""
    words = scripts.behind_env(words)
    yield words
    script = scripts.script_of(root, words, "")
    if script and any(name in script.text for name in ENGINES):
        parsed = parse_shell(script.text.encode())
        yield from ((each.name, *each.words) for each in (parsed.commands if parsed else ()))


def runs_of(
    root: Root, service: scripts.SiteService, words: Sequence[str], account: str, where: Evidence
) -> Iterator[ContainerRun]:
    program = posixpath.basename(words[0]) if words else ""
    engine = COMPOSES.get(program, program)
    if engine not in ENGINES:
        return
    if program in COMPOSES or "compose" in words:
        for path in compose_files(root, service, words):
            yield from compose_runs(root, service, engine, account, path)
        return
    at = next((n for n, w in enumerate(words) if w in VERBS and n), 0)
    if at and words[at - 1] not in OTHER_OBJECTS:
        before = runtime_of(words[:at])
        options, image, command = parse_options(words[at + 1 :])
        yield ContainerRun(
            service.name, engine, account, image, command, before | options, where, service.unit
        )


def runtime_of(words: Sequence[str]) -> dict[str, list[str]]:
    """The option of podman(1) that comes before its command."""
    found = [each.value for each in options_of(words, ("--runtime",))]
    return {"runtime": found} if found else {}


def parse_options(words: Sequence[str]) -> tuple[dict[str, list[str]], str, str]:
    """The options of `podman run` and the like, the image, and the first word behind it."""
    options: dict[str, list[str]] = {}
    rest = iter(words)
    for word in rest:
        name, has_value, value = word.removeprefix("--").partition("=")
        if word.startswith("--"):
            if not has_value:
                value = "true" if name in FLAGS else next(rest, "")
        elif word.startswith("-") and len(word) > 1:
            letters = word[1:].lstrip(SHORT_FLAGS)
            if not letters:
                continue
            name, value = SHORT.get(letters[0], letters[0]), letters[1:].removeprefix("=")
            value = value or next(rest, "")
        else:
            return options, word, next(rest, "")
        options.setdefault(name, []).append(value)
    return options, "", ""


def compose_files(root: Root, service: scripts.SiteService, words: Sequence[str]) -> list[str]:
    """The files of a command line of Compose (docs.docker.com, "docker compose")."""
    folder = service.unit.last("WorkingDirectory").lstrip("!-")
    for option in options_of(words, ("--project-directory",)):
        folder = option.value
    named = [option.value for option in options_of(words, ("-f", "--file"))]
    if named:
        return [path if path.startswith("/") else f"{folder}/{path}" for path in named]
    paths = (f"{folder}/{name}" for name in COMPOSE_FILES)
    return [path for path in paths if folder and root.is_file(path)][:1]


def compose_runs(
    root: Root, service: scripts.SiteService, engine: str, account: str, path: str
) -> Iterator[ContainerRun]:
    for name, each in table_at(read_yaml(root, path).values, "services").items():
        if isinstance(each, dict):
            options = {o: list(listed(each[key])) for key, o in COMPOSE.items() if key in each}
            if each.get("privileged") is True:
                options["privileged"] = ["true"]
            where = Evidence(path, symbol=str(name))
            image = str(each.get("image", ""))
            who = f"{name} of {path}"
            yield ContainerRun(who, engine, account, image, "", options, where, service.unit)


def listed(value: object) -> Iterator[str]:
    """The texts of a value of a Compose file: a list, a table of names and values, or a word."""
    if isinstance(value, dict):
        yield from (f"{name}={each}" for name, each in value.items())
    elif isinstance(value, list):
        for each in value:
            yield str(each.get("source", "") if isinstance(each, dict) else each)
    else:
        yield str(value)


def quadlets(subject: Subject) -> Iterator[ContainerRun]:
    for folder in OF_ROOT:
        for path in (
            p for end in ("*", "*/*") for p in scripts.site_files(subject, f"{folder}/{end}")
        ):
            if not path.startswith(OF_USERS):
                yield from quadlet(subject, path, "")
    names = {str(user.uid): user.name for user in subject.accounts.users.values()}
    for folder in OF_USERS:
        for path in scripts.site_files(subject, f"{folder}/*"):
            yield from quadlet(subject, path, "each user")
        for path in scripts.site_files(subject, f"{folder}/*/*"):
            number = path.split("/")[-2]
            yield from quadlet(subject, path, names.get(number, number))
    for path in scripts.site_files(subject, "/home/*/.config/containers/systemd/*"):
        yield from quadlet(subject, path, path.split("/")[2])


def quadlet(subject: Subject, path: str, account: str) -> Iterator[ContainerRun]:
    if not path.endswith(".container"):
        return
    settings: dict[str, list[str]] = {}
    for each in (path, *subject.root.glob(f"{path}.d/*.conf")):
        for section, key, value in assignments(subject.root.text(each)):
            if section == "Container" or (section == "Service" and key == "User"):
                settings.setdefault(key, []).append(value)
                if not value:
                    settings[key] = []
    added = [word for line in settings.get("PodmanArgs", ()) for word in unquoted(line)]
    options = parse_options(added)[0]
    for key, option in QUADLET.items():
        values = settings.get(key, [])
        if option in ("env", "annotation", "device"):
            values = [word.removeprefix("-") for value in values for word in unquoted(value)]
        if values:
            options[option] = [*options.get(option, ()), *values]
    before = [word for line in settings.get("GlobalArgs", ()) for word in unquoted(line)]
    options |= runtime_of(before)
    user = settings.get("User", [""])[-1:] or [""]
    account = account or ("" if user[0] in ROOTS else user[0])
    image = (settings.get("Image") or [""])[-1]
    program = next(iter(unquoted((settings.get("Exec") or [""])[-1])), "")
    yield ContainerRun(
        path, "podman", account, image, program, options, Evidence(path, "Container")
    )
