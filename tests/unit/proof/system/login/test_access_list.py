# SPDX-License-Identifier: Apache-2.0
"""Who gets in by pam_access."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.image.proof import Level
from imagebuilder.proof.system.login.accounts import prove_access_list
from tests.unit.proof.trees import Content, make_tree, subject

SSHD, INCLUDED = "/etc/pam.d/sshd", "/etc/pam.d/common-account"
ASKS = "account required pam_access.so"
TABLES: dict[str, Content] = {
    "/etc/passwd": "root:x:0:0::/root:/bin/bash\nops:x:1000:1000::/home/ops:/bin/bash\n",
    "/etc/group": "root:x:0:\nops:x:1000:\nstaff:x:50:ops\n",
}


def told(root: Path, files: dict[str, Content]) -> list[tuple[Level, str]]:
    given = subject(make_tree(root, {**TABLES, **files}), users={"ops": ()})
    return [(found.level, found.what) for found in prove_access_list(given)]


@pytest.mark.parametrize(
    ("rules", "is_closed"),
    [
        ("+:(wheel):ALL\n+:root:LOCAL\n-:ALL:ALL", True),
        ("+ : root ops : tty1 LOCAL\n- : ALL : ALL", True),
        ("-:ALL EXCEPT (wheel):ALL", True),
        ("-:ALL EXCEPT (wheel):ALL EXCEPT LOCAL", True),
        ("+:(staff):ALL\n-:ALL:ALL", False),
        ("+:ALL EXCEPT root ops EXCEPT ops:ALL\n-:ALL:ALL", False),
        (f"+:ALL {'EXCEPT root ops ' * 2001}:ALL\n-:ALL:ALL", True),
        ("+:root:10.0.0.0/8\n-:ALL:ALL", False),
        ("-:ALL EXCEPT ops:ALL", False),
        ("-:ALL:ALL EXCEPT 10.0.0.0/8", False),
        ("-:ALL:10.0.0.0/8", False),
        ("+:@operators:ALL\n-:ALL:ALL", False),
        ("+:root ops:ALL\n-:ALL:ALL", False),
        ("#-:ALL:ALL", False),
        ("", False),
    ],
)
def test_who_gets_in(rules: str, is_closed: bool, tmp_path: Path) -> None:  # noqa: FBT001
    lists: dict[str, Content] = {SSHD: f"{ASKS}\n", "/etc/security/access.conf": f"{rules}\n"}
    what = (
        "nobody may log in over ssh (ops, root): pam_access lets none of them in from the network"
    )
    assert told(tmp_path, lists) == ([(Level.FAULT, what)] if is_closed else [])


@pytest.mark.parametrize(
    ("files", "is_asked"),
    [
        ({SSHD: f"{ASKS}\n"}, True),
        ({SSHD: "@include common-account\n", INCLUDED: f"{ASKS}\n"}, True),
        ({SSHD: "account include common-account\n", INCLUDED: f"{ASKS}\n"}, True),
        ({SSHD: f"{ASKS} accessfile=/etc/other\n", "/etc/other": "+:ALL:ALL\n"}, False),
        ({SSHD: "account [success=ok default=die] pam_access.so\n"}, True),
        ({SSHD: "account optional pam_access.so\n"}, False),
        ({SSHD: "account sufficient pam_access.so\n"}, False),
        ({SSHD: f"# {ASKS}\n"}, False),
        ({SSHD: "@include common-account\n", INCLUDED: "@include common-account\n"}, False),
        ({INCLUDED: f"{ASKS}\n"}, False),
        ({}, False),
    ],
)
def test_who_asks(files: dict[str, Content], is_asked: bool, tmp_path: Path) -> None:  # noqa: FBT001
    closed: dict[str, Content] = {"/etc/security/access.conf": "-:ALL:ALL\n"}
    assert bool(told(tmp_path, {**closed, **files})) is is_asked
