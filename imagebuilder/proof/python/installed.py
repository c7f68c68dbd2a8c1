# SPDX-License-Identifier: Apache-2.0
"""Whether packages of an environment fit each other, and what it has twice or from elsewhere."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from itertools import combinations

from packaging.markers import UndefinedEnvironmentName, default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from imagebuilder.image.proof import Evidence, Findings, warning
from imagebuilder.proof.reading.python import Distribution, read_distributions
from imagebuilder.root import Root

# Of another Python than the environment's, in a file that site.py reads.
OTHER = re.compile(r"(?<![\w./+@-])(?P<path>/[\w./+@-]*/python(?P<version>3\.\d+)/[\w./+@-]*)")
MOST_CHARACTERS = 1000  # of a requirement, and of a line of a .pth file
# Environments outside of packages: those of overlays, and what pip installs for the whole image.
SITES = (
    "/opt/*/lib/python3*/site-packages", "/srv/*/lib/python3*/site-packages",
    "/usr/local/lib/python3*/dist-packages", "/usr/local/lib/python3*/site-packages",
)  # fmt: skip
COMPILED = re.compile(r".+\.so(\.[\d.]+)?")
# Folders that wheels install by mistake, each with files of its own.
STRAY = frozenset(("tests", "test", "docs", "doc", "examples", "scripts", "benchmarks", "tools"))
INIT = "__init__.py"
MOST_OWNERS = 8  # distributions of one file that are compared
FEWEST = 3  # files in which two wheels of one module differ; namespaces differ in one
Record = Mapping[str, str]


def prove_requires(present: Mapping[str, Distribution], python: str) -> Findings:
    """Warnings of versions that an installed distribution refuses (Requires-Dist).

    What is missing is not told: it may be optional in practice, and imports are tried.  `python` is
    the name of the interpreter, such as python3.13.
    """
    version = python.removeprefix("python")
    here = {name: str(value) for name, value in default_environment().items()}
    here |= {"python_version": version, "python_full_version": version, "extra": ""}
    for one in present.values():
        for text in one.requires:
            wanted = parse_requirement(text, here)
            found = present.get(canonicalize_name(wanted.name)) if wanted else None
            if wanted and found and not accepts(wanted, found.version):
                what = f"{one.name} {one.version} needs {wanted.name} {wanted.specifier}, but "
                what += f"{found.version} is installed: it may not import"
                where = (Evidence(f"{one.path}/METADATA", said=text), Evidence(found.path))
                yield warning(what, *where, hint="lock versions that fit each other")


def parse_requirement(text: str, environment: dict[str, str]) -> Requirement | None:
    """A requirement that applies in an environment, None if it does not or is not valid."""
    if len(text) > MOST_CHARACTERS:
        return None
    try:
        found = Requirement(text)
        applies = found.marker is None or found.marker.evaluate(environment)
    except (InvalidRequirement, UndefinedEnvironmentName, InvalidVersion):
        return None
    return found if applies else None


def accepts(wanted: Requirement, version: str) -> bool:
    try:
        return wanted.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        return True


def prove_search(root: Root, site: str) -> Findings:
    """Warnings of packages of another Python that a .pth file lets this one import."""
    own = posixpath.basename(posixpath.dirname(site)).removeprefix("python")
    for name in root.names(site):
        if not name.endswith(".pth"):
            continue
        for line in root.text(f"{site}/{name}").splitlines():
            for found in OTHER.finditer(line[:MOST_CHARACTERS]):
                if found["version"] != own and root.is_dir(found["path"]):
                    what = f"{site}/{name} lets Python {own} import from {found['path']}: modules "
                    what += f"with compiled parts are for Python {found['version']}"
                    hint = "remove that file, and install the packages for this Python"
                    yield warning(what, Evidence(f"{site}/{name}", said=line), hint=hint)


def prove_twice(root: Root) -> Findings:
    """Warnings: what is found first may be what was meant."""
    for site in dict.fromkeys(root.glob(*SITES)):
        found = [each for each in read_distributions(root, site) if each.record]
        yield from prove_metadata(site, found)
        yield from prove_files(root, site, found)


def prove_metadata(site: str, found: Sequence[Distribution]) -> Findings:
    """Warnings of two versions of one distribution: importlib.metadata takes the first in the order
    of the folder, and programs choose by it (vllm-project/vllm #11739: a version with "cpu").
    """
    names: dict[str, list[Distribution]] = {}
    for each in found:
        names.setdefault(canonicalize_name(each.name), []).append(each)
    for name, several in names.items():
        if len(several) > 1:
            versions = " and ".join(each.version for each in several)
            what = f"{site} has metadata of {name} {versions}: programs may read the version of "
            what += "either, and choose a device or a feature by it"
            where = (Evidence(f"{each.path}/METADATA", said=each.version) for each in several)
            yield warning(what, *where, hint="remove the folder of the one that is not there")


def prove_files(root: Root, site: str, found: Sequence[Distribution]) -> Findings:
    """Warnings of distributions with the same files (microsoft/onnxruntime #26996, #7748)."""
    records = {each.path: read_record(root, each.path) for each in found}
    owners: dict[str, list[Distribution]] = {}
    for each in found:
        for path in records[each.path]:
            owners.setdefault(path, []).append(each)
    shared: dict[tuple[str, str], list[str]] = {}
    by_path = {each.path: each for each in found}
    for path, several in owners.items():
        for one, other in combinations(several[:MOST_OWNERS], 2):
            hashes = records[one.path][path], records[other.path][path]
            is_same = all(hashes) and hashes[0] == hashes[1]
            if not is_same and canonicalize_name(one.name) != canonicalize_name(other.name):
                shared.setdefault((one.path, other.path), []).append(path)
    for (first, second), paths in shared.items():
        if chief := find_conflict(paths):
            one, other = by_path[first], by_path[second]
            what = f"{one.name} and {other.name} in {site} have the same files, such as {chief}: "
            what += "the one that was installed last has replaced those of the other"
            where = (Evidence(f"{path}/RECORD", said=chief) for path in (first, second))
            yield warning(what, *where, hint="install only one of them")


def read_record(root: Root, info: str) -> Record:
    """The modules and libraries of a distribution with their hashes, "" where there is none."""
    found: dict[str, str] = {}
    for line in root.text(f"{info}/RECORD").splitlines():
        path, _, rest = line.rpartition(",")[0].rpartition(",")
        is_code = path.endswith(".py") or COMPILED.fullmatch(path)
        if is_code and not path.startswith(".."):
            found[path] = rest
    return found


def find_conflict(paths: Sequence[str]) -> str:
    """The file that shows that two distributions exclude each other, "" if they may not: a library,
    or what imports a module of which several files differ.
    """
    tops: dict[str, list[str]] = {}
    for path in paths:
        tops.setdefault(path.partition("/")[0], []).append(path)
    for top, inside in tops.items():
        if top in STRAY:
            continue
        libraries = [path for path in inside if COMPILED.fullmatch(path)]
        if libraries:
            return libraries[0]
        if len(inside) >= FEWEST and posixpath.join(top, INIT) in inside:
            return posixpath.join(top, INIT)
    return ""
