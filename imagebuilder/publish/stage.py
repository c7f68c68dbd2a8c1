# SPDX-License-Identifier: Apache-2.0
"""The files of a release, put together in a folder that nobody sees yet."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from imagebuilder.digest import Json, digest_of_file
from imagebuilder.errors import InputError
from imagebuilder.publish.content import SQUASHFS, SUMS, render_sums
from imagebuilder.publish.find import ReleaseName
from imagebuilder.store.repository import ImageRef

FILES = ("vmlinuz", "initrd.img", "cmdline", "manifest.json", "sbom.spdx.json")
SCRIPT = "boot.ipxe"
TEMPLATES = Path(__file__).parents[2] / "pxe"


@dataclass(frozen=True)
class Facts:
    """What publishing needs to know of an image.

    `image` and `root` are commits, `size` bytes of the root (an upper bound), `default` how nodes
    get it (nfs, http), `sums` the sha256 of kernel and initrd by file name.
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


def stage_files(image: Path, facts: Facts, script: str, staged: Path) -> dict[str, str]:
    """Copy the image's files into `staged`, for all to read; returns what their sha256 must be.

    Copies and not links: they need modes that a web server can read, and what befalls one
    release must not befall the store.
    """
    make_readable(staged)
    for name in FILES:
        shutil.copyfile(image / name, staged / name)
    (staged / SCRIPT).write_text(script)
    names = (*FILES, SCRIPT)
    for name in names:
        (staged / name).chmod(0o644)
    # The manifest has those of kernel and initrd: they are read once, back from the disk.
    others = {name: digest_of_file(staged / name) for name in names if name not in facts.sums}
    return others | dict(facts.sums)


def write_sums(staged: Path, sums: Mapping[str, str]) -> None:
    """Write SHA256SUMS, as a new file: another folder may have a link to an old one."""
    path = staged / SUMS
    path.unlink(missing_ok=True)
    path.write_text(render_sums(sums))
    path.chmod(0o644)


def seal_squashfs(staged: Path) -> str:
    """Make a packed root readable for the web server; returns its sha256."""
    (staged / SQUASHFS).chmod(0o644)
    return digest_of_file(staged / SQUASHFS)


def link_files(release: Path, staged: Path) -> None:
    """A second folder with the same files and the same time."""
    make_readable(staged)
    for path in release.iterdir():
        os.link(path, staged / path.name)


def make_readable(folder: Path) -> None:
    """Make a folder for all to read."""
    folder.mkdir()
    folder.chmod(0o755)
