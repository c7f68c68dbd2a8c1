# SPDX-License-Identifier: Apache-2.0
"""A disk with models, for /models of a node."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from imagebuilder.folders import paths_below
from imagebuilder.process import run

# mke2fs uses a random id and seed; fixed ones make every disk the same.
UUID = "5f0e1d2c-3b4a-4596-8778-695a4b3c2d1e"
EPOCH = 1
MIB = 1 << 20
# Space beside the models for ext4's own tables and a small journal.
SPARE = 8 * MIB


def make_models_disk(path: Path, models: Mapping[str, Path], *, label: str = "models") -> None:
    """Write an ext4 file system with files or folders of these names, readable for every user.

    `label` is the models_label of the image's compute-node, at most 16 characters; names may have
    folders (`llm/tiny.gguf`).  Mounts nothing.
    """
    with TemporaryDirectory(dir=path.parent) as scratch:
        top = Path(scratch) / "disk"
        for name, model in models.items():
            target = top / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if model.is_dir():
                shutil.copytree(model, target)
            else:
                shutil.copyfile(model, target)
        # List first: listing a folder changes its access time.
        size = sum(made.stat().st_size for made in paths_below(top) if made.is_file()) + SPARE
        for made in (top, *paths_below(top)):
            made.chmod(0o644 if made.is_file() else 0o755)
            os.utime(made, (EPOCH, EPOCH))
        path.unlink(missing_ok=True)
        fixed = {"SOURCE_DATE_EPOCH": str(EPOCH), "E2FSPROGS_FAKE_TIME": str(EPOCH)}
        run(
            [
                "mke2fs", "-q", "-t", "ext4", "-L", label, "-U", UUID, "-m", "0",
                "-E", f"hash_seed={UUID},root_owner=0:0,lazy_itable_init=0",
                "-d", top, path, f"{-(-size // MIB)}M",
            ],
            env=fixed,
        )  # fmt: skip
        # mke2fs copies the time of the last change, which cannot be set, into each inode.
        copied = [f"/{made.relative_to(top)}" for made in paths_below(top)]
        commands = Path(scratch) / "commands"
        commands.write_text("".join(f'sif "{made}" ctime {EPOCH}\n' for made in copied))
        run(["debugfs", "-w", "-f", commands, path], env=fixed)
