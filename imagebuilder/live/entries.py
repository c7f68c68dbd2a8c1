# SPDX-License-Identifier: Apache-2.0
"""Live systems in the netboot tree: add, list, remove.

    http/live/NAME/
      vmlinuz initrd                    of the distribution
      NAME.iso | filesystem.squashfs    what its initrd fetches into memory
      user-data meta-data vendor-data   for cloud-init, or hook for live-config
      boot.ipxe live.json SHA256SUMS

A live system is complete or absent: it is staged in work/, renamed into place, and never changed.
The menu is rebuilt afterwards.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from imagebuilder.decode import decode_box, read_object
from imagebuilder.digest import Json, digest_of, digest_of_file
from imagebuilder.errors import InputError
from imagebuilder.files import move_away, move_in, sync_all
from imagebuilder.folders import matching
from imagebuilder.live.iso import CASPER, LiveIso, extract, read_iso
from imagebuilder.live.seed import render_hook, render_meta_data, render_user_data
from imagebuilder.lock.storage import check_free
from imagebuilder.locks import file_lock
from imagebuilder.nodes.files import refresh_menu
from imagebuilder.phrases import quote
from imagebuilder.process import run
from imagebuilder.recipe.rules import NAME
from imagebuilder.settings import find_caller
from imagebuilder.share import SHARE
from imagebuilder.store.workplace import new_id, workplace
from imagebuilder.tree import Tree
from imagebuilder.ui import Ui, format_size

TEMPLATES = SHARE / "pxe"
ENTRY, SUMS = "live.json", "SHA256SUMS"
GIB = 1024**3
SPARE = 64 * 1024**2  # bytes to keep free on the tree's disk


@dataclass(frozen=True)
class Live:
    """A live system in the tree; sizes in bytes, `added` as ISO 8601 UTC.

    `memory` is what a node needs; `seed` is the digest of its configuration files.
    """

    name: str
    title: str
    kind: str
    iso: str
    iso_size: int
    iso_sha256: str
    autoinstall: bool
    seed: str
    memory: int
    added: str

    def as_json(self) -> dict[str, Json]:
        return asdict(self)

    def row(self) -> tuple[str, ...]:
        does = "installs unattended" if self.autoinstall else "runs in memory"
        return (self.name, self.title, format_size(self.iso_size), memory_text(self.memory), does)


@dataclass(frozen=True)
class Added:
    """The result of add_live(); not `new` if the tree already had exactly this."""

    live: Live
    folder: Path
    new: bool


def add_live(
    tree: Tree,
    path: Path,
    ui: Ui,
    *,
    name: str = "",
    keys: Sequence[str] = (),
    autoinstall: str = "",
) -> Added:
    """Put the ISO at `path` into the tree as live system `name` (its file's name if empty).

    `autoinstall` is a complete user-data that installs; without it `keys` may log in and nothing is
    installed.  Raises InputError if the file is not a live ISO, another live system has the name,
    or (after adding it) nodes.yaml has faults.
    """
    name = check_name(name or path.name.removesuffix(".iso"), path)
    iso = read_iso(path)
    seed = seed_files(iso, name, keys, autoinstall)
    folder = tree.http / "live" / name
    linked = iso.kind == CASPER and is_public(path, os.environ)
    if not folder.exists():
        check_space(tree.path, iso, linked=linked)
    with ui.step(f"Hashing {path.name}"):
        sha256 = digest_of_file(path)
    live = Live(
        name, iso.title, iso.kind, path.name, iso.size, sha256, bool(autoinstall),
        digest_of(seed),
        needed_memory(iso), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    )  # fmt: skip
    with file_lock(tree.lock("live"), waiting=lambda: ui.note("waiting for another live add")):
        new = not folder.exists()
        if new:
            with ui.step(f"Adding {name}"), workplace(tree.path, new_id("live")) as place:
                stage(iso, live, seed, place / name, linked=linked)
                move_in(place / name, folder)
        else:
            live = same_live(folder, live)
    refresh_menu(tree, ui)
    return Added(live, folder, new=new)


def list_lives(tree: Tree) -> tuple[Live, ...]:
    """Every live system of the tree, by name.  Raises InputError if one cannot be read."""
    return tuple(load_live(entry) for entry in sorted(matching(tree.http / "live", f"*/{ENTRY}")))


def remove_live(tree: Tree, name: str, ui: Ui) -> None:
    """Remove a live system: rename it away, then delete it.  Raises InputError."""
    folder = tree.http / "live" / check_name(name)
    with file_lock(tree.lock("live")):
        if not folder.is_dir():
            listed = ", ".join(live.name for live in list_lives(tree)) or "none"
            raise InputError(f"no live system named {name}", hint=f"known: {listed}")
        with workplace(tree.path, new_id("live")) as place:
            move_away(folder, place / name)
    refresh_menu(tree, ui)


def check_name(name: str, path: Path | None = None) -> str:
    """`name`, if it can be part of URLs and paths.  Raises InputError."""
    if not NAME.pattern.fullmatch(name):
        raise InputError(
            f"{quote(name)} is not {NAME.what}",
            where=os.fspath(path) if path else "",
            hint="choose another name with --name" if path else "",
        )
    return name


def load_live(entry: Path) -> Live:
    """The live system of a live.json.  Raises InputError."""
    hint = f"run imagebuilder live remove {entry.parent.name}, then add it again"
    return decode_box(Live, read_object(entry, hint=hint), os.fspath(entry), hint=hint)


def same_live(folder: Path, wanted: Live) -> Live:
    """The existing live system, if it equals the wanted one.  Raises InputError."""
    live = load_live(folder / ENTRY)
    if live.iso_sha256 == wanted.iso_sha256 and live.seed == wanted.seed:
        return live
    what = "another ISO" if live.iso_sha256 != wanted.iso_sha256 else "other keys or autoinstall"
    raise InputError(
        f"{wanted.name} already exists, with {what} ({live.iso}, added {live.added})",
        where=os.fspath(folder),
        hint=f"choose another name with --name, or run imagebuilder live remove {wanted.name} "
        "first",
    )


def needed_memory(iso: LiveIso) -> int:
    """Bytes of memory a node needs.

    casper writes the ISO into the initrd's root, a tmpfs, which uses at most half of the memory;
    live-boot writes the squashfs into a ramfs without a limit, and running it needs about as much
    again.  Plus 1 GiB.
    """
    return 2 * iso.size + GIB


def memory_text(size: int) -> str:
    """Memory for people: whole GiB, rounded up."""
    return f"{-(-size // GIB)} GiB"


def seed_files(iso: LiveIso, name: str, keys: Sequence[str], autoinstall: str) -> dict[str, str]:
    """The files that configure the live system, by name.  Raises InputError."""
    if iso.kind == CASPER:
        user_data = autoinstall or render_user_data(keys)
        return {"user-data": user_data, "meta-data": render_meta_data(name), "vendor-data": ""}
    if autoinstall:
        raise InputError(
            "is Debian's live system, which does not support autoinstall",
            where=os.fspath(iso.path),
            hint="omit --autoinstall, or use Ubuntu's live server ISO",
        )
    return {"hook": render_hook(keys)}


def stage(iso: LiveIso, live: Live, seed: dict[str, str], place: Path, *, linked: bool) -> None:
    """Make the folder of a live system at `place`, complete and synced to disk."""
    place.mkdir(mode=0o755)
    files = [(iso.kernel, place / "vmlinuz"), (iso.initrd, place / "initrd")]
    if iso.squashfs:
        files.append((iso.squashfs, place / "filesystem.squashfs"))
    extract(iso, files)
    for name, text in seed.items():
        (place / name).write_text(text, encoding="utf-8")
    (place / "boot.ipxe").write_text(render_boot_script(live), encoding="utf-8")
    (place / ENTRY).write_text(json.dumps(live.as_json(), indent=1) + "\n", encoding="utf-8")
    sums = {path.name: digest_of_file(path) for path in sorted(place.iterdir())}
    if iso.kind == CASPER:
        place_iso(iso.path, place / f"{live.name}.iso", linked=linked)
        sums[f"{live.name}.iso"] = live.iso_sha256
    (place / SUMS).write_text("".join(f"{sha}  {name}\n" for name, sha in sorted(sums.items())))
    sync_all((*place.iterdir(), place))


def is_public(path: Path, env: Mapping[str, str]) -> bool:
    """Whether a web server may read the file itself through a hard link.

    Whoever may write to the file would change what nodes boot, so it is ours, or belongs to who
    called sudo.
    """
    found, caller = path.stat(), find_caller(env)
    ours = found.st_uid in (os.geteuid(), caller[0] if caller else os.geteuid())
    return ours and found.st_mode & 0o026 == 0o004


def place_iso(path: Path, target: Path, *, linked: bool) -> None:
    """Put the ISO at `target`: a hard link if possible, else shared blocks or a copy."""
    if linked:
        try:
            target.hardlink_to(path.resolve())
        except OSError:
            pass  # another file system, or one without hard links
        else:
            return
    run(["cp", "--reflink=auto", "--", path, target])
    target.chmod(0o644)


def check_space(place: Path, iso: LiveIso, *, linked: bool) -> None:
    """Raise FullError if the files to copy do not fit."""
    same = linked and iso.path.stat().st_dev == place.stat().st_dev
    # The parts taken out of the ISO are at most as large as the ISO.
    wanted = SPARE + (0 if same else iso.size)
    hint = "free some space, or move the ISO to the file system of the tree, where it is linked"
    check_free(place, wanted, "to copy it", hint)


def render_boot_script(live: Live) -> str:
    """The iPXE script; it uses the settings `http` and `node-args`."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, autoescape=False,
        keep_trailing_newline=True, lstrip_blocks=True,
    )  # fmt: skip
    installs = "it INSTALLS to the disk without asking"
    return environment.get_template("live.ipxe.j2").render(
        name=live.name,
        title=live.title,
        kind=live.kind,
        autoinstall=live.autoinstall,
        memory=memory_text(live.memory),
        warning=installs if live.autoinstall else "nothing is written to a disk",
    )
