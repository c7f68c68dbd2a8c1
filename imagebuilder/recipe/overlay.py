# SPDX-License-Identifier: Apache-2.0
"""Resolve one overlay or base from its file and the vars of a profile."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from imagebuilder.digest import digest_of_file
from imagebuilder.package_managers import PackageManager, manager_of
from imagebuilder.phrases import listing, quote
from imagebuilder.recipe.engines import check_engine_programs
from imagebuilder.recipe.expectations import Expectations
from imagebuilder.recipe.fields import render_fields
from imagebuilder.recipe.keys import certificate_problem
from imagebuilder.recipe.model import (
    BaseFile,
    PythonModel,
    SiteFile,
    SiteKeyringModel,
    SiteSourceModel,
)
from imagebuilder.recipe.model_sources import ArchiveModel, ExpiredReleaseModel, SourceModel
from imagebuilder.recipe.names import load_names
from imagebuilder.recipe.part import (
    Part,
    check_program,
    check_requirements,
    check_runs,
    find_inside,
)
from imagebuilder.recipe.positions import KeyPath, Origin, render_path
from imagebuilder.recipe.render import Scope
from imagebuilder.recipe.rules import (
    ACCOUNT,
    PACKAGE,
    PIN,
    PLACE,
    STREAM,
    UNIT,
    URI,
    WORD,
)
from imagebuilder.recipe.stages import (
    check_refusals,
    check_targets,
    render_builds,
    render_playbooks,
)
from imagebuilder.recipe.tree import load_tree, target_problem
from imagebuilder.recipe.types import (
    Base,
    ExpiredRelease,
    Named,
    NameKind,
    Overlay,
    OverlayKeys,
    PythonEnv,
    Script,
    Source,
    TreeFile,
)
from imagebuilder.settings import Settings

# A folder and everything below it.
BELOW = re.compile(r"(/[^/*?\[\]]+)+/\*")
Consents = Mapping[str, ExpiredReleaseModel]
Keyrings = Mapping[str, SiteKeyringModel]
Places = Mapping[str, SiteSourceModel]


def render_base(name: str, file: BaseFile, scope: Scope, site: SiteFile, engine: str) -> Base:
    """The base with `when` of its packages decided and the site file's settings applied.

    `engine` ("": none) takes precedence over the base's own.
    """
    packages = scope.entries(("packages",), file.packages, PACKAGE)
    sources = tuple(
        archive_source(
            archive,
            render_streams(("archives", index), archive, scope),
            site.expired_release,
            site.keyrings,
        )
        for index, archive in enumerate(file.archives)
    )
    for index, source in enumerate(sources):
        if source.id in {other.id for other in sources[:index]}:
            what = f"another archive also starts with {quote(source.suites[0])} of this mirror"
            scope.fault(("archives", index), what, "put the suites into one archive")
    engine = engine or file.engine or ""
    manager = find_manager(file, engine, scope)
    check_excludes(file, manager, scope)
    return Base(
        name=name,
        distribution=file.distribution,
        suite=file.suite,
        architecture=file.architecture,
        engine=engine or manager.engines[0],
        package_manager=manager.name,
        packages=packages,
        kernel=file.kernels.get(file.kernel, file.kernel),
        sources=sources,
        path_excludes=tuple(file.path_excludes),
    )


def find_manager(file: BaseFile, engine: str, scope: Scope) -> PackageManager:
    """The distribution's package manager; `engine` ("": any) and `package-manager` must fit."""
    manager = manager_of(file.distribution)
    if file.package_manager not in (None, manager.name):
        what = f"{file.distribution} uses {manager.name}"
        scope.fault(("package-manager",), what, "remove the key")
    if engine and engine not in manager.engines:
        what = f"{quote(engine)} cannot build {file.distribution}"
        scope.fault(("engine",), what, f"known: {', '.join(manager.engines)}")
    return manager


def check_excludes(file: BaseFile, manager: PackageManager, scope: Scope) -> None:
    for index, path in enumerate(file.path_excludes):
        if not (manager.globs or BELOW.fullmatch(path)):
            what = f"{manager.name} excludes only whole folders, as /FOLDER/*"
            hint = "name a folder, or remove the paths with `prune` in an overlay"
            scope.fault(("path-excludes", index), what, hint)


def with_components(base: Base, overlays: Sequence[Overlay]) -> Base:
    """The base with the components that overlays add.

    An archive of Debian may lack one.  With streams each component is a repository, which archives
    of another mirror do not have: EPEL has no CRB.
    """
    added = tuple(dict.fromkeys(c for overlay in overlays for c in overlay.components))
    streams, first = manager_of(base.distribution).streams, base.sources[0].mirror
    sources = (
        replace(source, components=tuple(dict.fromkeys((*source.components, *added))))
        if source.mirror == first or not streams
        else source
        for source in base.sources
    )
    return replace(base, sources=tuple(sources))


def archive_source(
    archive: ArchiveModel, streams: tuple[str, ...], consents: Consents, keyrings: Keyrings
) -> Source:
    replacement = keyrings.get(archive.mirror)
    return Source(
        id=f"{archive.mirror}:{archive.suites[0]}",
        suites=tuple(archive.suites),
        components=tuple(archive.components),
        streams=streams,
        key=Path(replacement.keyring if replacement else archive.keyring),
        mirror=archive.mirror,
        snapshot=archive.snapshot,
        expired_release=consent(archive.suites, archive.expired_release, consents),
        instead=replacement.because if replacement else "",
    )


def consent(
    suites: Sequence[str], default: ExpiredReleaseModel | None, consents: Consents
) -> ExpiredRelease | None:
    """The site's consent for one of these suites (or a source's name), else the default."""
    model = next((consents[suite] for suite in suites if suite in consents), default)
    return ExpiredRelease(model.accept_days, model.because) if model else None


def render_overlay(
    part: Part, scope: Scope, consents: Consents, places: Places, settings: Settings
) -> Overlay:
    """The overlay resolved; its faults are added to the scope's."""
    file = part.file
    check_refusals(part.name, file.refuses, scope)
    check_targets(file.targets, scope)
    names = load_names(part, scope, settings)
    check_engine_programs(part, scope)
    checks = tuple(sorted((part.folder / "checks").glob("*.py")))
    for check in checks:
        check_program(part, scope, check)
    files = load_tree(scope, part.folder, part.shown, file.files, ACCOUNT)
    keys = render_fields(OverlayKeys, file, (), scope) or OverlayKeys()
    users = tuple(replace(user, home=user.home or f"/home/{user.name}") for user in keys.users)
    return Overlay(
        **{**vars(keys), "packages": names.of(keys.packages), "users": users},
        name=part.name,
        path=part.folder,
        sources=tuple(render_sources(part, scope, consents, places)),
        files=files,
        scripts=tuple(render_scripts(part, scope)),
        python=tuple(render_python(part, scope)),
        checks=checks,
        builds=tuple(render_builds(part, scope, names)),
        playbooks=tuple(render_playbooks(part, scope)),
        expectations=render_fields(Expectations, file.proof, ("proof",), scope) or Expectations(),
        named=tuple(find_named(part, scope, files)),
    )


def find_named(part: Part, scope: Scope, files: Sequence[TreeFile]) -> Iterator[Named]:
    """The units, groups and users that an overlay refers to, and where."""
    enable: KeyPath = ("units", "enable")
    for unit, origin in scope.located(enable, part.file.units.enable, UNIT).items():
        yield named_at(NameKind.UNIT, unit, origin)
    for path, user in scope.counted("users", part.file.users):
        for group, origin in scope.located((*path, "groups"), user.groups, ACCOUNT).items():
            yield named_at(NameKind.GROUP, group, origin)
    for file in files:
        rule: KeyPath = ("files", file.target)
        yield named_at(NameKind.USER, file.owner, Origin(scope.document, (*rule, "owner")))
        yield named_at(NameKind.GROUP, file.group, Origin(scope.document, (*rule, "group")))


def named_at(kind: NameKind, name: str, origin: Origin) -> Named:
    return Named(kind, name, origin.where, render_path(origin.path))


def render_streams(
    path: KeyPath, model: ArchiveModel | SourceModel, scope: Scope
) -> tuple[str, ...]:
    """The streams of modules, one of each; a fault for what only one kind of repository has."""
    has_streams = scope.manager and scope.manager.streams
    if scope.manager and not has_streams and model.modules:
        what = f"repositories of {scope.manager.name} have no modules"
        scope.fault((*path, "modules"), what, "remove the key")
    if scope.manager and has_streams and model.expired_release:
        what = f"repositories of {scope.manager.name} do not expire"
        scope.fault((*path, "expired-release"), what, "remove the key")
    streams: dict[str, str] = {}
    for index, written in enumerate(model.modules):
        stream = scope.text((*path, "modules", index), written, STREAM)
        name = stream.partition(":")[0] if stream else ""
        if stream and streams.setdefault(name, stream) != stream:
            what = f"{quote(streams[name])} is also enabled, and a module has one stream"
            scope.fault((*path, "modules", index), what, "remove one of them")
    return tuple(streams.values())


def render_sources(
    part: Part, scope: Scope, consents: Consents, places: Places
) -> Iterator[Source]:
    """The vendors' sources that apply, each with a key file that has the pinned fingerprints."""
    for path, source in scope.counted("sources", part.file.sources):
        uri = scope.text((*path, "uri"), source.uri, URI)
        suites = [
            scope.text((*path, "suites", number), suite, WORD)
            for number, suite in enumerate(source.suites)
        ]
        for key in ("components", "pin_packages"):
            check_words(scope, (*path, key.replace("_", "-")), getattr(source, key))
        streams = render_streams(path, source, scope)
        version: str | None = ""
        if source.pin_version:
            version = scope.text((*path, "pin-version"), source.pin_version, PIN)
        place = places.get(source.name)
        key_file = find_key(part, scope, path, source, place)
        sound = tuple(suite for suite in suites if suite)
        if uri and key_file and version is not None and len(sound) == len(suites):
            found = Source(
                id=source.name,
                suites=sound,
                components=tuple(source.components),
                key=key_file,
                uri=uri,
                streams=streams,
                fingerprints=tuple(source.fingerprints),
                pin_packages=tuple(source.pin_packages),
                pin_priority=source.pin_priority,
                pin_version=version,
                expired_release=consent((source.name, *sound), source.expired_release, consents),
            )
            yield replaced(found, place)


def replaced(source: Source, place: SiteSourceModel | None) -> Source:
    if place is None:
        return source
    return replace(
        source,
        uri=place.uri,
        suites=tuple(place.suites) or source.suites,
        components=source.components if place.components is None else tuple(place.components),
        fingerprints=tuple(place.fingerprints) or source.fingerprints,
        instead=place.because,
    )


def find_key(
    part: Part, scope: Scope, path: KeyPath, source: SourceModel, place: SiteSourceModel | None
) -> Path | None:
    """The key file of a source: the site's, or else the overlay's as pinned."""
    if place and place.key:
        return Path(place.key)
    missing = not (part.folder / source.key).exists()
    if missing and not source.key.startswith("/"):
        what = f"the vendor's key is missing: {part.shown}/{source.key}"
        hint = (
            "download it from the vendor, compare its fingerprint "
            f"({listing(source.fingerprints)}) and save it there; or set another address of the "
            f"repository under sources: {source.name}: in the site file"
            + (", with its key and fingerprints" if place else "")
        )
        scope.fault((*path, "key"), what, hint)
        return None
    found = find_inside(part, scope, (*path, "key"), source.key)
    if found:
        check_fingerprints(scope, path, source, found)
    return found


def check_words(scope: Scope, path: KeyPath, words: Sequence[str]) -> None:
    """Each entry of a list is one word, so that it cannot add a field to a sources file."""
    for index, word in enumerate(words):
        if not WORD.pattern.fullmatch(word):
            scope.fault((*path, index), f"{quote(word)} is not {WORD.what}")


def check_fingerprints(scope: Scope, path: KeyPath, source: SourceModel, key_file: Path) -> None:
    """The key file has exactly the certificates that were pinned."""
    pinned = source.fingerprints
    if problem := certificate_problem(key_file, source.key, pinned, "the vendor"):
        key, what, hint = problem
        scope.fault((*path, key), what, hint)


def render_scripts(part: Part, scope: Scope) -> Iterator[Script]:
    for path, script in scope.counted("scripts", part.file.scripts):
        found = find_inside(part, scope, (*path, "run"), script.run)
        if found and check_runs(scope, (*path, "run"), script.run, found):
            yield Script(script.run, digest_of_file(found), found, script.network)


def render_python(part: Part, scope: Scope) -> Iterator[PythonEnv]:
    for path, environment in scope.counted("python", part.file.python):
        check_places(scope, path, environment)
        hint = f"make it with: {environment.made_with}" if environment.made_with else ""
        written = environment.requirements
        found = find_inside(part, scope, (*path, "requirements"), written, hint=hint)
        if found:
            check_requirements(part, scope, written, found)
            digest = digest_of_file(found)
            yield PythonEnv(environment.path, found, digest, environment.interpreter)


def check_places(scope: Scope, path: KeyPath, environment: PythonModel) -> None:
    for key in ("path", "interpreter"):
        scope.text((*path, key), getattr(environment, key), PLACE)
    if problem := target_problem(environment.path):
        scope.fault((*path, "path"), *problem)
