# SPDX-License-Identifier: Apache-2.0
"""What serving needs of its host is installed by `scripts/host-setup --serve`."""

from __future__ import annotations

from pathlib import Path

from imagebuilder.doctor.host import HOST_SETUP, SERVE_GROUPS, load_needs
from tests.unit.test_scripts import House

TABLE = """\
build frobnicate   frob       - frobnicates
serve nginx-frob   frob-web   - shows it
nfs   exportfs     frob-nfs   - exports it
boot  frobsshd     frob-ssh   - is tested
"""


def test_each_option_asks_for_its_groups(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.table(TABLE)
    for options, names in (
        ((), {"frob"}),
        (("--serve",), {"frob", "frob-web", "frob-nfs"}),
        (("--tests",), {"frob", "frob-web", "frob-ssh"}),
        (("--tests", "--serve"), {"frob", "frob-web", "frob-nfs", "frob-ssh"}),
        (("--serve", "--tests"), {"frob", "frob-web", "frob-nfs", "frob-ssh"}),
    ):
        said = house.run("host-setup", "--check", *options).stderr.splitlines()[1:]
        assert {line.split()[0] for line in said} == names


def test_services_of_the_packages_do_not_start(tmp_path: Path) -> None:
    text = (House(tmp_path).root / "scripts/install-quietly").read_text()
    for package, unit in (("nginx", "nginx.service"), ("openssh-server", "ssh.service")):
        assert f'{package}) units="$units {unit}' in text


def test_the_table_has_what_serve_runs() -> None:
    tools = {need.tool: need.group for need in load_needs()}
    assert {"dnsmasq", "nginx", "ip"} <= {tool for tool, group in tools.items() if group == "serve"}
    assert tools["exportfs"] == "nfs"
    assert HOST_SETUP.keys() >= SERVE_GROUPS
