# SPDX-License-Identifier: Apache-2.0
"""What serving needs of its host is installed by `imagebuilder setup --serve`."""

from __future__ import annotations

from pathlib import Path

from imagebuilder.doctor.host import HOST_SETUP, SERVE_GROUPS, load_needs
from tests.unit.test_scripts import Checkout

TABLE = """\
clone frobmake     frob-make  - makes it
build frobnicate   frob       - frobnicates
serve nginx-frob   frob-web   - shows it
nfs   frobexports  frob-nfs   - exports it
boot  frobsshd     frob-ssh   - is tested
"""


def test_each_option_asks_for_its_groups(tmp_path: Path) -> None:
    checkout = Checkout(tmp_path)
    checkout.table(TABLE)
    for options, names in (
        ((), {"frob"}),
        (("--clone",), {"frob", "frob-make"}),
        (("--serve",), {"frob-web", "frob-nfs"}),
        (("--build", "--serve"), {"frob", "frob-web", "frob-nfs"}),
        (("--boot",), {"frob-web", "frob-ssh"}),
        (("--tests",), {"frob", "frob-make", "frob-web", "frob-ssh"}),
        (("--serve", "--tests"), {"frob", "frob-make", "frob-web", "frob-nfs", "frob-ssh"}),
    ):
        said = checkout.run("host-setup", "--check", *options).stderr.splitlines()[1:]
        assert {line.split()[0] for line in said} == names


def test_services_of_the_packages_do_not_start(tmp_path: Path) -> None:
    text = (Checkout(tmp_path).root / "scripts/install-quietly").read_text()
    for package, unit in (("nginx", "nginx.service"), ("openssh-server", "ssh.service")):
        assert f'{package}) units="$units {unit}' in text
    assert 'munge | slurmctld | slurmd) units="$units $package.service"' in text


def test_the_table_has_what_serve_runs() -> None:
    needs = {(need.group, need.tool) for need in load_needs()}
    assert {("serve", tool) for tool in ("dnsmasq", "nginx", "ip", "ostree", "zstd")} <= needs
    assert ("nfs", "exportfs") in needs
    assert HOST_SETUP.keys() >= SERVE_GROUPS
