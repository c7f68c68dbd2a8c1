# SPDX-License-Identifier: Apache-2.0
"""Make a virtual environment in the root from locked wheels, offline, with uv."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from uv import find_uv_bin

from imagebuilder.digest import Json
from imagebuilder.lock.types import LockedPython
from imagebuilder.lock.verified import Locked
from imagebuilder.sandbox.sandbox import INSIDE, Bind
from imagebuilder.steps.bytecode import run_uncheck
from imagebuilder.steps.step import Step, StepWorkspace
from imagebuilder.workspace import check_places

VERSION = 3

# uv installs in parallel: of several wheels with the same file, any may be last.  If there are such
# wheels, all are installed once more, one after another.
# What differs from builder to builder goes: the version of uv, and the times of its wheels.
INSTALL = """\
set -eu
uv="$1" wheels="$2" path="$3" interpreter="$4"
"$uv" venv --no-project --python "$interpreter" "$path"
install() {
  "$uv" pip install --no-index --find-links "$wheels" --no-deps --require-hashes \\
    --link-mode copy --python "$path/bin/python" "$@"
}
install --compile-bytecode --requirement "$wheels/requirements.txt"
if cut -d, -f1 "$path"/lib/python*/site-packages/*.dist-info/RECORD | sort | uniq -d | grep -q .
then
  last="$(tail -n 1 "$wheels/requirements.txt")" compile=""
  while read -r wheel; do
    [ "$wheel" != "$last" ] || compile=--compile-bytecode # of all that are installed
    printf '%s\\n' "$wheel" | install --reinstall $compile --requirement -
  done < "$wheels/requirements.txt"
fi
rm -f "$path/.lock"
sed -i '/^uv = /d' "$path/pyvenv.cfg"
for info in "$path"/lib/python*/site-packages/*.dist-info; do
  rm -f "$info/uv_cache.json"
  sed -i '/\\/uv_cache.json,/d' "$info/RECORD"
done
"""


@dataclass(frozen=True)
class PythonStep(Step):
    """One virtual environment of an overlay."""

    overlay: str
    interpreter: str
    locked: LockedPython

    @property
    def title(self) -> str:
        return f"python {self.overlay} {self.locked.path}"

    def inputs(self) -> Mapping[str, Json]:
        return {
            "step": f"python {VERSION}",
            "path": self.locked.path,
            "interpreter": self.interpreter,
            "wheels": {w.filename: w.sha256 for w in self.locked.wheels},
            "epoch": self.epoch,
        }

    @property
    def takes(self) -> tuple[Locked, ...]:
        return self.locked.wheels

    def apply(self, workspace: StepWorkspace) -> None:
        path = self.locked.path
        check_places(workspace, [f"{path}/bin"])
        given = workspace.work / f"{workspace.upper}.wheels"
        given.mkdir()
        for wheel in workspace.pool.take(self.locked.wheels):
            (given / wheel.name).hardlink_to(wheel)
        (given / "requirements.txt").write_text(
            "".join(f"{w.name}=={w.version} --hash=sha256:{w.sha256}\n" for w in self.locked.wheels)
        )
        uv, wheels = INSIDE / "uv", INSIDE / "wheels"
        workspace.run(
            ["sh", "-c", INSTALL, "sh", uv, wheels, path, self.interpreter],
            binds=[Bind(find_uv(), uv), Bind(given, wheels)],
            env={
                "UV_OFFLINE": "1",
                "UV_CACHE_DIR": "/tmp/uv",
                "UV_NO_CONFIG": "1",
                "UV_PYTHON_DOWNLOADS": "never",
                "PYC_INVALIDATION_MODE": "UNCHECKED_HASH",
            },
        )
        run_uncheck(workspace, interpreter=f"{path}/bin/python")


def find_uv() -> Path:
    """The uv program of our own environment: a static binary that runs in any root."""
    return Path(find_uv_bin())
