# SPDX-License-Identifier: Apache-2.0
"""The SBOM of an image: an SPDX 2.3 document in JSON, the same text for the same image.

Fields: https://spdx.github.io/spdx-spec/v2.3/; package URLs: https://github.com/package-url/purl-spec.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote

from imagebuilder import __version__
from imagebuilder.digest import Json, digest_of
from imagebuilder.families.protocol import Family
from imagebuilder.lock.builds import files_of
from imagebuilder.lock.types import (
    LockedBuild,
    LockedPackage,
    LockedSourcePackage,
    LockedWheel,
)

DOCUMENT = "SPDXRef-DOCUMENT"
IMAGE = "SPDXRef-Image"
UNKNOWN = "NOASSERTION"


@dataclass(frozen=True)
class SbomSubject:
    """What the document is about.

    `digest` identifies the root; `created` is in seconds since 1970 (the epoch of the lock);
    `distribution` and `suite` (`debian`, `trixie`) appear in package URLs; `family` made the root.
    """

    profile: str
    version: str
    digest: str
    created: int
    family: Family
    distribution: str
    suite: str

    def purl(self, package: LockedPackage) -> str:
        return self.family.purl(package, self.distribution, self.suite)

    def package_id(self, package: LockedPackage) -> str:
        """The SPDX identifier of a package: that of package URLs for its kind is a part of it."""
        kind = self.purl(package).removeprefix("pkg:").partition("/")[0]
        return spdx_id(kind, package.name, package.sha256)

    def origin(self, source: str, path: str) -> str:
        """Where a package came from, in words."""
        return f"{self.family.name} source {source}, {path}"


def render_sbom(
    subject: SbomSubject,
    packages: Sequence[LockedPackage],
    wheels: Sequence[LockedWheel] = (),
    builds: Sequence[LockedBuild] = (),
) -> str:
    """The document as JSON text; the order of packages and wheels and repetition do not matter.

    What `builds` are made of is not contained in the image: tools and sources are related to it.
    """
    contents = {
        **{subject.package_id(each): package_entry(each, subject) for each in packages},
        **{wheel_id(wheel): wheel_entry(wheel) for wheel in wheels},
    }
    ids = sorted(contents)
    tools = build_tools(builds, subject)
    sources = {
        source_id(source): source_entry(source, subject)
        for build in builds
        for source in build.source_packages
    }
    aside = {**tools, **sources}
    document: dict[str, Json] = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": DOCUMENT,
        "name": f"{subject.profile}@{subject.version}",
        "creationInfo": {
            "created": datetime.fromtimestamp(subject.created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "creators": [f"Tool: imagebuilder-{__version__}"],
        },
        "packages": [
            image_entry(subject),
            *(contents[name] for name in ids),
            *(aside[name] for name in sorted(aside) if name not in contents),
        ],
        "relationships": [
            relationship(DOCUMENT, "DESCRIBES", IMAGE),
            *(relationship(IMAGE, "CONTAINS", name) for name in ids),
            *(relationship(name, "BUILD_TOOL_OF", IMAGE) for name in sorted(tools)),
            *(relationship(IMAGE, "GENERATED_FROM", name) for name in sorted(sources)),
        ],
    }
    return json.dumps(renamed(document), indent=1, sort_keys=True) + "\n"


def renamed(document: Mapping[str, Json]) -> dict[str, Json]:
    """The document with a URI that only this content has."""
    content = {key: value for key, value in document.items() if key != "documentNamespace"}
    unique = uuid.uuid5(uuid.NAMESPACE_URL, digest_of(content))
    name = quote(str(content["name"]).replace("@", "-"), safe="")
    namespace = f"https://spdx.org/spdxdocs/imagebuilder-{name}-{unique}"
    return {**content, "documentNamespace": namespace}


def image_entry(subject: SbomSubject) -> dict[str, Json]:
    """The image itself, as the package that contains the others."""
    return {
        **entry(IMAGE, subject.profile, subject.version),
        "comment": f"root digest {subject.digest}",
        "primaryPackagePurpose": "OPERATING_SYSTEM",
    }


def package_entry(package: LockedPackage, subject: SbomSubject) -> dict[str, Json]:
    """A package; `sourceInfo` says which source it came from, and where it was there."""
    return {
        **entry(subject.package_id(package), package.name, package.version),
        **file_fields(package.path.rpartition("/")[2], package.sha256),
        "externalRefs": [purl(subject.purl(package))],
        "sourceInfo": subject.origin(package.source, package.path),
    }


def build_tools(builds: Sequence[LockedBuild], subject: SbomSubject) -> dict[str, dict[str, Json]]:
    """The packages and wheels of the trees of builds, by identifier."""
    return {
        **{
            subject.package_id(package): package_entry(package, subject)
            for build in builds
            for package in build.packages
        },
        **{
            wheel_id(wheel): wheel_entry(wheel)
            for build in builds
            if build.python
            for wheel in build.python.wheels
        },
    }


def source_entry(source: LockedSourcePackage, subject: SbomSubject) -> dict[str, Json]:
    """A source package, by its first file, which names the others with their checksums."""
    first = source.files[0]
    return {
        **entry(source_id(source), source.name, source.version),
        **file_fields(first.name, first.sha256),
        "externalRefs": [purl(subject.purl(files_of(source)[0]))],
        "sourceInfo": subject.origin(source.source, first.path),
        "primaryPackagePurpose": "SOURCE",
    }


def wheel_entry(wheel: LockedWheel) -> dict[str, Json]:
    name = re.sub(r"[-_.]+", "-", wheel.name).lower()  # as PyPI normalises it
    url = f"pkg:pypi/{quote(name)}@{quote(wheel.version, safe='')}"
    return {
        **entry(wheel_id(wheel), wheel.name, wheel.version),
        **file_fields(wheel.filename, wheel.sha256),
        "externalRefs": [purl(url)],
    }


def entry(identifier: str, name: str, version: str) -> dict[str, Json]:
    """The fields every package has.  We read no licences and assert none."""
    return {
        "SPDXID": identifier,
        "name": name,
        "versionInfo": version,
        "downloadLocation": UNKNOWN,
        "filesAnalyzed": False,
        "supplier": UNKNOWN,
        "copyrightText": UNKNOWN,
        "licenseConcluded": UNKNOWN,
        "licenseDeclared": UNKNOWN,
    }


def file_fields(filename: str, sha256: str) -> dict[str, Json]:
    """The file a package came as."""
    return {
        "packageFileName": filename,
        "checksums": [{"algorithm": "SHA256", "checksumValue": sha256}],
    }


def purl(url: str) -> Json:
    return {
        "referenceCategory": "PACKAGE-MANAGER",
        "referenceType": "purl",
        "referenceLocator": url,
    }


def relationship(one: str, kind: str, other: str) -> Json:
    return {"spdxElementId": one, "relationshipType": kind, "relatedSpdxElement": other}


def source_id(source: LockedSourcePackage) -> str:
    return spdx_id("source", source.name, source.files[0].sha256)


def wheel_id(wheel: LockedWheel) -> str:
    """The SPDX identifier of a wheel, one however many environments have it."""
    return spdx_id("wheel", wheel.name, wheel.sha256)


def spdx_id(kind: str, name: str, sha256: str) -> str:
    """An identifier of the allowed characters (letters, digits, `.`, `-`), unique by the file."""
    return f"SPDXRef-{kind}-{re.sub(r'[^A-Za-z0-9.-]', '-', name)}-{sha256[:16]}"
