# SPDX-License-Identifier: Apache-2.0
"""A private apt: its own configuration, sources, lists and caches, blind to those of the host.

cache/apt/<digest of the sources>/
    apt.conf           what APT_CONFIG names
    auth.conf          logins of archives whose addresses have one
    sources.list.d/    one file a source, named by its place in the recipe
    keys/              vendors' certificates
    lists/ archives/   apt's own
    status/            dpkg status files, one a layer
    lock               held while anything here is in use
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.digest import Json, digest_of, digest_of_bytes
from imagebuilder.errors import HostError, InputError
from imagebuilder.families.addresses import split_login as split_user
from imagebuilder.families.apt.mirrors import archive_uri
from imagebuilder.files import place_file, read_text
from imagebuilder.lock.storage import make_users_folder
from imagebuilder.locks import file_lock
from imagebuilder.process import Completed, failure, run
from imagebuilder.recipe.keys import load_key
from imagebuilder.recipe.types import Source

HOST_LOGINS, HOST_LOGINS_PARTS = Path("/etc/apt/auth.conf"), Path("/etc/apt/auth.conf.d")
DEFAULT_PINS = (("*",), 500)
HOST_ERRORS = (
    errno.EIO, errno.ENOMEM, errno.ENFILE, errno.EMFILE, errno.EFBIG, errno.ENOSPC, errno.EROFS,
    errno.EDQUOT,
)  # fmt: skip
# The host's apt options that are needed to reach a mirror.
HOST_OPTIONS = re.compile(
    r"^Acquire::https?::(Proxy|ProxyAutoDetect|Proxy-Auto-Detect|CaInfo|CaPath|SslCert|SslKey)\b"
)
# How apt prints a system error that no mirror and no package can cause.
OF_THE_HOST = re.compile(rf"\((?:{'|'.join(map(str, HOST_ERRORS))}): ")
# Lists of packages are not fetched (sources.list(5), "Targets").
NO_PACKAGES = ('Acquire::IndexTargets::deb::Packages::DefaultEnabled "false";',)
OPTIONS = {
    "APT::Install-Recommends": "false",
    "APT::Install-Suggests": "false",
    # A request is a name, never a pattern of names.
    "APT::Cmd::Pattern-Only": "true",
    # Ubuntu phases updates by machine id; a lock must not depend on the builder's.
    "APT::Get::Always-Include-Phased-Updates": "true",
    # release.py compares the suite in a Release file with the requested one; apt compares with its
    # cache and would fail on the day that testing becomes stable.
    "Acquire::AllowReleaseInfoChange::Suite": "true",
    "Acquire::AllowReleaseInfoChange::Codename": "true",
    "Acquire::AllowReleaseInfoChange::Version": "true",
    "Acquire::Languages": "none",
    "Acquire::PDiffs": "false",
    "Acquire::Retries": "2",
    "Acquire::Retries::Delay": "false",
    "Acquire::http::Timeout": "30",
    "Acquire::https::Timeout": "30",
}


@dataclass(frozen=True)
class Apt:
    """A private apt below `root`; `uris` are the archives of `sources`, in the same order."""

    root: Path
    architecture: str
    sources: tuple[Source, ...]
    uris: tuple[str, ...]

    @property
    def config(self) -> Path:
        return self.root / "apt.conf"

    @property
    def auth(self) -> Path:
        return self.root / "auth.conf"

    @property
    def shown_uris(self) -> tuple[str, ...]:
        """`uris` for the arguments of programs, which every user can see: without logins."""
        return tuple(split_login(uri)[0] for uri in self.uris)

    @property
    def lists(self) -> Path:
        return self.root / "lists"

    def run(
        self,
        argv: Sequence[str | Path],
        *,
        ask: Callable[[], None] | None = None,
        check: bool = True,
    ) -> Completed:
        """Run a program of apt's with this configuration.  Raises as process.run()."""
        return run(argv, env={"APT_CONFIG": os.fspath(self.config)}, ask=ask, check=check)

    def attempt(
        self, argv: Sequence[str | Path], *, ask: Callable[[], None] | None = None
    ) -> Completed:
        """run() without check, for callers that explain a failure themselves.

        Raises FullError or WorkError if the host caused it: a full disk, or a signal.
        """
        done = self.run(argv, ask=ask, check=False)
        if done.status < 0 or (done.status > 0 and OF_THE_HOST.search(done.stderr)):
            raise failure(argv, done, None)
        return done


def make_apt(
    sources: Sequence[Source],
    mirrors: Mapping[str, str],
    cache: Path,
    *,
    architecture: str,
    with_sources: bool = False,
    with_packages: bool = True,
) -> Apt:
    """Prepare the private apt for `sources`; nothing is fetched.  It also knows source packages
    `with_sources`; without `with_packages` it only fetches and verifies Release files.

    Raises InputError for a key that the overlay does not pin, HostError for a mirror or a keyring
    that the host does not have.
    """
    uris = tuple(archive_uri(source, mirrors) for source in sources)
    keys = [load_key(source) if source.uri else b"" for source in sources]
    for source in sources:
        check_words(source)
        check_keyring(source)
    identity: Json = [architecture, *map(source_identity, sources, uris, keys)]
    if with_sources:
        identity = [identity, "deb-src"]
    if not with_packages:
        identity = [identity, "releases"]
    root = make_home(cache) / digest_of(identity)[:32]
    apt = Apt(root, architecture, tuple(sources), uris)
    folders = ("lists/partial", "archives/partial", "sources.list.d", "keys", "status", "empty")
    for folder in folders:
        (root / folder).mkdir(parents=True, exist_ok=True)
    for number, (source, key) in enumerate(zip(sources, keys, strict=True)):
        if key:
            place_file(key_path(apt, number), key, 0o600)
        # Vendors' repositories have no source packages, and apt would fail without their list.
        types = "deb deb-src" if with_sources and source.mirror else "deb"
        stanza = render_source(source, uris[number], key_of(apt, number), architecture, types)
        place_file(root / "sources.list.d" / f"{number:03}.sources", stanza.encode(), 0o600)
    place_file(apt.auth, render_logins(uris).encode(), 0o600)
    lines = (*host_options(), *(() if with_packages else NO_PACKAGES))
    place_file(apt.config, render_config(apt, lines).encode(), 0o600)
    return apt


def forget_lists(apt: Apt) -> None:
    """Remove the lists: apt ignores a Release file that is older than the one it has."""
    for path in (*apt.lists.iterdir(), *(apt.lists / "partial").iterdir()):
        if path.is_file():
            path.unlink()


def make_home(cache: Path) -> Path:
    """The folder of all private apts.

    Root has its own folder if the cache belongs to another user (under sudo).
    """
    return make_users_folder(cache, "apt")


def in_use(apt: Apt) -> AbstractContextManager[None]:
    """A lock: waits until no other process uses this apt."""
    return file_lock(apt.root / "lock")


def source_identity(source: Source, uri: str, key: bytes) -> Json:
    """Everything that determines the lists of one source."""
    trusted = digest_of_bytes(key) if key else os.fspath(source.key)
    accepts = source.expired_release is not None
    return [uri, list(source.suites), list(source.components), trusted, accepts]


def key_path(apt: Apt, number: int) -> Path:
    return apt.root / "keys" / f"{number:03}.gpg"


def key_of(apt: Apt, number: int) -> Path:
    """The keyring that apt trusts for a source: the vendor's own, or the host's."""
    source = apt.sources[number]
    return key_path(apt, number) if source.uri else source.key


def split_login(uri: str) -> tuple[str, str]:
    """An archive's address without user and password, and the line of auth.conf that has them.

    A login with whitespace in it has no line (apt_auth.conf(5)) and stays in the address.
    """
    place, user, password = split_user(uri)
    if place == uri or re.search(r"\s", f"{user}{password}"):
        return uri, ""
    return place, f"machine {place} login {user} password {password}\n"


def render_logins(uris: Sequence[str]) -> str:
    """auth.conf: logins of archives, and what the host's has."""
    ours = "".join(dict.fromkeys(split_login(uri)[1] for uri in uris))
    theirs = read_text(HOST_LOGINS) if os.access(HOST_LOGINS, os.R_OK) else ""
    return f"{ours}{theirs}"


def check_words(source: Source) -> None:
    """Raise InputError if a value would not be one word in a .sources file."""
    for word in (source.uri, *source.suites, *source.components):
        if re.search(r"[\s\x00]", word):
            raise InputError(f"{word!r} contains whitespace", where=f"source {source.id}")


def keyring_package(keyring: Path) -> str:
    """The package with a distribution's keyring, on Debian and Ubuntu."""
    return "ubuntu-keyring" if keyring.name.startswith("ubuntu-") else "debian-archive-keyring"


def check_keyring(source: Source) -> None:
    if not source.uri and not os.access(source.key, os.R_OK):
        raise HostError(
            f"this host does not have the keyring {source.key}",
            where=f"source {source.id}",
            hint=f"apt install {keyring_package(source.key)}",
        )


def render_source(source: Source, uri: str, key: Path, architecture: str, types: str) -> str:
    """The deb822 stanza of a source (sources.list(5))."""
    fields = {
        "Types": types,
        "URIs": uri,
        "Suites": " ".join(source.suites),
        "Components": " ".join(source.components),
        "Architectures": architecture,
        "Signed-By": os.fspath(key),
        "Check-Valid-Until": "no" if source.snapshot or source.expired_release else "",
    }
    return "".join(f"{name}: {value}\n" for name, value in fields.items() if value)


def render_config(apt: Apt, host: Sequence[str]) -> str:
    """The apt.conf(5) that hides everything of the host from apt except how to reach mirrors."""
    root = apt.root
    paths: dict[str, str | Path] = {
        "Dir::Etc": root / "empty",
        "Dir::Etc::main": "/dev/null",
        "Dir::Etc::parts": root / "empty",
        "Dir::Etc::sourcelist": "/dev/null",
        "Dir::Etc::sourceparts": root / "sources.list.d",
        "Dir::Etc::trusted": "/dev/null",
        "Dir::Etc::trustedparts": root / "empty",
        "Dir::Etc::preferences": root / "preferences",
        "Dir::Etc::preferencesparts": root / "empty",
        "Dir::State": root,
        "Dir::State::lists": apt.lists,
        "Dir::State::status": "/dev/null",
        "Dir::State::extended_states": "/dev/null",
        "Dir::Cache": root,
        "Dir::Cache::archives": root / "archives",
        "Dir::Log": root,
    }
    paths["Dir::Etc::netrc"] = apt.auth
    if os.access(HOST_LOGINS_PARTS, os.R_OK):
        paths["Dir::Etc::netrcparts"] = HOST_LOGINS_PARTS
    options = {
        **{name: os.fspath(path) for name, path in paths.items()},
        **OPTIONS,
        "APT::Architecture": apt.architecture,
    }
    if os.geteuid() == 0:
        # _apt cannot look into a private cache, and what is fetched is verified afterwards.
        options["APT::Sandbox::User"] = "root"
    lines = [f'{name} "{value}";' for name, value in options.items()]
    lines.append(f'APT::Architectures {{ "{apt.architecture}"; }};')
    return "\n".join([*lines, *host, ""])


def host_options() -> list[str]:
    """The lines of the host's apt configuration for reaching mirrors."""
    lines = run(["apt-config", "dump"]).stdout.splitlines()
    return [line for line in lines if HOST_OPTIONS.match(line)]
