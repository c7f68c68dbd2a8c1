# SPDX-License-Identifier: Apache-2.0
"""What a step gets to work in: the stacked layers below it, an empty upper, and one log."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from imagebuilder.errors import WorkError
from imagebuilder.lock.verified import Pool
from imagebuilder.process import Completed, Word, run
from imagebuilder.sandbox.sandbox import Bind, Sandbox, folders_of


@dataclass(frozen=True)
class Workspace:
    """Where a layer is made.

    `lower` (topmost first) and `upper` are names below `work`; `pool` is what a fetch filled.
    `epoch` is SOURCE_DATE_EPOCH of the layer.  `on_line` sees each line of output, `on_note` what
    the step has to tell the person at its end.
    """

    work: Path
    lower: tuple[str, ...]
    upper: str
    epoch: int
    log: Path
    pool: Pool
    on_line: Callable[[str], None] | None = field(default=None, compare=False)
    on_note: Callable[[str], None] | None = field(default=None, compare=False)

    @property
    def out(self) -> Path:
        """Where a leaf step leaves what it makes; `/run/imagebuilder/out` inside."""
        return self.work / f"{self.upper}.out"

    @property
    def facts(self) -> Path:
        """Where a step may leave numbers it found, as a JSON object; part of the layer's record."""
        return self.work / f"{self.upper}.facts"

    @property
    def tree(self) -> Path:
        """The upper: what this step has written so far, readable between commands."""
        return self.work / self.upper

    def name_of(self, path: Path) -> str:
        """A path in `work`, below it."""
        return os.fspath(path.relative_to(self.work))

    def sandbox(
        self,
        *,
        binds: Sequence[Bind] = (),
        network: bool = False,
        enter: bool = True,
        env: Mapping[str, str] | None = None,
        view: Sequence[Path] = (),
        writes: Sequence[Path] | None = None,
    ) -> Sandbox:
        return Sandbox(
            work=self.work,
            lower=self.lower or ("empty",),
            upper=self.upper,
            epoch=self.epoch,
            binds=tuple(binds),
            network=network,
            enter=enter,
            env=tuple((env or {}).items()),
            view=tuple(view),
            writes=None if writes is None else tuple(map(self.name_of, writes)),
        )

    def run(
        self,
        argv: Sequence[Word],
        *,
        binds: Sequence[Bind] = (),
        network: bool = False,
        env: Mapping[str, str] | None = None,
        stdin: bytes | IO[bytes] | None = None,
    ) -> None:
        """Run a command in the root, its output to the log.  Raises WorkError."""
        inside = self.sandbox(binds=binds, network=network, env=env)
        run(argv, sandbox=inside, stdin=stdin, log=self.log, on_line=self.on_line)

    def ask(self, argv: Sequence[Word], *, check: bool = True) -> Completed:
        """Run a command in the root that only answers; its output comes back."""
        return run(argv, sandbox=self.sandbox(), check=check)

    def run_engine(
        self,
        argv: Sequence[Word],
        *,
        env: Mapping[str, str] | None = None,
        sees: Sequence[str] = (),
        writes: Sequence[Path] = (),
    ) -> None:
        """Run a bootstrap engine: it sees the host's programs and `sees`, and `work`, read-only.

        It writes into the root, and into `writes`, which are in `work`: scripts of packages that it
        runs could otherwise change the layers below, which other images have too, and packages.
        """
        program = Path(argv[0])
        own = folders_of(program) if program.is_absolute() else ()
        inside = self.sandbox(enter=False, env=env, view=(*own, *map(Path, sees)), writes=writes)
        run(argv, sandbox=inside, log=self.log, on_line=self.on_line)

    @property
    def merged(self) -> Path:
        """Where an engine finds the root it fills."""
        return self.work / self.sandbox().merged


def check_places(workspace: Workspace, targets: Sequence[str]) -> None:
    """Refuse targets whose folder, with the symlinks of this root followed, is not in the root.

    /run, /tmp, /proc, /sys and /dev are mounts in the sandbox: what lands there is lost, and a
    symlink planted by an earlier step may lead there.  Raises WorkError.
    """
    folders = sorted({os.fspath(Path(target).parent) for target in targets})
    if not folders:
        return
    real = workspace.ask(["realpath", "-m", "--", *folders]).stdout.splitlines()
    for folder, place in zip(folders, real, strict=True):
        top = place.split("/")[1]
        if top in {"run", "tmp", "proc", "sys", "dev"}:
            through = f" (a symlink of the root leads to {place})" if place != folder else ""
            raise WorkError(
                f"files for {folder} would not be part of the root{through}",
                where=folder,
                hint="put them below /usr or /etc; tmpfiles.d(5) makes files at boot",
            )
