# SPDX-License-Identifier: Apache-2.0
"""Services that call sudo where it wants a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.system.login.limits import prove_terminal
from tests.unit.proof.trees import Program, make_tree, running, subject

ON = "Defaults requiretty, use_pty"
CALL = "/usr/bin/sudo -n /usr/bin/true"


def found(tmp_path: Path, sudoers: str, command: tuple[str, ...], **values: str) -> list[str]:
    settings = {key: (value,) for key, value in ({"User": "compute"} | values).items()}
    unit = LoadedUnit(
        "a.service", (), {"Unit Load State": ("loaded",), **settings}, {"ExecStart": (command,)}
    )
    script = "#!/bin/sh\nset -e\n# sudo\nif true; then\n  sudo -n true\nfi\n"
    root = make_tree(
        tmp_path,
        {
            "/etc/sudoers": f"{sudoers}\n", "/usr/local/sbin/renew": Program(script),
            "/usr/local/sbin/other": Program("#!/bin/sh\n# sudo -n true\necho sudo\n"),
        },
    )  # fmt: skip
    startup = Startup(frozenset((unit.name,)), {}, {unit.name: unit}, ())
    return [finding.what for finding in prove_terminal(running(subject(root), startup))]


@pytest.mark.parametrize(
    "sudoers", [ON, "Defaults:compute requiretty", f"Defaults !requiretty\n{ON}"]
)
@pytest.mark.parametrize(
    "command",
    [tuple(CALL.split()), ("/bin/sh", "-c", f"true && {CALL}"), ("/usr/local/sbin/renew",)],
)
def test_sudo_of_a_service_is_refused(
    sudoers: str, command: tuple[str, ...], tmp_path: Path
) -> None:
    (what,) = found(tmp_path, sudoers, command)
    assert what == "sudo refuses a.service, which has no terminal: requiretty of /etc/sudoers"


@pytest.mark.parametrize(
    "sudoers",
    [
        "Defaults use_pty",
        "#Defaults requiretty",
        f"{ON}\nDefaults !requiretty",
        f"Defaults:compute !requiretty\n{ON}",
        f"{ON}\nDefaults!/usr/bin/true !requiretty",
        "Defaults:guest requiretty",
    ],
)
def test_where_it_needs_no_terminal(sudoers: str, tmp_path: Path) -> None:
    assert found(tmp_path, sudoers, tuple(CALL.split())) == []


def test_services_with_a_terminal_or_without_sudo(tmp_path: Path) -> None:
    assert found(tmp_path, ON, tuple(CALL.split()), StandardInput="tty-force") == []
    assert found(tmp_path, ON, ("/usr/local/sbin/other",)) == []
