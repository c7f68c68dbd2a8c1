# SPDX-License-Identifier: Apache-2.0
"""Where layers and images live: one OSTree repository, and the arrows into and out of it.

    store/                      bare repository: content-addressed, hard-linked checkouts
      refs/heads/layer/<digest>             the root as a step left it, or what a leaf step made
      refs/heads/image/<profile>/<version>  vmlinuz, initrd.img, cmdline, manifest.json, SBOM

A commit's identity is its content: refs are bound afterwards (`--orphan`), subject and time are
fixed, so the same tree has the same commit on every builder.  A ref appears only when all of its
objects are on disk (ostree-commit(1), transaction and syncfs).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.errors import HostError, InputError, WorkError, one_line
from imagebuilder.files import (
    close,
    filling,
    keep_file,
    make_folder,
    move_in,
    read_plain,
    scratch,
    sync_all,
)
from imagebuilder.folders import date_last, matching, paths_below
from imagebuilder.locks import file_lock
from imagebuilder.phrases import suggest
from imagebuilder.plain import check_plain
from imagebuilder.process import Word, run
from imagebuilder.rights import check_enterable
from imagebuilder.store.objects import read_commit, read_folder
from imagebuilder.store.plain import check_objects, check_top
from imagebuilder.store.upper import Changes, remove, stage
from imagebuilder.store.workplace import new_id, workplace
from imagebuilder.tree import Released

# What a repository is not one without (ostree-repo(5)).
CONFIG, FOLDERS = "config", ("tmp", "refs/heads", "objects")
LAYERS = "layer"
IMAGES = "image"
# How the names begin that ostree gives to refs which it is writing, and leaves when it is killed.
UNFINISHED = "tmp."
# What ostree does with any number of objects.
OPENS_REFS = frozenset(("commit", "pull-local", "prune", "refs"))
OPENS_MANY = frozenset(("checkout", "commit", "ls", "pull-local", "show"))


@dataclass(frozen=True)
class ImageRef(Released):
    """An image in the store: `profile@version` and its commit."""

    profile: str
    version: str
    commit: str

    @property
    def ref(self) -> str:
        return f"{IMAGES}/{self.profile}/{self.version}"


@dataclass(frozen=True)
class Store:
    """The repository at `path`, made by make_store()."""

    path: Path

    @property
    def gc_lock(self) -> Path:
        """Held shared while layers or images are read, and alone while any are removed."""
        return self.path.parent / "locks" / "gc"

    def is_there(self) -> bool:
        """Whether there is a repository: all of it, not what a killed `ostree init` left."""
        return has_config(self.path) and all((self.path / name).is_dir() for name in FOLDERS)

    def ostree(self, verb: str, *words: Word) -> str:
        """Run `ostree VERB --repo=...`; returns its stdout without the last newline.

        Raises WorkError.
        """
        check_plain(self.path / CONFIG)
        if verb in OPENS_REFS:
            self.check_names()
        if verb in OPENS_MANY:
            check_objects(self.path)
        return run(["ostree", verb, f"--repo={self.path}", *words]).stdout.removesuffix("\n")

    def check_names(self) -> None:
        """Raise OSError for a ref that is not a file: the program waits for what it reads."""
        for path in paths_below(self.path / "refs"):
            if path.is_symlink() or not path.is_dir():
                check_plain(path)

    def refs(self, kind: str) -> dict[str, str]:
        """Refs below `kind`, without that word, with their commits.  Raises HostError, OSError."""
        check_enterable(self.path)
        # Refs are files (ostree's documented layout): reading them costs nothing, a process 10 ms.
        top = self.path / "refs" / "heads" / kind
        paths = [path for path in paths_below(top) if path.is_symlink() or not path.is_dir()]
        for path in paths:
            check_plain(path)
        files = (path for path in paths if path.is_file())
        found = sorted(path for path in files if not path.name.startswith(UNFINISHED))
        return {os.fspath(p.relative_to(top)): p.read_text().strip() for p in found}

    def layers(self) -> dict[str, str]:
        return self.refs(LAYERS)

    def images(self) -> tuple[ImageRef, ...]:
        """Every image, by profile, those of one profile in the order in which they were built."""
        named = ((ref.rpartition("/"), commit) for ref, commit in self.refs(IMAGES).items())
        found = (ImageRef(profile, version, commit) for (profile, _, version), commit in named)
        return tuple(sorted(found, key=lambda image: (image.profile, self.made_at(image))))

    def find_layer(self, digest: str) -> str | None:
        """The commit of a layer, if the store has it."""
        ref = self.path / "refs" / "heads" / LAYERS / digest
        return ref.read_text().strip() or None if ref.is_file() else None

    def image(self, name: str) -> ImageRef:
        """The image `profile@version` (a unique start of the version is enough), or the newest
        of `profile`.  Raises InputError.
        """
        profile, _, version = name.partition("@")
        images = self.images()
        of_profile = [i for i in images if i.profile == profile]
        if not of_profile:
            near = suggest(profile, {image.profile for image in images}, closest=True)
            named = one_line(profile)
            raise InputError(
                f"no image of profile {named} in the store",
                hint=near
                or f"run imagebuilder build {named} to make one; imagebuilder images lists them",
            )
        if not version:
            return max(of_profile, key=self.made_at)
        fitting = [i for i in of_profile if i.version.startswith(version) or version in i.version]
        exact = [i for i in fitting if i.version == version]
        if len(exact or fitting) != 1:
            listed = ", ".join(i.version for i in fitting or of_profile)
            what = "more than one version" if fitting else "no version"
            raise InputError(f"{what} of {profile} fits {version!r}", hint=f"available: {listed}")
        return (exact or fitting)[0]

    def made_at(self, image: ImageRef) -> tuple[float, str]:
        """When the image entered this store (its ref's time), then its version.

        If the clock was wrong, the next image corrects the time: see commit_image().
        """
        return ((self.path / "refs" / "heads" / image.ref).stat().st_mtime, image.version)

    def read(self, commit: str, path: str) -> str:
        """The text of one file in the top folder of a commit.  Raises WorkError."""
        check_top(self.path, commit)
        return self.ostree("cat", commit, path)

    def checkout(self, commit: str, target: Path, *, links: bool = True) -> None:
        """The tree of `commit` at `target`, as hard links (not to be written to) or copies."""
        self.ostree("checkout", "--require-hardlinks" if links else "--force-copy", commit, target)

    def commit(
        self, tree: Path, *, epoch: int, base: str | None = None, linked: bool = False
    ) -> str:
        """Commit `tree`, which is consumed, on top of `base` if given; returns the commit.

        The files of a `linked` tree, most of it a checkout, are not hashed if they are the store's:
        ostree looks at each of its objects to know them again.
        """
        options = ["--devino-canonical"] if linked else []
        options += [f"--base={base}"] if base else []
        return self.ostree(
            "commit", "--orphan", "--consume", "--parent=none", "--subject=imagebuilder",
            f"--timestamp=@{epoch}", *options, f"--tree=dir={tree}",
        )  # fmt: skip

    def commit_layer(
        self,
        digest: str,
        upper: Path,
        changes: Changes,
        *,
        below: str | None,
        epoch: int,
        record: Callable[[str], None] | None = None,
    ) -> str:
        """Make the layer `digest` from a settled upper over the commit `below`.

        `record` gets the commit before the layer has its name: what says of a layer which commit it
        is must not come after it.  The upper itself stays as it is.  A layer that only adds is
        committed on top of its parent without touching the rest; one that removes goes through a
        checkout of the parent.
        """
        tree = upper.with_name(f"{upper.name}.tree")
        if below is not None and changes.additive:
            try:
                tree.mkdir()
                stage(upper, tree, changes)
                commit = self.commit(tree, epoch=epoch, base=below)
            except WorkError:
                # A file has taken the place of a directory: only a merged tree can say so.
                remove(tree)
                commit = self.commit_merged(tree, upper, changes, below=below, epoch=epoch)
        else:
            commit = self.commit_merged(tree, upper, changes, below=below, epoch=epoch)
        if record:
            record(commit)
        self.bind(f"{LAYERS}/{digest}", commit)
        return commit

    def commit_merged(
        self, tree: Path, upper: Path, changes: Changes, *, below: str | None, epoch: int
    ) -> str:
        """The slow way of commit_layer(): check out, apply, commit everything."""
        if below:
            self.checkout(below, tree)
        else:
            tree.mkdir()
        stage(upper, tree, changes)
        return self.commit(tree, epoch=epoch, linked=below is not None)

    def bind(self, ref: str, commit: str) -> None:
        """Point `ref` at `commit`, atomically.

        Not with ostree, which writes a ref beside its place: what a killed one leaves there is one
        more ref.  Raises OSError.
        """
        place = self.path / "refs" / "heads" / ref
        make_folder(place.parent)
        with scratch(self.path / "tmp", "ref-") as staged:
            written = staged / place.name
            written.write_text(f"{commit}\n", encoding="ascii")
            written.chmod(0o644)
            keep_file(written, place)
        self.sync_names(ref)

    def commit_image(
        self, profile: str, version: str, tree: Path, *, epoch: int, base: str | None = None
    ) -> ImageRef:
        """Record an image: `tree` holds its files, those of `base` as they are there, and is
        consumed.
        """
        if base:
            for name in read_folder(self.path, read_commit(self.path, base)[0]).files:
                (tree / name).unlink()
        image = ImageRef(profile, version, self.commit(tree, epoch=epoch, base=base))
        self.bind(image.ref, image.commit)
        place = self.path / "refs" / "heads" / image.ref
        date_last(place, place.parent.iterdir())
        return image

    def remove(self, ref: str) -> None:
        """Drop a ref; its objects go with the next prune()."""
        self.ostree("refs", "--delete", ref)
        self.sync_names(ref)

    def sync_names(self, ref: str) -> None:
        """Make what happened to the name of a ref last, with the folders above it."""
        top = self.path / "refs" / "heads"
        sync_all(top / folder for folder in Path(ref).parents if (top / folder).is_dir())

    def prune(self) -> str:
        """Delete objects no ref needs; returns what ostree says it freed.

        Nobody may commit meanwhile.  The commits go first: ostree deletes in any order, and a
        commit that lost some of its objects to a killed `prune` is damage to fsck.
        """
        check_objects(self.path)
        named = [path for path in paths_below(self.path / "refs") if path.is_file()]
        for path in named:
            if path.name.startswith(UNFINISHED):
                path.unlink()
        named = [path for path in named if not path.name.startswith(UNFINISHED)]
        needed = {path.read_text().strip() for path in named}
        commits = matching(self.path / "objects", "??/*.commit")
        dropped = [path for path in commits if f"{path.parent.name}{path.stem}" not in needed]
        for path in dropped:
            path.unlink()
        sync_all(path.parent for path in dropped)
        return self.ostree("prune", "--refs-only", "--depth=0")

    def size(self) -> int:
        """Bytes on disk of the repository."""
        said = run(["du", "--summarize", "--block-size=1", self.path]).stdout
        return int(said.split()[0])


def make_store(
    path: Path, another: str = "IMAGEBUILDER_STATE or --state names another place"
) -> Store:
    """The store at `path`, made if it is not there; `another` is a hint for when it cannot be.

    Raises HostError.

    `ostree init` makes one file and folder after the other, so that happens beside its place; what
    somebody who was killed left in its place gets what it lacks.
    """
    store = Store(path)
    top = path.parent
    try:
        with filling(path, f"free some space; {another}"):
            close(path)
            if store.is_there():
                return store
            make_folder(top)
            with file_lock(top / "locks" / path.name):
                if not store.is_there():
                    # Nothing can be renamed over a mount point, nor into it from beside it.
                    with workplace(path if path.is_mount() else top, new_id(path.name)) as work:
                        run(["ostree", "init", f"--repo={work / path.name}", "--mode=bare"])
                        close(work / path.name)
                        put_in_place(work / path.name, path)
    except OSError as error:
        raise HostError(
            f"cannot make the store: {error.strerror}",
            where=os.fspath(path),
            hint=f"this needs root; {another}",
        ) from error
    return store


def put_in_place(new: Path, path: Path) -> None:
    """Give a new repository its name, or what is there the parts it lacks, the file last."""
    parts = sorted(paths_below(new))
    sync_all((*parts, new))
    if not path.is_dir() or not any(path.iterdir()):
        move_in(new, path)
        return
    for part in parts:
        place = path / part.relative_to(new)
        # One that came along with the folder it is in is no longer here.
        if part.is_dir() and not place.is_dir():
            move_in(part, place)
    if not has_config(path):
        keep_file(new / CONFIG, path / CONFIG)


def has_config(path: Path) -> bool:
    """Whether a repository has its file, whole."""
    try:
        return b"[core]" in read_plain(path / CONFIG)
    except (FileNotFoundError, NotADirectoryError):
        return False
