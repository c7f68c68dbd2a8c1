# SPDX-License-Identifier: Apache-2.0
"""Debian and Ubuntu for families/protocol.py; each method delegates to the module that does it.

What only a lock or a build needs is imported where it is needed, so that planning stays fast.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from imagebuilder.families.apt.bootstrap import ENGINES, run_bootstrap
from imagebuilder.families.apt.contents import (
    find_kernel_release,
    is_kernel_package,
    package_with,
    release_of,
)
from imagebuilder.families.apt.database import (
    LIST_PACKAGES,
    STATUS,
    find_installed,
    read_shipped,
    read_versions,
)
from imagebuilder.families.apt.install import SET_UP, check_apt, run_install, unpack_source
from imagebuilder.families.apt.settings import find_unsigned, find_upgrading, is_upgrade
from imagebuilder.families.protocol import (
    AnsibleSetup,
    Archives,
    Engine,
    Keep,
    SecretFile,
    Solution,
    Tell,
)
from imagebuilder.lock.changes import Suites
from imagebuilder.lock.kept import Names
from imagebuilder.lock.patience import Patience, Progress
from imagebuilder.lock.request import Request
from imagebuilder.lock.types import Lock, LockedPackage, LockedSource
from imagebuilder.recipe.types import Recipe, Source
from imagebuilder.sandbox.sandbox import INSIDE

if TYPE_CHECKING:
    from imagebuilder.families.protocol import Family

# What apt, dpkg and debconf leave in a root.
LEFTOVERS = (
    "/var/lib/apt/lists/*", "/var/cache/apt/*", "/var/log/apt/*", "/var/cache/debconf/*-old",
    "/var/lib/dpkg/*-old", "/var/lib/dpkg/lock*", "/var/lib/dpkg/triggers/Lock",
)  # fmt: skip
# Where they keep settings of a site.
SITE_FILES = (
    "/etc/resolv.conf.dpkg*", "/etc/apt/auth.conf", "/etc/apt/auth.conf.d/*",
    "/etc/apt/apt.conf.d/*proxy*",
)  # fmt: skip
IN_ADDRESS = rb"://[^\s/:@'\"]+:[^\s/@'\"]+@"
SECRETS = (
    SecretFile("apt password", r"/etc/apt/auth\.conf(\.d/.+)?", rb"(?m)^[^\S\n]*[^#\s]"),
    SecretFile("apt proxy password", r"/etc/apt/apt\.conf(\.d/.+)?", IN_ADDRESS),
    SecretFile("apt source password", r"/etc/apt/sources\.list(\.d/.+)?", IN_ADDRESS),
)
# What Ansible finds in a root.  No package lists: only the lock may add packages.
APT_CONF = 'Dir::Etc::sourcelist "/dev/null";\nDir::Etc::sourceparts "/dev/null";\n'
ANSIBLE = AnsibleSetup(
    facts={"os_family": "Debian", "pkg_mgr": "apt"},
    # An unreleased suite has no version.
    versions={
        "bookworm": "12", "trixie": "13", "jammy": "22.04", "noble": "24.04", "resolute": "26.04",
    },
    kernel=release_of,
    files={"apt.conf": APT_CONF},
    environment={"APT_CONFIG": f"{INSIDE}/ansible/apt.conf"},
)  # fmt: skip
# What a finished root says of its sources.
SOURCES = """\
# This root is immutable: packages are added in its recipe, not on the node.
# Its exact packages and the suites they are from are in the image's manifest.
"""
FINALISE = f"""\
mkdir -p /etc/apt
cat > /etc/apt/sources.list <<'END'
{SOURCES}END
"""


class AptFamily:
    name: str = "apt"
    bootstrap_version: str = "2"
    install_version: str = "1"

    engines: Mapping[str, Engine] = ENGINES
    set_up: re.Pattern[str] = SET_UP
    database: str = STATUS
    list_packages: tuple[str, ...] = LIST_PACKAGES
    leftovers: tuple[str, ...] = LEFTOVERS
    site_files: tuple[str, ...] = SITE_FILES
    secrets: tuple[SecretFile, ...] = SECRETS
    ansible: AnsibleSetup = ANSIBLE

    check_host = staticmethod(check_apt)
    bootstrap = staticmethod(run_bootstrap)
    install = staticmethod(run_install)
    unpack_source = staticmethod(unpack_source)
    installed = staticmethod(find_installed)
    kernel_release = staticmethod(find_kernel_release)
    shipped_files = staticmethod(read_shipped)
    package_versions = staticmethod(read_versions)
    find_unsigned = staticmethod(find_unsigned)
    package_with = staticmethod(package_with)
    is_upgrade = staticmethod(is_upgrade)
    find_upgrading = staticmethod(find_upgrading)
    is_kernel_package = staticmethod(is_kernel_package)

    @property
    def default_mirrors(self) -> Mapping[str, str]:
        from imagebuilder.families.apt.mirrors import DEFAULTS

        return DEFAULTS

    def suite_index(self, mirror: str, suite: str, component: str) -> str:  # noqa: ARG002 - one each
        return f"dists/{suite}/InRelease"

    def keyring_package(self, keyring: Path) -> str:
        from imagebuilder.families.apt.apt import keyring_package

        return keyring_package(keyring)

    def find_mirrors(self, site: Mapping[str, str], env: Mapping[str, str]) -> Mapping[str, str]:
        from imagebuilder.families.apt.mirrors import find_mirrors

        return find_mirrors(site, env)

    def solve(
        self,
        recipe: Recipe,
        requests: Sequence[Request],
        archives: Archives,
        *,
        previous: Lock | None,
        keep: bool,
        allow_older: bool,
        progress: Tell,
    ) -> Solution:
        from imagebuilder.families.apt.solving import solve_recipe

        return solve_recipe(
            recipe,
            requests,
            archives,
            previous=previous,
            keep=keep,
            allow_older=allow_older,
            progress=progress,
        )

    def read_sources(
        self, sources: Sequence[Source], archives: Archives, architecture: str, progress: Tell
    ) -> tuple[LockedSource, ...]:
        from imagebuilder.families.apt.solving import read_sources

        return read_sources(sources, archives, architecture, progress)

    def find_suites(self, recipe: Recipe, archives: Archives, names: Sequence[str]) -> Suites:
        from imagebuilder.families.apt.solving import suites_of

        return suites_of(recipe, archives, names)

    def fetch(
        self,
        packages: Sequence[LockedPackage],
        sources: Sequence[Source],
        archives: Archives,
        folder: Path,
        keep: Keep,
        *,
        architecture: str,
        progress: Progress,
        patience: Patience,
    ) -> None:
        from imagebuilder.families.apt.apt import make_apt
        from imagebuilder.families.apt.fetching import fetch_debs

        apt = make_apt(sources, archives.mirrors, archives.cache, architecture=architecture)
        fetch_debs(apt, packages, folder, progress, keep, patience)

    def glibc(self, packages: Iterable[LockedPackage]) -> str:
        return next((package.version for package in packages if package.name == "libc6"), "")

    def python(self, packages: Iterable[LockedPackage], interpreter: str) -> str:
        versions = {package.name: package.version for package in packages}
        names = (interpreter, f"{interpreter}-minimal")
        version = next((versions[name] for name in names if name in versions), "")
        return version.rpartition(":")[2].partition("-")[0]

    def names(
        self, folder: Path, packages: Sequence[LockedPackage], *, whole: bool
    ) -> Sequence[Names]:
        from imagebuilder.families.apt.deb import names_of

        return names_of(folder, packages, whole=whole)

    def identity(self, package: LockedPackage) -> str:
        return f"{package.name}:{package.architecture}"

    def purl(self, package: LockedPackage, distribution: str, suite: str) -> str:
        name = f"{quote(package.name)}@{quote(package.version, safe=':')}"
        where = f"arch={package.architecture}&distro={quote(suite)}"
        return f"pkg:deb/{distribution}/{name}?{where}"

    def is_kernel_headers(self, package: str) -> bool:
        return package.startswith("linux-headers-")

    def finalise(self) -> str:
        return FINALISE


APT: Family = AptFamily()
