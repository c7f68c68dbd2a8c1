# SPDX-License-Identifier: Apache-2.0
"""Which drivers the variables of the Vulkan loader leave to a service.

Vulkan-Loader, docs/LoaderDriverInterface.md and loader/loader_environment.c.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.environment import Environment
from imagebuilder.proof.reading.icd import DRIVERS, USUAL, announced, driver_said, files_in
from imagebuilder.proof.services import SAY
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

# Files or folders that are used instead of the announced ones; the first variable counts, and
# with it the one that adds files does not.
FILES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")
ADDED = "VK_ADD_DRIVER_FILES"
SELECT, DISABLE = "VK_LOADER_DRIVERS_SELECT", "VK_LOADER_DRIVERS_DISABLE"
SOFTWARE = re.compile(r"lvp|lavapipe|swiftshader|llvmpipe", re.IGNORECASE)
EVERYTHING = ("*", "**", "~all~")


def prove_drivers(subject: Subject, unit: str, environment: Environment) -> Iterator[Finding]:
    """A fault if variables leave no Vulkan driver for a card of the profile."""
    root = subject.root
    vendors = {device.pci.partition(":")[0] for device in subject.hardware} & DRIVERS.keys()
    found = [path for path in announced(root) if is_for_card(root, path, vendors)]
    # The question `libraries` reports an image without a driver: here one may be added to it.
    left = found or [USUAL[vendor] for vendor in sorted(vendors)]
    if added := environment.get(ADDED):
        left += [path for path in listed(root, added.value) if is_for_card(root, path, vendors)]
    files = next((name for name in FILES if name in environment), "")
    for name in (files, SELECT, DISABLE):
        variable = environment.get(name)
        if variable is None or not (variable.value or name == files):
            continue
        lost = left
        if name == files:
            named = listed(root, variable.value)
            left = [path for path in named if is_for_card(root, path, vendors)]
        else:
            left = [p for p in left if matches(p, variable.value) == (name == SELECT)]
        if not left:
            gone = " and ".join(sorted({posixpath.basename(path) for path in lost}))
            what = f"{name}={variable.value} leaves {unit} without a Vulkan driver for a card"
            yield SAY.fault(
                f"{what}: it leaves out {gone}" if gone else what,
                variable.evidence(name),
                *(Evidence(path) for path in lost if root.lies(path)),
                hint="remove that variable, or name the file of the card's driver in it",
            )
            return


def listed(root: Root, value: str) -> list[str]:
    """The ICD files of a list of files and folders."""
    found: list[str] = []
    for path in filter(None, value.split(":")):
        found += files_in(root, path) if root.is_dir(path) else [path]
    return found


def is_for_card(root: Root, path: str, vendors: set[str]) -> bool:
    """Whether an ICD file may be that of a card of these PCI vendors, by its driver's name."""
    library = driver_said(root, path)
    if library is None or SOFTWARE.search(f"{path} {library}"):
        return False
    name = posixpath.basename(library)
    owners = {v for v, (names, _) in DRIVERS.items() if any(each in name for each in names)}
    return not owners or not vendors or bool(owners & vendors)


def matches(path: str, value: str) -> bool:
    """Whether a list of globs has the name of an ICD file; `*` is special at both ends only."""
    name = posixpath.basename(path).lower()
    for glob in filter(None, value.lower().split(",")):
        text = re.escape(glob.removeprefix("*").removesuffix("*"))
        before, after = ".*" * glob.startswith("*"), ".*" * glob.endswith("*")
        if glob in EVERYTHING or re.fullmatch(f"{before}{text}{after}", name):
            return True
    return False
