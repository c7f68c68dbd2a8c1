# SPDX-License-Identifier: Apache-2.0
"""What systemd thinks of units that are not installed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from imagebuilder.process import run


def verify(units: Sequence[Path], scratch: Path) -> str:
    """Its complaints, "" for none; units of the host that they lean on are made up in `scratch`."""
    folder = scratch / "units"
    folder.mkdir()
    for unit in units:
        (folder / unit.name).write_text(unit.read_text())
    (folder / "rpcbind.service").write_text("[Service]\nExecStart=/bin/true\n")
    paths = [folder / unit.name for unit in units]
    env = {"SYSTEMD_UNIT_PATH": f"{folder}:", "SYSTEMD_LOG_LEVEL": "warning"}
    done = run(["systemd-analyze", "verify", "--man=no", *paths], env=env, check=False)
    said = [line for line in done.stderr.splitlines() if "imagebuilder" in line]
    return "\n".join([*said, *([f"exit status {done.status}"] if done.status else [])])
