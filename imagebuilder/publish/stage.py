# SPDX-License-Identifier: Apache-2.0
"""The files of a release, put together in a folder that nobody sees yet."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from imagebuilder.digest import Json, digest_of_file
from imagebuilder.errors import InputError
from imagebuilder.publish.anchors import SUMS
from imagebuilder.publish.content import read_sums, render_sums
from imagebuilder.publish.find import ReleaseName, find_releases
from imagebuilder.share import SHARE
from imagebuilder.store.repository import ImageRef
from imagebuilder.tree import Tree

FILES = ("vmlinuz", "initrd.img", "cmdline", "manifest.json", "sbom.spdx.json")
SCRIPT = "boot.ipxe"
TEMPLATES = SHARE / "pxe"


@dataclass(frozen=True)
class Facts:
    """What publishing needs to know of an image.

    `image` and `root` are commits, `size` bytes of the root (an upper bound), `default` the kind
    of root that nodes get, `sums` the sha256 of kernel and initrd by file name.
    """

    release: ReleaseName
    image: str
    root: str
    size: int
    epoch: int
    default: str
    cmdline: str
    sums: Mapping[str, str]


def read_facts(image: ImageRef, manifest: Mapping[str, Json]) -> Facts:
    """A manifest as far as it matters here.  Raises InputError for words iPXE would change."""
    boot, root, kernel = manifest["boot"], manifest["root"], manifest["kernel"]
    assert isinstance(boot, dict)
    assert isinstance(root, dict)
    assert isinstance(kernel, dict)
    assert isinstance(manifest["epoch"], int)
    for word in boot["cmdline"]:
        if "${" in word or word in ("&&", "||"):
            raise InputError(
                f"iPXE would not pass the word {word} of the kernel's command line on",
                where=image.name,
                hint="leave ${...}, && and || out of the recipe's cmdline",
            )
    return Facts(
        release=ReleaseName(image.profile, image.version),
        image=image.commit,
        root=root["commit"],
        size=root["size"],
        epoch=manifest["epoch"],
        default=boot["root"],
        cmdline=" ".join(boot["cmdline"]),
        sums={
            "vmlinuz": kernel["vmlinuz"]["sha256"],
            "initrd.img": kernel["initrd"]["sha256"],
        },
    )


def render_script(facts: Facts) -> str:
    """The iPXE script that boots this release."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        undefined=StrictUndefined,
        autoescape=False,  # no HTML
        keep_trailing_newline=True,
    )
    return environment.get_template("release.ipxe.j2").render(
        profile=facts.release.profile,
        version=facts.release.version,
        root=facts.default,
        cmdline=facts.cmdline,
    )


def stage_files(
    image: Path, facts: Facts, script: str, staged: Path, twins: Mapping[str, Path]
) -> dict[str, str]:
    """Put the image's files into `staged`, for all to read; returns what their sha256 must be.

    They are copies and not links of the store's: they need modes that a web server can read, and
    what befalls a release must not befall the store.  `twins` are files of other releases with the
    same bytes: kernel and initrd change less often than roots, and are shared as roots are.
    """
    make_readable(staged)
    for name in FILES:
        if name in twins:
            os.link(twins[name], staged / name)
        else:
            shutil.copyfile(image / name, staged / name)
    (staged / SCRIPT).write_text(script)
    names = (*FILES, SCRIPT)
    for name in names:
        (staged / name).chmod(0o644)
    # The manifest has those of kernel and initrd: they are read once, back from the disk.
    others = {name: digest_of_file(staged / name) for name in names if name not in facts.sums}
    return others | dict(facts.sums)


def find_twins(tree: Tree, facts: Facts) -> dict[str, Path]:
    """Files of other releases that are kernel and initrd of this one, read to be sure of it."""
    found: dict[str, Path] = {}
    for release in reversed(find_releases(tree)):
        folder = tree.release(release.profile, release.version)
        with contextlib.suppress(OSError):
            said = read_sums(folder)
            for name, digest in facts.sums.items():
                same = name not in found and said.get(name) == digest
                if same and digest_of_file(folder / name) == digest:
                    found[name] = folder / name
    return found


def write_sums(staged: Path, sums: Mapping[str, str]) -> None:
    """Write SHA256SUMS, as a new file: another folder may have a link to an old one."""
    path = staged / SUMS
    path.unlink(missing_ok=True)
    path.write_text(render_sums(sums))
    path.chmod(0o644)


def link_files(release: Path, staged: Path) -> None:
    """A second folder with the same files and the same time."""
    make_readable(staged)
    for path in release.iterdir():
        os.link(path, staged / path.name)


def make_readable(folder: Path) -> None:
    """Make a folder for all to read."""
    folder.mkdir()
    folder.chmod(0o755)
