# SPDX-License-Identifier: Apache-2.0
"""Addresses of IPv6 where the kernel has none."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.image.proof import Level
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.system.network.firewall import prove_families
from imagebuilder.recipe.expectations import Expectations, ExpectedEngine
from tests.unit.proof.trees import Content, make_tree, running, subject

OFF = ("quiet", "ipv6.disable=1")
UNIT = "/etc/systemd/system/a.service"


def found(
    tmp_path: Path,
    command: str,
    *,
    cmdline: tuple[str, ...] = OFF,
    files: dict[str, Content] | None = None,
    variable: str = "A=b",
    engine: str = "",
) -> list[tuple[Level, str]]:
    values = {"Unit Load State": ("loaded",), "Environment": (variable,)}
    service = LoadedUnit("a.service", (UNIT,), values, {"ExecStart": (tuple(command.split()),)})
    socket = LoadedUnit("b.socket", (), {"ListenStream": ("0.0.0.0:9", "[::]:9")})
    units = {"a.service": service, **({"b.socket": socket} if command == "-" else {})}
    engines = (ExpectedEngine(engine=engine, unit="a.service", backends=()),) if engine else ()
    given = subject(
        make_tree(tmp_path, {UNIT: "[Service]\n", **(files or {})}),
        cmdline=cmdline, expectations=Expectations(engines=engines),
    )  # fmt: skip
    startup = Startup(frozenset(units), {}, units, ())
    return [(finding.level, finding.what) for finding in prove_families(running(given, startup))]


def test_an_engine_on_the_address_of_both_does_not_start(tmp_path: Path) -> None:
    ((level, what),) = found(tmp_path, "/usr/bin/llama-server --host ::", engine="llama.cpp")
    assert level is Level.FAULT
    assert what.startswith("a.service does not start: it listens on ::, but ipv6.disable=1")
    assert found(tmp_path, "/usr/bin/llama-server --host 0.0.0.0", engine="llama.cpp") == []


@pytest.mark.parametrize(
    ("command", "variable", "files", "told"),
    [
        ("/opt/serve --listen-address=[::]:9100", "A=b", {}, True),
        ("/opt/serve --host ::", "A=b", {}, True),
        ("/opt/serve", "SERVE_HOST=::", {}, True),
        ("-", "A=b", {}, True),
        (
            "/usr/sbin/nginx",
            "A=b",
            {"/etc/nginx/nginx.conf": "server {\n listen [::]:80;\n}\n"},
            True,
        ),
        ("/usr/sbin/haproxy", "A=b", {"/etc/haproxy/haproxy.cfg": "  bind :::8081\n"}, True),
        ("/opt/serve", "A=b", {"/etc/nginx/nginx.conf": "listen [::]:80;\n"}, False),
        ("/usr/sbin/nginx", "A=b", {"/etc/nginx/nginx.conf": "#listen [::]:80;\n"}, False),
        ("/usr/sbin/haproxy", "A=b", {"/etc/haproxy/haproxy.cfg": "  bind :8081\n"}, False),
        ("/opt/serve --host 127.0.0.1 --url http://[fd00::1]:80/", "A=b", {}, False),
    ],
)
def test_other_services_are_a_warning(
    tmp_path: Path,
    command: str,
    variable: str,
    files: dict[str, Content],
    told: bool,  # noqa: FBT001
) -> None:
    levels = [level for level, _ in found(tmp_path, command, variable=variable, files=files)]
    assert levels == [Level.WARNING] * told


def test_a_kernel_with_ipv6_is_no_problem(tmp_path: Path) -> None:
    for words in (("quiet",), ("ipv6.disable=1", "ipv6.disable=0")):
        assert found(tmp_path, "/opt/serve --host ::", cmdline=words) == []
