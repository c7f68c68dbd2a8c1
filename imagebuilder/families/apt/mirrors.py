# SPDX-License-Identifier: Apache-2.0
"""The host's mirrors by name, so that no recipe has to contain one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.errors import HostError, InputError
from imagebuilder.families.addresses import find_archive, split_uri, tell_defaults
from imagebuilder.families.apt.deb822 import parse_stanzas
from imagebuilder.files import read_text
from imagebuilder.recipe.rules import MIRROR
from imagebuilder.recipe.types import Source

VARIABLE = "IMAGEBUILDER_MIRROR"
PLACES = "the site file or in the host's apt sources"
SCHEMES = ("http://", "https://", "file:", "copy:", "tor+http://", "tor+https://")
KEYRINGS = ("debian-archive-", "ubuntu-archive-")
# A mirror's name by the end of its path.
ENDINGS = {
    "/debian": "debian",
    "/debian-security": "debian-security",
    "/security": "debian-security",
    "/ubuntu": "ubuntu",
    "/ubuntu-ports": "ubuntu-ports",
}
# Ubuntu's own archives, for hosts without an Ubuntu mirror, such as those with Debian.  amd64 is in
# the first two, every other processor in the third.
DEFAULTS = {
    "ubuntu": "http://archive.ubuntu.com/ubuntu",
    "ubuntu-security": "http://security.ubuntu.com/ubuntu",
    "ubuntu-ports": "http://ports.ubuntu.com/ubuntu-ports",
}


def find_mirrors(
    settings_site_mirrors: Mapping[str, str],
    env: Mapping[str, str],
    apt_root: Path = Path("/etc/apt"),
) -> Mapping[str, str]:
    """Archive addresses by name, without a trailing slash.

    IMAGEBUILDER_MIRROR (`ubuntu` if its path ends so, else `debian`, with the security archive
    beside it) overrides the site file, which overrides the host's apt sources, of which the first
    address of each kind counts.  Raises InputError for an IMAGEBUILDER_MIRROR that is no address.
    """
    host: dict[str, str] = {}
    # A vendor's archive may end in /debian too, so certain distribution archives come first.
    for entry in sorted(host_entries(apt_root), key=lambda entry: not entry.official):
        if entry.name:
            host.setdefault(entry.name, entry.uri)
    site = {name: uri.rstrip("/") for name, uri in settings_site_mirrors.items()}
    uri = read_variable(env).rstrip("/")
    variable = {"ubuntu" if uri.endswith("/ubuntu") else "debian": uri} if uri else {}
    mirrors: dict[str, str] = {}
    for named in (host, site, variable):  # naming an archive also names its security archive
        mirrors |= {**security_beside(named), **named}
    return mirrors


def read_variable(env: Mapping[str, str]) -> str:
    """IMAGEBUILDER_MIRROR.  Raises InputError if it would be more than an address for apt."""
    uri = env.get(VARIABLE, "")
    if uri and not (MIRROR.pattern.fullmatch(uri) and split_uri(uri).scheme):
        what = f"is not {MIRROR.what}"  # the value may have a password in it
        raise InputError(what, where=VARIABLE, hint=f"{VARIABLE}=http://mirror.example.org/debian")
    return uri


def security_beside(named: Mapping[str, str]) -> dict[str, str]:
    """The security archives that belong to the archives in `named`.

    Debian's is beside its archive; Ubuntu's pocket is in every complete mirror.
    """
    found: dict[str, str] = {}
    if named.get("debian", "").endswith("/debian"):
        found["debian-security"] = f"{named['debian']}-security"
    if "ubuntu" in named:
        found["ubuntu-security"] = named["ubuntu"]
    return found


@dataclass(frozen=True)
class HostEntry:
    """An archive in the host's apt sources; `text` is the line or the stanza that names it."""

    uri: str
    text: str

    @property
    def official(self) -> bool:
        """Whether it certainly is the distribution's, by its keyring or its path."""
        return f"/{split_uri(self.uri).path.strip('/')}" in ENDINGS or any(
            keyring in self.text for keyring in KEYRINGS
        )

    @property
    def name(self) -> str:
        """The name of the mirror, "" if no base uses it."""
        found = next((name for end, name in ENDINGS.items() if self.uri.endswith(end)), "")
        security = found == "ubuntu" and (split_uri(self.uri).hostname or "").startswith(
            "security."
        )
        return "ubuntu-security" if security else found


def host_entries(apt_root: Path) -> Iterator[HostEntry]:
    """The binary archives in the host's apt sources, one-line files first, as apt reads them."""
    parts = apt_root / "sources.list.d"
    for path in (apt_root / "sources.list", *sorted(parts.glob("*.list"))):
        if path.is_file():
            yield from one_line_entries(read_text(path))
    for path in sorted(parts.glob("*.sources")):
        yield from deb822_entries(read_text(path))


def one_line_entries(text: str) -> Iterator[HostEntry]:
    """The archives of `deb [options] URI SUITE ...` lines."""
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        uris = [word.rstrip("/") for word in words[1:] if word.startswith(SCHEMES)]
        if words[:1] == ["deb"] and uris:
            yield HostEntry(uris[0], line)


def deb822_entries(text: str) -> Iterator[HostEntry]:
    """The archives of the enabled `deb` stanzas of a .sources file."""
    for stanza in parse_stanzas(text):
        fields = {name.lower(): value for name, value in stanza.items()}
        enabled = fields.get("enabled", "yes").lower() not in ("no", "false", "0", "off", "without")
        if enabled and "deb" in fields.get("types", "").split():
            for uri in fields.get("uris", "").split():
                if uri.startswith(SCHEMES):
                    yield HostEntry(uri.rstrip("/"), fields.get("signed-by", ""))


def archive_uri(source: Source, mirrors: Mapping[str, str]) -> str:
    """The address of the archive of `source` on this host.

    Raises HostError if the host does not have the mirror or it has no snapshots, and InputError if
    it has only snapshots and the recipe does not choose one.
    """
    uri = find_archive(source, mirrors, DEFAULTS, missing_mirror)
    # Without an empty host, as apt prints it: file:/srv.
    return re.sub(r"^(file|copy):/+", r"\1:/", uri)


def default_notes(sources: Sequence[Source], mirrors: Mapping[str, str]) -> Iterator[str]:
    """A note on the default mirrors that are used because none was configured."""
    yield from tell_defaults(sources, mirrors, DEFAULTS, PLACES)


def missing_mirror(source: Source) -> HostError:
    how = "set IMAGEBUILDER_MIRROR, or " if source.mirror == "debian" else ""
    return HostError(
        f"no mirror named {source.mirror} in {PLACES}",
        where=f"source {source.id}",
        hint=f"{how}add one to the site file: mirrors: {{{source.mirror}: ADDRESS}}",
    )
