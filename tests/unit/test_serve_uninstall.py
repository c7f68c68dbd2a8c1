# SPDX-License-Identifier: Apache-2.0
"""What `serve --install` wrote is stopped and removed, as a false systemctl tells."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.errors import WorkError
from imagebuilder.serve.install import EXPORTS, leftovers, system_files, uninstall
from imagebuilder.serve.nfsconf import NFS_CONF, RETRY, nfs_server_files
from imagebuilder.serve.options import Nfs, Options
from imagebuilder.serve.units import UNITS, is_live, place_units
from imagebuilder.tree import make_tree
from tests.unit.test_serve_render import FULL

# Notes what it was asked, and whether the unit of the web server was there then.
SYSTEMCTL = """\
#!/bin/sh
there=gone; [ -e {root}/etc/systemd/system/imagebuilder-nginx.service ] && there=there
echo "${{0##*/}} $* ($there)" >>{root}/said
case "$*" in stop*) exit {status};; esac
"""


def prepare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, status: int = 0) -> Path:
    """A system with everything installed, and a systemctl and exportfs that note their words."""
    config = replace(FULL, nfs=Nfs.KERNEL, tree=make_tree(tmp_path / "netboot"), announces=True)
    root = tmp_path / "root"
    place_units(root, (*system_files(config, Options("eth0")), *nfs_server_files(config, root)))
    (config.tree.serve / "installed").mkdir()
    (config.tree.serve / "installed/nginx.conf").write_text("x")
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("systemctl", "exportfs"):
        (programs / name).write_text(SYSTEMCTL.format(root=root, status=status))
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return root


def test_it_stops_then_removes_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = prepare(tmp_path, monkeypatch)
    (tmp_path / "netboot/nodes.yaml").write_text("nodes: {}\n")
    names = sorted(path.name for path in (root / UNITS).glob("imagebuilder-*"))
    said = uninstall(root, live=True).splitlines()
    assert [
        line.partition("/")[0].strip() for line in (root / "said").read_text().splitlines()
    ] == [
        "systemctl daemon-reload (there)",
        f"systemctl stop {' '.join(names)} (there)",
        f"systemctl --quiet disable {' '.join(names)} (there)",
        "systemctl daemon-reload (gone)",
        f"systemctl reset-failed {' '.join(names)} (gone)",
        "exportfs -ra (gone)",
        "systemctl try-restart nfs-server (gone)",
    ]
    removed = {line.split()[1] for line in said if line.startswith("removed ")}
    files = {root / UNITS / name for name in names} | {root / p for p in (EXPORTS, NFS_CONF, RETRY)}
    assert removed == {str(path) for path in (*files, tmp_path / "netboot/serve/installed")}
    assert [line.split()[1] for line in said if line.startswith("stopped ")] == names
    assert said[-1] == f"kept       releases and nodes in {tmp_path / 'netboot'}"
    assert leftovers(root) == set()
    assert list((root / UNITS).iterdir()) == [], "no empty folder of drop-ins either"
    assert (tmp_path / "netboot/nodes.yaml").is_file()
    assert uninstall(root, live=True) == "no units of imagebuilder are installed"


def test_what_cannot_be_stopped_is_not_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = prepare(tmp_path, monkeypatch, status=1)
    before = leftovers(root)
    with pytest.raises(WorkError, match="systemctl stop"):
        uninstall(root, live=True)
    assert leftovers(root) == before


def test_below_another_root_nothing_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = prepare(tmp_path, monkeypatch)
    assert not is_live(root)
    assert "stopped" not in uninstall(root, live=False)
    assert not (root / "said").exists()
