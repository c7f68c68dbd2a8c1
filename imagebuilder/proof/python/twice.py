# SPDX-License-Identifier: Apache-2.0
"""What an environment of Python has twice: metadata of one distribution, and files of two."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from packaging.utils import canonicalize_name

from imagebuilder.image.proof import Evidence, Finding, Question
from imagebuilder.proof.reading.python import Distribution, read_distributions
from imagebuilder.proof.say import Say
from imagebuilder.root import Root

SAY = Say(Question.PYTHON)
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


def prove_twice(root: Root) -> Iterator[Finding]:
    """Warnings: what is found first may be what was meant."""
    for site in dict.fromkeys(site for pattern in SITES for site in root.glob(pattern)):
        found = [each for each in read_distributions(root, site) if each.record]
        yield from prove_metadata(site, found)
        yield from prove_files(root, site, found)


def prove_metadata(site: str, found: Sequence[Distribution]) -> Iterator[Finding]:
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
            yield SAY.warning(what, *where, hint="remove the folder of the one that is not there")


def prove_files(root: Root, site: str, found: Sequence[Distribution]) -> Iterator[Finding]:
    """Warnings of two distributions with the same files, of which one has replaced those of the
    other (microsoft/onnxruntime #26996, #7748).
    """
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
            yield SAY.warning(what, *where, hint="install only one of them")


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
