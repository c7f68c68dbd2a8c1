# SPDX-License-Identifier: Apache-2.0
"""Stage the files of a release in a folder that is not published yet."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from imagebuilder.bootfiles import is_changed_by_ipxe
from imagebuilder.digest import digest_of_file
from imagebuilder.errors import InputError, WorkError
from imagebuilder.files import plain_file
from imagebuilder.image.types import Image
from imagebuilder.limited import MOST_READ
from imagebuilder.lock.storage import check_free
from imagebuilder.publish.find import find_releases
from imagebuilder.publish.release.content import MANIFEST, SCRIPT, SUMS, read_sums, render_sums
from imagebuilder.publish.space import HINT
from imagebuilder.share import SHARE
from imagebuilder.templates import templates
from imagebuilder.tree import Tree

FILES = ("cmdline", MANIFEST, "sbom.spdx.json")
CHUNK = 1 << 20
TEMPLATES = SHARE / "pxe"


def check_cmdline(image: Image) -> None:
    """Raise InputError for words that iPXE would change."""
    for word in image.boot.cmdline:
        if is_changed_by_ipxe(word):
            raise InputError(
                f"iPXE would change the word {word} of the kernel's command line",
                where=image.name,
                hint="leave ${...}, &&, ||, ; and words with # first out of the recipe's cmdline",
            )


def render_script(image: Image) -> str:
    """The iPXE script that boots this release."""
    return (
        templates(TEMPLATES)
        .get_template("release.ipxe.j2")
        .render(
            profile=image.profile,
            version=image.version,
            root=image.boot.root,
            cmdline=image.cmdline,
            initrds=tuple(image.kernel.initrds),
        )
    )


def stage_files(
    source: Path, image: Image, staged: Path, twins: Mapping[str, Path]
) -> dict[str, str]:
    """Put the image's files from `source` into `staged`, readable for every user.

    Returns the sha256 they must have.  They are copies, not links to the store: a web server must
    be able to read them, and damage to a release must not damage the store.  `twins` are files of
    other releases with the same bytes: what nodes boot changes less often than roots, and is
    shared in the same way.
    """
    make_readable(staged)
    files = (*image.kernel.files, *FILES)
    for name in files:
        if name in twins:
            os.link(twins[name], staged / name)
        else:
            copy_file(source / name, staged / name, image)
    (staged / SCRIPT).write_text(render_script(image))
    names = (*files, SCRIPT)
    for name in names:
        (staged / name).chmod(0o644)
    # Those of boot files are in the manifest: check_staged() reads these files only once.
    others = {name: digest_of_file(staged / name) for name in names if name not in image.sums}
    return others | image.sums


def copy_file(source: Path, target: Path, image: Image) -> None:
    """Copy a file of an image.

    Raises InputError for a link, which would lead out of the image, WorkError for another size, and
    FullError before the disk is full: the copy of a file of holes has none.
    """
    with contextlib.ExitStack() as stack:
        try:
            own = stack.enter_context(plain_file(source, follow=False))
        except OSError as error:
            how = "a link" if source.is_symlink() else error.strerror
            raise InputError(
                f"its {source.name} is not a file ({how})",
                where=image.name,
                hint="build the image again; nothing was published",
            ) from error
        size, wanted = os.fstat(own.fileno()).st_size, image.kernel.files.get(source.name)
        if size != wanted.size if wanted else size > MOST_READ:
            raise WorkError(
                f"its {source.name} is damaged: it has {size} bytes",
                where=image.name,
                hint="run imagebuilder fsck, with --tree too; nothing was published",
            )
        check_free(target.parent, size, f"for {source.name} of {image.name}", HINT)
        new = stack.enter_context(target.open("wb"))
        shutil.copyfileobj(own, new, CHUNK)


def find_twins(tree: Tree, image: Image) -> dict[str, Path]:
    """Files of other releases with the bytes that iPXE fetches.  Reads them to be sure."""
    found: dict[str, Path] = {}
    for release in reversed(find_releases(tree)):
        folder = tree.release(release)
        with contextlib.suppress(OSError):
            said = read_sums(folder)
            for name, digest in image.sums.items():
                path, size = folder / name, image.kernel.files[name].size
                same = name not in found and said.get(name) == digest
                if same and path.stat().st_size == size and digest_of_file(path) == digest:
                    found[name] = path
    return found


def write_sums(staged: Path, sums: Mapping[str, str]) -> None:
    """Write SHA256SUMS, as a new file: another folder may have a link to an old one."""
    path = staged / SUMS
    path.unlink(missing_ok=True)
    path.write_text(render_sums(sums))
    path.chmod(0o644)


def link_files(release: Path, staged: Path) -> None:
    """Make a second folder with links to the same files."""
    make_readable(staged)
    for path in release.iterdir():
        os.link(path, staged / path.name)


def make_readable(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o755)
