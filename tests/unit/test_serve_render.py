# SPDX-License-Identifier: Apache-2.0
"""The daemons' files as texts; that the daemons take them, integration tests show."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from ipaddress import IPv4Address, IPv4Interface
from pathlib import Path

import pytest

from imagebuilder.errors import InputError
from imagebuilder.nightly.install import credential_line
from imagebuilder.nodes.types import Node, Nodes
from imagebuilder.notify.receivers import Credential
from imagebuilder.serve.config import ServeConfig
from imagebuilder.serve.daemons import daemons
from imagebuilder.serve.files import config_texts, make_config
from imagebuilder.serve.install import system_files, words
from imagebuilder.serve.interface import Interface
from imagebuilder.serve.ipxe import NAMES, choose_boot_files
from imagebuilder.serve.nfs import find_ganesha_release
from imagebuilder.serve.options import Nfs, Options
from imagebuilder.serve.render import (
    render_dhcp_hosts,
    render_dnsmasq,
    render_exports,
    render_ganesha,
    render_hosts,
    render_nginx,
)
from imagebuilder.serve.units import environment_line, exec_line
from imagebuilder.tree import Tree, make_tree

TREE = Tree(Path("/srv/netboot"))
FULL = ServeConfig(
    tree=TREE,
    interface=Interface("eth1", "02:00:00:00:00:01", IPv4Interface("10.0.0.1/24")),
    folder=TREE.serve / "foreground",
    nfs=Nfs.GANESHA,
    boot_files=choose_boot_files(tuple(NAMES)),
    pool=(IPv4Address("10.0.0.128"), IPv4Address("10.0.0.254")),
    web_user="www-data",
    dhcp_user="dnsmasq",
)
PROXY = replace(FULL, pool=None)
NODES = (
    Node("n1", ("52:54:00:00:00:01", "52:54:00:00:00:02"), "generic", address="10.0.0.11"),
    Node("n2", ("52:54:00:00:00:03",), "generic", ipxe="snponly.efi"),
)


def lines(text: str) -> list[str]:
    """What a daemon reads of a file: neither comments nor empty lines."""
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_dnsmasq_serves_one_wire_alone() -> None:
    said = lines(render_dnsmasq(FULL, NODES))
    assert said[:3] == ["interface=eth1", "except-interface=lo", "bind-interfaces"]
    assert "dhcp-authoritative" in said
    assert "dhcp-range=tag:known,10.0.0.128,10.0.0.254,255.255.255.0,12h" in said
    assert "dhcp-range=tag:!known,10.0.0.128,10.0.0.254,255.255.255.0,10m" in said
    assert "enable-tftp=eth1" in said
    assert [line for line in said if "dhcp-mac" in line] == [
        "dhcp-mac=set:snponly,52:54:00:00:00:03"
    ]


def test_every_architecture_has_its_boot_file() -> None:
    said = lines(render_dnsmasq(FULL, NODES))
    for number, tag, file in (
        (0, "bios", "undionly.kpxe"), (6, "ia32", "ipxe-ia32.efi"), (7, "x64", "ipxe.efi"),
        (9, "x64", "ipxe.efi"), (11, "arm64", "ipxe-arm64.efi"),
        (16, "x64http", "http://10.0.0.1/ipxe/ipxe.efi"),
        (19, "arm64http", "http://10.0.0.1/ipxe/ipxe-arm64.efi"),
    ):  # fmt: skip
        assert f"dhcp-match=set:{tag},option:client-arch,{number}" in said
        assert f"dhcp-boot=tag:!ipxe,tag:{tag},tag:!snponly,{file}" in said
    assert "dhcp-boot=tag:ipxe,http://10.0.0.1/boot.ipxe,,10.0.0.1" in said
    forced = [line for line in said if line.startswith("dhcp-option-force=")]
    assert len(forced) == 2
    assert all(line.endswith("option:vendor-class,HTTPClient") for line in forced)


def test_an_architecture_without_a_binary_is_not_named() -> None:
    said = render_dnsmasq(replace(FULL, boot_files=choose_boot_files(("ipxe.efi",))), NODES)
    assert "client-arch,7" in said
    assert "client-arch,0" not in said
    assert "undionly" not in said


def test_a_port_is_in_every_address() -> None:
    said = render_dnsmasq(replace(FULL, http_port=8080), NODES)
    assert "http://10.0.0.1:8080/boot.ipxe" in said
    assert "http://10.0.0.1/" not in said


@pytest.mark.parametrize(
    ("config", "present", "absent"),
    [
        (FULL, ["domain=nodes", "dhcp-option=option:router"], ["port=0"]),
        (replace(FULL, dns=False), ["port=0", "dhcp-option=option:dns-server"], ["domain=nodes"]),
        (
            replace(FULL, gateway=IPv4Address("10.0.0.2")),
            ["dhcp-option=option:router,10.0.0.2"],
            ["dhcp-option=option:router"],
        ),
        (
            PROXY,
            ["port=0", "dhcp-range=10.0.0.0,proxy,255.255.255.0"],
            ["dhcp-authoritative", "domain=nodes", "dhcp-option=option:router"],
        ),
    ],
)
def test_what_the_router_and_names_are(
    config: ServeConfig, present: list[str], absent: list[str]
) -> None:
    said = set(lines(render_dnsmasq(config, NODES)))
    assert set(present) <= said
    assert not set(absent) & said


def test_a_proxy_offers_services_and_no_addresses() -> None:
    said = lines(render_dnsmasq(PROXY, NODES))
    assert 'pxe-service=tag:!ipxe,tag:!snponly,7,"iPXE",ipxe.efi' in said
    assert 'pxe-service=tag:!ipxe,tag:snponly,7,"iPXE",snponly.efi' in said
    assert not [line for line in said if line.startswith(("dhcp-option", "dhcp-lease"))]


def test_nodes_are_known_by_all_their_nics() -> None:
    assert render_dhcp_hosts(NODES) == (
        "52:54:00:00:00:01,52:54:00:00:00:02,10.0.0.11,n1\n52:54:00:00:00:03,n2\n"
    )
    assert render_hosts(FULL, NODES) == ("10.0.0.1 server.nodes server\n10.0.0.11 n1.nodes n1\n")


def test_a_node_may_have_the_name_of_the_server() -> None:
    node = replace(NODES[0], name="server", address="10.0.0.12")
    assert render_hosts(FULL, [node]) == "10.0.0.12 server.nodes server\n"


def test_a_nodes_files_are_for_its_address_where_we_give_it() -> None:
    said = render_nginx(FULL, NODES)
    for mac in ("52-54-00-00-00-01", "52-54-00-00-00-02"):
        found = re.search(rf"location /nodes/{mac}/ {{\s+deny .*\s+allow (\S+);\s+deny all;", said)
        assert found
        assert found[1] == "10.0.0.11"
    assert "52-54-00-00-00-03" not in said
    assert "52-54-00-00-00-01" not in render_nginx(PROXY, NODES)


@pytest.mark.parametrize("config", [FULL, PROXY])
def test_users_of_the_server_get_no_files_of_nodes(config: ServeConfig) -> None:
    """The server's own address is in the subnet too, and has no rights of another user."""
    places = re.findall(r"location /nodes/[^{]*{\s+(.*);", render_nginx(config, NODES))
    assert len(places) >= 1
    assert {place.partition(";")[0] for place in places} == {f"deny {config.server}"}


def test_a_slow_download_does_not_keep_old_workers_for_ever() -> None:
    assert re.search(r"^worker_shutdown_timeout \d+m;$", render_nginx(FULL, []), re.MULTILINE)


def test_the_export_is_read_only_for_the_subnet_and_stable() -> None:
    (said,) = lines(render_exports(FULL))
    assert re.fullmatch(
        r"/srv/netboot/roots 10\.0\.0\.0/24\(ro,no_root_squash,no_subtree_check,"
        r"fsid=[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12},sec=sys\)",
        said,
    )
    assert lines(render_exports(replace(FULL, http_port=81))) == [said]
    other = replace(FULL, tree=Tree(Path("/srv/other")))
    assert other.export_id != FULL.export_id


def test_ganesha_has_the_same_path_over_every_version() -> None:
    said = render_ganesha(FULL, 4)
    assert 'Path = "/srv/netboot/roots";' in said
    assert 'Pseudo = "/srv/netboot/roots";' in said
    assert "Minor_Versions = 0, 1;" in said
    assert "Clients = 10.0.0.0/24;" in said
    assert said.count("Access_Type = RO") == 1


def test_ganesha_is_told_what_its_release_knows() -> None:
    flusher = "    Allow_Set_Io_Flusher_Fail = true;"  # an error to 4.3, without it 6.5 ends
    assert flusher not in lines(render_ganesha(FULL, 4))
    assert flusher in lines(render_ganesha(FULL, 6))


@pytest.mark.parametrize(
    ("said", "release"), [("NFS-Ganesha Release = V6.5", 6), ("V4 of something", 0)]
)
def test_the_release_of_ganesha(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, release: int
) -> None:
    program = tmp_path / "ganesha.nfsd"
    program.write_text(f"#!/bin/sh\necho '{said}'\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert find_ganesha_release() == release


@pytest.mark.parametrize("nfs", [Nfs.KERNEL, Nfs.GANESHA])
def test_only_what_changed_is_written(tmp_path: Path, nfs: Nfs) -> None:
    tree = make_tree(tmp_path / "tree")
    config = replace(FULL, tree=tree, folder=tmp_path / "made", nfs=nfs)
    names = {"dnsmasq.conf", "dhcp-hosts", "hosts", "nginx.conf", "consoles"}
    names.add("exports" if nfs is Nfs.KERNEL else "ganesha.conf")
    assert set(make_config(config, Nodes(nodes=NODES))) == names
    assert make_config(config, Nodes(nodes=NODES)) == []
    assert make_config(config, Nodes(nodes=NODES[1:])) == ["dhcp-hosts", "hosts", "nginx.conf"]
    assert make_config(config, Nodes()) == ["dnsmasq.conf", "dhcp-hosts"]


def test_the_log_of_tickets_is_for_root_alone(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    tree.reports_log.touch(0o644)
    make_config(replace(FULL, tree=tree, folder=tmp_path / "made"), Nodes(nodes=NODES))
    assert tree.reports_log.stat().st_mode & 0o777 == 0o600


def test_the_same_input_is_the_same_text() -> None:
    nodes = Nodes(nodes=NODES)
    assert config_texts(FULL, nodes) == config_texts(replace(FULL), nodes)


def test_ports_are_those_of_the_daemons() -> None:
    def numbers(config: ServeConfig) -> set[int]:
        return {port.number for port in config.ports}

    assert numbers(FULL) == {53, 67, 69, 80, 2049, 20048}
    assert numbers(replace(FULL, nfs=Nfs.KERNEL, dns=False, http_port=8080)) == {67, 69, 8080}
    assert numbers(PROXY) == {67, 69, 80, 2049, 4011, 20048}


def test_units_refresh_with_what_was_typed() -> None:
    options = Options("eth1", pool="10.0.0.9,10.0.0.99", http_port=8080, dns=False)
    assert words(options, FULL) == [
        "serve", "--refresh", "--interface", "eth1", "--tree", "/srv/netboot",
        "--range", "10.0.0.9,10.0.0.99", "--nfs", "ganesha", "--http-port", "8080",
        "--domain", "nodes", "--no-dns",
    ]  # fmt: skip
    units = {unit.path.name: unit for unit in system_files(FULL, options)}
    assert set(units) == {
        "imagebuilder-dnsmasq.service", "imagebuilder-nginx.service",
        "imagebuilder-ganesha.service", "imagebuilder-nodes.service",
        "imagebuilder-nodes.path", "imagebuilder-nodes.timer",
    }  # fmt: skip
    assert "--range 10.0.0.9,10.0.0.99" in units["imagebuilder-nodes.service"].text
    assert not units["imagebuilder-nodes.service"].starts
    assert "PathChanged=/srv/netboot/nodes.yaml" in units["imagebuilder-nodes.path"].text
    kernel = [unit.path for unit in system_files(replace(FULL, nfs=Nfs.KERNEL), options)]
    assert Path("etc/exports.d/imagebuilder.exports") in kernel


def test_a_unit_takes_words_as_they_are() -> None:
    assert exec_line(["sh", "-c", "100% $x"]).endswith('/sh -c "100%% $$x"')
    assert exec_line(["sh", "a'b\\x41\"", ";", ""]).endswith(' "a\'b\\\\x41\\"" ";" ""')


@pytest.mark.parametrize("text", ["/srv/a\nExecStartPre=/bin/sh", "a\rb", "a\0b", "a\udcff"])
def test_no_value_begins_another_setting(text: str) -> None:
    with pytest.raises(InputError, match="unit of systemd"):
        exec_line(["sh", text])
    with pytest.raises(InputError, match="unit of systemd"):
        environment_line("NAME", text)
    with pytest.raises(InputError, match="unit of systemd"):
        credential_line(Credential("bmc", Path(text)))


def test_no_router_is_announced_where_we_own_the_wire() -> None:
    nodes = Nodes(nodes=NODES)
    announcing = replace(FULL, announces=True)
    text = config_texts(announcing, nodes)["radvd.conf"]
    lines = [line for line in text.splitlines() if not line.strip().startswith("#")]
    assert lines == [
        "interface eth1 {",
        "    AdvSendAdvert on;",
        "    AdvDefaultLifetime 0;",
        "    IgnoreIfMissing on;",
        "    AdvCurHopLimit 0;",
        "};",
    ]
    assert "radvd.conf" not in config_texts(FULL, nodes)
    assert [daemon.name for daemon in daemons(announcing, with_rpcbind=False)] == [
        "ganesha",
        "nginx",
        "radvd",
        "dnsmasq",
    ]
    assert [daemon.name for daemon in daemons(FULL, with_rpcbind=False)] == [
        "ganesha",
        "nginx",
        "dnsmasq",
    ]


def test_consoles_are_received_only_where_a_node_wants_it() -> None:
    wanted = replace(NODES[0], netconsole=True)
    told = config_texts(FULL, Nodes(nodes=(wanted, *NODES[1:])))["consoles"]
    assert told == " ".join((wanted.name, *wanted.macs, wanted.address)).strip() + "\n"
    assert config_texts(FULL, Nodes(nodes=NODES))["consoles"] == ""
    listening = replace(FULL, consoles=True)
    assert [daemon.name for daemon in daemons(listening, with_rpcbind=False)] == [
        "ganesha",
        "nginx",
        "consoles",
        "dnsmasq",
    ]
    (port,) = {*listening.ports} - {*FULL.ports}
    assert (port.protocol, port.number) == ("udp", 6666)


def test_only_where_we_own_the_wire_ipxe_need_not_wait_for_a_proxy() -> None:
    told = "dhcp-option=tag:ipxe,encap:175,176,1b"
    assert told in render_dnsmasq(FULL, NODES).splitlines()
    assert told not in render_dnsmasq(PROXY, NODES).splitlines()
