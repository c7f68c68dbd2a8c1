# SPDX-License-Identifier: Apache-2.0
"""Rocky Linux for families/protocol.py; each method delegates to the module that does it.

What only a lock or a build needs is imported where it is needed, so that planning stays fast.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from imagebuilder.errors import WorkError
from imagebuilder.families.protocol import (
    AnsibleSetup,
    Archives,
    Engine,
    Keep,
    SecretFile,
    Solution,
    Tell,
)
from imagebuilder.families.rpm.contents import (
    find_kernel_release,
    is_kernel_headers,
    is_kernel_package,
    package_with,
)
from imagebuilder.families.rpm.database import (
    DATABASE,
    LIST_PACKAGES,
    find_installed,
    read_shipped,
    read_versions,
)
from imagebuilder.families.rpm.install import (
    ENGINES,
    SET_UP,
    check_rpm,
    run_bootstrap,
    run_install,
)
from imagebuilder.families.rpm.settings import (
    ANSIBLE,
    FINALISE,
    LEFTOVERS,
    SECRETS,
    SITE_FILES,
    find_unsigned,
    find_upgrading,
    is_upgrade,
)
from imagebuilder.lock.changes import Suites
from imagebuilder.lock.kept import Names
from imagebuilder.lock.patience import Patience, Progress
from imagebuilder.lock.request import Request
from imagebuilder.lock.types import Lock, LockedPackage, LockedSource, LockedSourcePackage
from imagebuilder.recipe.types import Recipe, Source
from imagebuilder.workspace import Workspace

if TYPE_CHECKING:
    from imagebuilder.families.protocol import Family


class RpmFamily:
    name: str = "rpm"
    bootstrap_version: str = "1"
    install_version: str = "1"

    engines: Mapping[str, Engine] = ENGINES
    set_up: re.Pattern[str] = SET_UP
    database: str = DATABASE
    list_packages: tuple[str, ...] = LIST_PACKAGES
    leftovers: tuple[str, ...] = LEFTOVERS
    site_files: tuple[str, ...] = SITE_FILES
    secrets: tuple[SecretFile, ...] = SECRETS
    ansible: AnsibleSetup = ANSIBLE

    check_host = staticmethod(check_rpm)
    bootstrap = staticmethod(run_bootstrap)
    install = staticmethod(run_install)
    installed = staticmethod(find_installed)
    kernel_release = staticmethod(find_kernel_release)
    shipped_files = staticmethod(read_shipped)
    package_versions = staticmethod(read_versions)
    find_unsigned = staticmethod(find_unsigned)
    package_with = staticmethod(package_with)
    is_upgrade = staticmethod(is_upgrade)
    find_upgrading = staticmethod(find_upgrading)
    is_kernel_package = staticmethod(is_kernel_package)
    is_kernel_headers = staticmethod(is_kernel_headers)

    @property
    def default_mirrors(self) -> Mapping[str, str]:
        from imagebuilder.families.rpm.mirrors import DEFAULTS

        return DEFAULTS

    def suite_index(self, mirror: str, suite: str, component: str) -> str:
        from imagebuilder.families.rpm.mirrors import index_path

        return index_path(mirror, suite, component)

    def keyring_package(self, keyring: Path) -> str:  # noqa: ARG002 - it has all of them
        return "distribution-gpg-keys"

    def find_mirrors(self, site: Mapping[str, str], env: Mapping[str, str]) -> Mapping[str, str]:
        from imagebuilder.families.rpm.mirrors import find_mirrors

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
        from imagebuilder.families.rpm.solving import solve_recipe

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
        from imagebuilder.families.rpm.indexes import read_sources
        from imagebuilder.families.rpm.mirrors import repositories_of

        repositories = repositories_of(sources, archives.mirrors, architecture)
        return read_sources(repositories, archives.cache, progress)

    def find_suites(self, recipe: Recipe, archives: Archives, names: Sequence[str]) -> Suites:
        from imagebuilder.families.rpm.solving import suites_of

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
        from imagebuilder.families.rpm.fetching import fetch_rpms

        fetch_rpms(
            packages, sources, archives, folder, keep,
            architecture=architecture, progress=progress, patience=patience,
        )  # fmt: skip

    def glibc(self, packages: Iterable[LockedPackage]) -> str:
        return next((package.version for package in packages if package.name == "glibc"), "")

    def python(self, packages: Iterable[LockedPackage], interpreter: str) -> str:
        version = next((each.version for each in packages if each.name == interpreter), "")
        return version.rpartition(":")[2].partition("-")[0]

    def names(
        self, folder: Path, packages: Sequence[LockedPackage], *, whole: bool
    ) -> Sequence[Names]:
        from imagebuilder.families.rpm.names import names_of

        return names_of(folder, packages, whole=whole)

    def unpack_source(
        self, source: LockedSourcePackage, folder: Path, workspace: Workspace
    ) -> None:
        raise WorkError(
            f"the source package {source.name} is not unpacked: only those of Debian are",
            where=str(folder.relative_to(workspace.work)),
            hint="run imagebuilder lock PROFILE",
        )

    def identity(self, package: LockedPackage) -> str:
        return f"{package.name}.{package.architecture}"

    def purl(self, package: LockedPackage, distribution: str, suite: str) -> str:
        epoch, _, version = package.version.rpartition(":")
        more = f"&epoch={epoch}" if epoch else ""
        where = f"arch={package.architecture}{more}&distro={distribution}-{quote(suite)}"
        return f"pkg:rpm/{distribution}/{quote(package.name)}@{quote(version)}?{where}"

    def finalise(self) -> str:
        return FINALISE


RPM: Family = RpmFamily()
