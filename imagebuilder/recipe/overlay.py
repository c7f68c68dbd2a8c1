# SPDX-License-Identifier: Apache-2.0
"""One overlay or base: from its file and the vars of a profile to its resolved value."""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.digest import digest_of_file
from imagebuilder.errors import Fault
from imagebuilder.recipe.keys import find_fingerprints
from imagebuilder.recipe.model import (
    ArchiveModel,
    BaseFile,
    ExpiredReleaseModel,
    OverlayFile,
    PythonModel,
    ScriptModel,
    SourceModel,
    UserModel,
)
from imagebuilder.recipe.positions import Document, KeyPath
from imagebuilder.recipe.render import Rule, Scope
from imagebuilder.recipe.tree import load_tree, target_problem
from imagebuilder.recipe.types import (
    Base,
    ExpiredRelease,
    Group,
    Modules,
    Overlay,
    PythonEnv,
    Script,
    Source,
    Units,
    User,
)
from imagebuilder.recipe.validate import listing, quote

Consents = Mapping[str, ExpiredReleaseModel]

PACKAGE = Rule(re.compile(r"[a-z0-9][a-z0-9.+-]+"), "the name of a package")
UNIT = Rule(
    re.compile(
        r"[A-Za-z0-9:_.\\@-]+\.(service|socket|timer|target|path|mount|automount|swap|slice|scope)"
    ),
    "the full name of a systemd unit, such as ssh.service",
)
MODULE = Rule(re.compile(r"[A-Za-z0-9_-]+"), "the name of a kernel module")
ACCOUNT = Rule(re.compile(r"[a-z_][a-z0-9_-]{0,31}"), "the name of an account")
WORD = Rule(re.compile(r"[^\s\"']+"), "one word without quotes")
LINE = Rule(re.compile(r"[^\n\r]*"), "one line")
GECOS = Rule(re.compile(r"[^\n\r:]*"), "one line without a colon")
PLACE = Rule(re.compile(r"(/(?!\.\.?(/|$))[^/\n\r:]+)+"), "an absolute path without `..`")
GLOB = Rule(re.compile(r"(/(?!\.\.?(/|$)|\*+(/|$))[^/\n\r]+)(/(?!\.\.?(/|$))[^/\n\r]+)*"),
            "an absolute glob that names a first folder")  # fmt: skip
URI = Rule(re.compile(r"(https?|file)://[^\s]+"), "an address")
# 1 to 65535.
NUMBER = "[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5]"
PORT = Rule(re.compile(f"({NUMBER})/(tcp|udp)"), "a port with its protocol, such as 22/tcp")
SYSCTL = Rule(re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.*/-]*"), "the name of a sysctl")


@dataclass(frozen=True)
class Part:
    """An overlay that was read: its name, folder, document and model."""

    name: str
    folder: Path
    document: Document
    file: OverlayFile

    @property
    def shown(self) -> str:
        """The folder's name for people."""
        return self.document.shown.rpartition("/")[0]


def render_base(name: str, file: BaseFile, scope: Scope, consents: Consents) -> Base:
    """The base with its packages decided and consents to expired Release files applied."""
    packages = scope.entries(("packages",), file.packages, PACKAGE)
    sources = tuple(archive_source(archive, consents) for archive in file.archives)
    for index, source in enumerate(sources):
        if source.id in {other.id for other in sources[:index]}:
            what = f"another archive also starts with {quote(source.suites[0])} of this mirror"
            scope.fault(("archives", index), what, "put the suites into one archive")
    return Base(
        name=name,
        distribution=file.distribution,
        suite=file.suite,
        architecture=file.architecture,
        engine=file.engine,
        package_manager=file.package_manager,
        packages=packages,
        kernel=file.kernel,
        sources=sources,
        path_excludes=tuple(file.path_excludes),
    )


def archive_source(archive: ArchiveModel, consents: Consents) -> Source:
    """The apt source of some suites of the distribution."""
    return Source(
        id=f"{archive.mirror}:{archive.suites[0]}",
        suites=tuple(archive.suites),
        components=tuple(archive.components),
        key=Path(archive.keyring),
        mirror=archive.mirror,
        snapshot=archive.snapshot,
        expired_release=consent(archive.suites, archive.expired_release, consents),
    )


def consent(
    suites: Sequence[str], own: ExpiredReleaseModel | None, consents: Consents
) -> ExpiredRelease | None:
    """The consent for these suites: the site's, by suite, before the source's own."""
    given = next((consents[suite] for suite in suites if suite in consents), own)
    return ExpiredRelease(given.accept_days, given.because) if given else None


def render_overlay(part: Part, scope: Scope, consents: Consents) -> Overlay:
    """The overlay resolved; what is wrong is in the scope's faults."""
    file = part.file
    enabled = {
        key: scope.entries(("units", key), getattr(file.units, key), UNIT)
        for key in ("enable", "disable", "mask")
    }
    return Overlay(
        name=part.name,
        path=part.folder,
        packages=scope.entries(("packages",), file.packages, PACKAGE),
        sources=tuple(render_sources(part, scope, consents)),
        files=load_tree(scope, part.folder, part.shown, file.files, ACCOUNT),
        scripts=tuple(render_scripts(part, scope)),
        python=tuple(render_python(part, scope)),
        units=Units(**enabled),
        users=tuple(render_users(file.users, scope)),
        groups=tuple(render_groups(part, scope)),
        modules=render_modules(part, scope),
        sysctl=render_pairs(("sysctl",), file.sysctl, scope, SYSCTL),
        initrd=file.initrd,
        cmdline=scope.entries(("cmdline",), file.cmdline, WORD),
        prune=scope.entries(("prune",), file.prune, GLOB),
        listens=scope.entries(("listens",), file.listens, PORT),
        checks=tuple(sorted((part.folder / "checks").glob("*.py"))),
    )


def render_modules(part: Part, scope: Scope) -> Modules:
    """The kernel modules of an overlay."""
    modules = part.file.modules
    return Modules(
        load=scope.entries(("modules", "load"), modules.load, MODULE),
        blacklist=scope.entries(("modules", "blacklist"), modules.blacklist, MODULE),
        options=render_pairs(("modules", "options"), modules.options, scope, MODULE),
    )


def render_pairs(
    path: KeyPath, pairs: Mapping[str, str | int], scope: Scope, key_rule: Rule
) -> tuple[tuple[str, str], ...]:
    """A mapping to templates of one line, in the order it is written."""
    rendered: list[tuple[str, str]] = []
    for key, template in pairs.items():
        if not key_rule.pattern.fullmatch(key):
            scope.fault((*path, key), f"{quote(key)} is not {key_rule.what}")
        text = scope.text((*path, key), str(template), LINE)
        if text is not None:
            rendered.append((key, text))
    return tuple(rendered)


def render_users(users: Sequence[UserModel], scope: Scope) -> Iterator[User]:
    """The accounts whose texts are sound."""
    for index, user in enumerate(users):
        path = ("users", index)
        name = scope.text((*path, "name"), user.name, ACCOUNT)
        home = scope.text((*path, "home"), user.home, PLACE) if user.home else f"/home/{name}"
        shell = scope.text((*path, "shell"), user.shell, PLACE)
        comment = scope.text((*path, "comment"), user.comment, GECOS)
        groups = scope.entries((*path, "groups"), user.groups, ACCOUNT)
        if name and home and shell and comment is not None:
            yield User(name, user.uid, home, shell, groups, user.system, comment)


def render_groups(part: Part, scope: Scope) -> Iterator[Group]:
    """The groups, whose names the account tools accept."""
    for index, group in enumerate(part.file.groups):
        if scope.text(("groups", index, "name"), group.name, ACCOUNT):
            yield Group(group.name, group.gid, group.system)


def render_sources(part: Part, scope: Scope, consents: Consents) -> Iterator[Source]:
    """The vendors' sources that apply, each with a key file that is what was pinned."""
    for index, source in enumerate(part.file.sources):
        path: KeyPath = ("sources", index)
        if not scope.holds((*path, "when"), source.when):
            continue
        uri = scope.text((*path, "uri"), source.uri, URI)
        suites = [
            scope.text((*path, "suites", number), suite, WORD)
            for number, suite in enumerate(source.suites)
        ]
        for key in ("components", "pin_packages"):
            check_words(scope, (*path, key.replace("_", "-")), getattr(source, key))
        key_file = find_inside(part, scope, (*path, "key"), source.key)
        if key_file:
            check_fingerprints(scope, path, source, key_file)
        sound = tuple(suite for suite in suites if suite)
        if uri and key_file and len(sound) == len(suites):
            yield Source(
                id=source.name,
                suites=sound,
                components=tuple(source.components),
                key=key_file,
                uri=uri,
                fingerprints=tuple(source.fingerprints),
                pin_packages=tuple(source.pin_packages),
                pin_priority=source.pin_priority,
                expired_release=consent(sound, source.expired_release, consents),
            )


def check_words(scope: Scope, path: KeyPath, words: Sequence[str]) -> None:
    """Each entry of a list is one word, so that it cannot add a field to a deb822 stanza."""
    for index, word in enumerate(words):
        if not WORD.pattern.fullmatch(word):
            scope.fault((*path, index), f"{quote(word)} is not {WORD.what}")


def check_fingerprints(scope: Scope, path: KeyPath, source: SourceModel, key_file: Path) -> None:
    """The certificates in the key file are those that were pinned, all and no others."""
    found = find_fingerprints(key_file)
    if not found:
        what = f"{source.key} is not an OpenPGP certificate"
        scope.fault((*path, "key"), what, "gpg --show-keys FILE must list it, and no secret key")
    elif found != tuple(sorted(source.fingerprints)):
        what = f"{source.key} has {listing(found)}"
        hint = "compare with what the vendor publishes before changing either"
        scope.fault((*path, "fingerprints"), what, hint)


def render_scripts(part: Part, scope: Scope) -> Iterator[Script]:
    """The scripts that apply."""
    for index, script in enumerate(part.file.scripts):
        path = ("scripts", index)
        if not scope.holds((*path, "when"), script.when):
            continue
        found = find_inside(part, scope, (*path, "run"), script.run)
        if found and check_runs(scope, (*path, "run"), script, found):
            yield Script(script.run, digest_of_file(found), found, script.network)


def check_runs(scope: Scope, path: KeyPath, script: ScriptModel, found: Path) -> bool:
    """Whether the kernel would run it: it is executable or says with what to run it."""
    with found.open("rb") as stream:
        said = stream.read(2)
    if said != b"#!" and not found.stat().st_mode & stat.S_IXUSR:
        what = f"{script.run} is not executable and has no #! line"
        scope.fault(path, what, "start it with #!/bin/sh")
        return False
    return True


def render_python(part: Part, scope: Scope) -> Iterator[PythonEnv]:
    """The Python environments that apply."""
    for index, environment in enumerate(part.file.python):
        path = ("python", index)
        if not scope.holds((*path, "when"), environment.when):
            continue
        check_places(scope, path, environment)
        found = find_inside(part, scope, (*path, "requirements"), environment.requirements)
        if found:
            scope.faults.extend(
                requirement_faults(found, f"{part.shown}/{environment.requirements}")
            )
            digest = digest_of_file(found)
            yield PythonEnv(environment.path, found, digest, environment.interpreter)


def check_places(scope: Scope, path: KeyPath, environment: PythonModel) -> None:
    """The environment lies at a place a root can have."""
    for key in ("path", "interpreter"):
        scope.text((*path, key), getattr(environment, key), PLACE)
    if problem := target_problem(environment.path):
        scope.fault((*path, "path"), *problem)


def requirement_faults(path: Path, shown: str) -> Iterator[Fault]:
    """What keeps a requirements file from naming exact wheels."""
    hint = "make it with: uv pip compile --generate-hashes, or pip-compile --generate-hashes"
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        yield Fault(shown, "is not UTF-8 text")
        return
    requirements = list(requirement_lines(text))
    if not requirements:
        yield Fault(shown, "names no package")
    for number, line in requirements:
        if re.match(r"(-[rce]\b|--(requirement|constraint|editable)\b)", line):
            yield Fault(f"{shown}:{number}", f"{quote(line)} brings in what has no digest", hint)
        elif not line.startswith("-") and "--hash=sha256:" not in line:
            name = re.split(r"[\s;=<>!~\[@]", line)[0]
            yield Fault(f"{shown}:{number}", f"{quote(name)} has no --hash=sha256:", hint)


def requirement_lines(text: str) -> Iterator[tuple[int, str]]:
    """Each requirement or option with the line it starts in, continuation lines joined."""
    joined, start = "", 0
    for number, raw in enumerate(text.splitlines(), 1):
        line = re.sub(r"(^|\s)#.*", "", raw).strip()
        start = start if joined else number
        joined = f"{joined} {line.removesuffix(chr(92)).strip()}".strip()
        if joined and not line.endswith("\\"):
            yield start, joined
            joined = ""
    if joined:
        yield start, joined


def find_inside(part: Part, scope: Scope, path: KeyPath, written: str) -> Path | None:
    """The regular file of the overlay that `written` names; None, with a fault, otherwise."""
    if written.startswith("/") or ".." in written.split("/"):
        scope.fault(path, f"{quote(written)} leaves the overlay", "name a path below the overlay")
        return None
    found = part.folder / written
    try:
        inside, is_file = found.resolve().is_relative_to(part.folder.resolve()), found.is_file()
    except (OSError, RuntimeError):  # a name too long, a symlink loop
        inside, is_file = True, False
    if not inside:
        scope.fault(path, f"{quote(written)} is a symlink that leaves the overlay")
        return None
    if not is_file:
        scope.fault(path, f"no file {part.shown}/{written}")
        return None
    return found
