# SPDX-License-Identifier: Apache-2.0
"""Whether the packages of an environment fit each other, and where else Python looks for some."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping

from packaging.markers import UndefinedEnvironmentName, default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from imagebuilder.image.proof import Evidence, Finding, Question
from imagebuilder.proof.reading.python import Distribution
from imagebuilder.proof.say import Say
from imagebuilder.root import Root

SAY = Say(Question.PYTHON)
# Of another Python than the environment's, in a file that site.py reads.
OTHER = re.compile(r"(?<![\w./+@-])(?P<path>/[\w./+@-]*/python(?P<version>3\.\d+)/[\w./+@-]*)")
MOST_CHARACTERS = 1000  # of a requirement, and of a line of a .pth file


def prove_requires(present: Mapping[str, Distribution], python: str) -> Iterator[Finding]:
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
                yield SAY.warning(what, *where, hint="lock versions that fit each other")


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


def prove_search(root: Root, site: str) -> Iterator[Finding]:
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
                    yield SAY.warning(what, Evidence(f"{site}/{name}", said=line), hint=hint)
