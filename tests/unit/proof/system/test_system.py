# SPDX-License-Identifier: Apache-2.0
"""What a node needs around its services, on small trees; nothing is said of usual settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.proof.system.files import prove_log_in, prove_mounts
from imagebuilder.proof.system.network import prove_nic, prove_resolver, prove_switch
from imagebuilder.proof.system.ports import LISTENS, PORT
from imagebuilder.proof.system.prove import prove_system
from imagebuilder.proof.system.start import starts_otherwise
from imagebuilder.proof.systemd import LoadedUnit, Startup
from imagebuilder.root import Root
from tests.unit.proof.trees import Link, make_tree, subject, warnings

NETWORK = "/etc/systemd/network"
RESOLVED = "systemd-resolved.service"


def startup(*jobs: str, **units: LoadedUnit) -> Startup:
    return Startup(frozenset(jobs), {}, {unit.name: unit for unit in units.values()}, ())


@pytest.mark.parametrize(
    "text",
    [
        "[Match]\nMACAddress=02:00:00:00:00:01\n[Link]\nUnmanaged=yes\n",
        "[Match]\nName=wlan* br0\n[Network]\nAddress=10.0.0.1/24\n",
        "[Match]\nType=bridge\n[Link]\nUnmanaged=yes\n",
        "[Match]\nName=en*\n[Network]\nDHCP=yes\n",
        "[Match]\nDriver=thunderbolt-net\n[Network]\nBridge=br0\n",
    ],
)
def test_networks_of_other_nics_are_nobodys_business(tmp_path: Path, text: str) -> None:
    make_tree(tmp_path, {f"{NETWORK}/10-own.network": text})
    assert list(prove_nic(Root(tmp_path))) == []


def test_a_network_after_that_of_the_boot_is_never_read(tmp_path: Path) -> None:
    text = "[Match]\nName=en*\n[Link]\nUnmanaged=yes\n"
    make_tree(tmp_path, {f"{NETWORK}/80-late.network": text})
    assert list(prove_nic(Root(tmp_path))) == []


def test_the_resolver_is_what_somebody_writes(tmp_path: Path) -> None:
    make_tree(tmp_path, {"/etc/resolv.conf": Link("../run/systemd/resolve/stub-resolv.conf")})
    root = Root(tmp_path)
    assert list(prove_resolver(root, startup(RESOLVED))) == []
    (found,) = prove_resolver(root, startup())
    assert f"which nobody writes: {RESOLVED} does not start" in found.what


def test_a_fixed_server_is_enough(tmp_path: Path) -> None:
    make_tree(tmp_path, {"/etc/resolv.conf": "# site\nnameserver 10.0.0.1\n"})
    assert list(prove_resolver(Root(tmp_path), startup())) == []


@pytest.mark.parametrize("hosts", ["files dns", "files resolve [!UNAVAIL=return] dns", "dns files"])
def test_usual_orders_of_names(tmp_path: Path, hosts: str) -> None:
    make_tree(tmp_path, {"/etc/nsswitch.conf": f"passwd: files systemd\nhosts: {hosts}\n"})
    assert list(prove_switch(Root(tmp_path))) == []


def test_only_disks_that_are_required_stop_a_node(tmp_path: Path) -> None:
    text = "tmpfs /tmp tmpfs defaults 0 0\nLABEL=a /a ext4 nofail 0 2\nserver:/b /b nfs ro 0 0\n"
    make_tree(tmp_path, {"/etc/fstab": f"{text}UUID=1 /c xfs defaults 0 2\n/dev/x none swap sw\n"})
    (found,) = prove_mounts(Root(tmp_path))
    assert "UUID=1" in found.what


def test_optional_modules_of_pam_may_be_missing(tmp_path: Path) -> None:
    lines = [
        "-session optional pam_gone.so",
        "auth [success=1 default=ignore] pam_unix.so nullok",
        "@include common",
        "session include common",
        "# auth required pam_none.so",
    ]
    make_tree(
        tmp_path,
        {
            "/etc/pam.d/login": "\n".join(lines),
            "/etc/pam.d/common": "auth required pam_lost.so\n",
            "/usr/lib/x86_64-linux-gnu/security/pam_unix.so": b"",
        },
    )
    (found,) = prove_log_in(Root(tmp_path))
    assert "/etc/pam.d/common needs pam_lost.so" in found.what


@pytest.mark.parametrize(
    ("command", "listens"),
    [
        ("/usr/bin/serve --port 8080", True),
        ("/usr/bin/serve --listen=0.0.0.0:8080", True),
        ("/usr/bin/python3 -m http.server 8080", True),
        ("/usr/bin/proxy --upstream http://127.0.0.1:8080", False),
        ("/usr/bin/curl localhost:8080/health", False),
        ("/usr/bin/serve --port 18080", False),
    ],
)
def test_who_listens_by_its_command_line(command: str, listens: bool) -> None:  # noqa: FBT001
    assert bool(LISTENS.search(f"{command} ".replace("8080", PORT))) == listens


@pytest.mark.parametrize(
    ("values", "otherwise"),
    [
        ({"Unit Load State": ("loaded",), "WantedBy": ("sleep.target (destination-file)",)}, True),
        ({"Unit Load State": ("loaded",), "WantedBy": ("dev-x.device (destination-file)",)}, True),
        ({"Unit Load State": ("loaded",), "WantedBy": ("multi-user.target (file)",)}, False),
        ({"Unit Load State": ("loaded",)}, False),
        ({"Unit Load State": ("masked",), "WantedBy": ("sleep.target (file)",)}, False),
    ],
)
def test_units_that_start_when_something_appears(
    values: dict[str, tuple[str, ...]],
    otherwise: bool,  # noqa: FBT001
) -> None:
    unit = LoadedUnit("a.service", (), values)
    assert starts_otherwise(startup(a=unit), "a.service") == otherwise


def test_a_systemd_that_does_not_answer_is_told(tmp_path: Path) -> None:
    assert list(prove_system(subject(tmp_path))) == []
    make_tree(tmp_path, {"/usr/lib/systemd/systemd": b"\x7fELF"})
    (what,) = warnings(list(prove_system(subject(tmp_path))))
    assert "does not say what starts" in what
