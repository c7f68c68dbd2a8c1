# SPDX-License-Identifier: Apache-2.0
"""Fetch packages with curl, several at once, and keep those that their source signed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from imagebuilder.errors import ImagebuilderError, WorkError
from imagebuilder.families.addresses import split_login
from imagebuilder.families.downloads import Download, Trouble, fetch_all, uri_of
from imagebuilder.families.hints import unreached
from imagebuilder.families.protocol import Archives, Keep
from imagebuilder.families.rpm.curl import Transfer, TransferFault, fetch_files
from imagebuilder.families.rpm.mirrors import archive_uri
from imagebuilder.families.rpm.signatures import signature_faults
from imagebuilder.lock.patience import PATIENCE, Pace, Patience, Progress
from imagebuilder.lock.storage import make_users_folder, storing
from imagebuilder.lock.types import LockedPackage
from imagebuilder.process import check_tools
from imagebuilder.recipe.types import Source

# What an href of an index has is sent as it is: `+` is in many names, and some are quoted already.
SAFE = "/~+:@,=%^"


def fetch_rpms(
    packages: Sequence[LockedPackage],
    sources: Sequence[Source],
    archives: Archives,
    folder: Path,
    keep: Keep,
    *,
    architecture: str,
    progress: Progress,
    patience: Patience = PATIENCE,
) -> None:
    """Fetch `packages` into `folder`, resuming partial files; calls `keep` with verified files.

    A file that is wrong after it was resumed is fetched once more as a whole.  Raises HostError if
    a mirror is not reachable or too slow, the disk is full or rpm is not installed, InputError for
    a key that the recipe does not pin, WorkError if the mirror no longer has a package, or has it
    with other content, and for a package that its source did not sign.
    """
    del architecture  # a package's path in the lock has it
    check_tools("curl", "rpmkeys")
    named = {source.id: source for source in sources}
    used = dict.fromkeys(package.source for package in packages)
    addresses = {name: archive_uri(named[name], archives.mirrors) for name in used if name in named}
    shown = {name: split_login(uri)[0] for name, uri in addresses.items()}
    with storing(archives.cache):
        transport = RpmTransport(named, make_users_folder(archives.cache, "rpm"))
    downloads = []
    for package in packages:
        path = folder / f"{package.sha256}.rpm"
        downloads.append(Download(package, uri_of(package, shown, SAFE), path))
        transport.addresses[path] = uri_of(package, addresses, SAFE)
    fetch_all(transport, downloads, named, folder, progress, keep, patience)


@dataclass(frozen=True)
class RpmTransport:
    """families/downloads.py with curl.

    `addresses` are those of the files with logins; `faults` are what became of the last attempts;
    keyrings are made below `home`.
    """

    sources: Mapping[str, Source]
    home: Path
    addresses: dict[Path, str] = field(default_factory=dict)
    faults: dict[Path, TransferFault] = field(default_factory=dict)

    def fetch(self, share: Sequence[Download], pace: Pace) -> str:
        transfers = [
            Transfer(self.addresses[each.path], each.path, each.package.size, resume=True)
            for each in share
        ]
        for each in share:
            self.faults.pop(each.path, None)
        self.faults.update(fetch_files(transfers, pace.ask, at_once=1))
        return ""  # explain() has the faults

    def tidy(self, path: Path) -> None:
        """curl leaves nothing else."""

    def verify(self, downloads: Sequence[Download]) -> None:
        files = [(each.path, each.package) for each in downloads]
        with storing(self.home):
            faults = signature_faults(files, self.sources, self.home)
        for path in faults:
            path.unlink()
        if faults:
            raise WorkError.of(faults.values())

    def explain(
        self, wrong: Sequence[Download], errors: str, source: Source | None
    ) -> ImagebuilderError:
        del errors
        for each in wrong:
            if (met := self.faults.get(each.path)) and met.is_full:
                return Trouble([each], source, f"\n    {met}").full()
        fault = self.faults.get(wrong[0].path)
        if fault is None:
            return Trouble(wrong, source, "").changed()
        trouble = Trouble(wrong, source, f"\n    {fault}")
        if fault.is_gone:
            return trouble.gone()
        if fault.is_too_large:
            return trouble.changed()
        return trouble.broken() if fault.is_cut_off else trouble.unreached(unreached(source))

    def unreached(self, source: Source | None) -> str:
        return unreached(source)
