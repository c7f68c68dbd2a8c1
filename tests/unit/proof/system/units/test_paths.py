# SPDX-License-Identifier: Apache-2.0
"""Paths without which a site's service does not start."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.families.shipped import ShippedFile
from imagebuilder.image.proof import Level
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.system.units.reach import prove_paths
from tests.unit.proof.trees import Content, make_tree, running, subject

UNIT = "/etc/systemd/system/a.service"


def told(root: Path, line: str, files: dict[str, Content], shipped: str = "") -> list[str]:
    key, _, value = line.partition("=")
    given = subject(make_tree(root, {UNIT: f"[Service]\n{line}\n", "/srv/there/x": "", **files}))
    given.__dict__["shipped"] = {shipped: ShippedFile("a")}
    values = {"Unit Load State": ("loaded",), key: (value.removeprefix("-"),)}
    if key.endswith("s"):
        values[key] = (value,)
    made = LoadedUnit("b.service", (), {"Unit Load State": ("loaded",), "StateDirectory": ("b",)})
    units = {"a.service": LoadedUnit("a.service", (UNIT,), values), "b.service": made}
    startup = Startup(frozenset(units), {}, units, ())
    found = list(prove_paths(running(given, startup)))
    assert all(each.level is Level.FAULT for each in found)
    return [each.what for each in found]


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("WorkingDirectory=/srv/gone", "/srv/gone"),
        ("WorkingDirectory=-/srv/gone", ""),
        ("WorkingDirectory=/srv/there", ""),
        ("WorkingDirectory=~", ""),
        ("ReadWritePaths=/srv/there /srv/gone", "/srv/gone"),
        ("ReadWritePaths=-/srv/gone +/srv/there", ""),
        ("BindPaths=/srv/gone:/x:rbind", "/srv/gone"),
        ("BindReadOnlyPaths=-/srv/gone:/x:rbind", ""),
        ("ReadWritePaths=/var/lib/b", ""),
        ("ReadWritePaths=/var/lib/b/below", "/var/lib/b/below"),
        ("ReadWritePaths=/models /models/cache", ""),
        ("ReadWritePaths=/var/spool/made", ""),
        ("ReadWritePaths=/run/x /tmp/x /etc/x", ""),
        ("ReadWritePaths=/srv/%i", ""),
    ],
)
def test_paths_that_are_not_there(line: str, path: str, tmp_path: Path) -> None:
    files: dict[str, Content] = {
        "/etc/fstab": "LABEL=m /models ext4 nofail 0 2\n",
        "/usr/lib/tmpfiles.d/a.conf": "d /var/spool/made 0755 - - -\n",
    }
    said = f"a.service does not start: {path} is not in the image ({line.partition('=')[0]}=)"
    assert told(tmp_path, line, files) == ([said] if path else [])


def test_the_unit_of_a_package_is_left_to_it(tmp_path: Path) -> None:
    assert told(tmp_path, "WorkingDirectory=/srv/gone", {}, shipped=UNIT) == []
