# SPDX-License-Identifier: Apache-2.0
"""Certificates of servers that expired, and authorities that nobody trusts."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.system.files.authorities import (
    prove_anchors,
    prove_served,
    read_certificates,
)
from tests.unit.proof.trees import Content, Program, make_tree, running, subject

# For node.lab.example, until 2025-10-01, and for Lab CA 2024, until 2044-09-01; of no use.
SERVER = """\
-----BEGIN CERTIFICATE-----
MIIBqDCCAU6gAwIBAgIUSUK57VfIF1eaNmTfAyOBGo9Y3WEwCgYIKoZIzj0EAwIw
JDEMMAoGA1UECgwDTGFiMRQwEgYDVQQDDAtMYWIgQ0EgMjAyNDAeFw0yNDEwMDEw
MDAwMDBaFw0yNTEwMDEwMDAwMDBaMBsxGTAXBgNVBAMMEG5vZGUubGFiLmV4YW1w
bGUwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQjfI85oM0+4Ek239ZCN5biWBDb
pEP9LSeEWvASjJj9akpfVvH2ORdX7byGBUtTfZJ6frZUDxMrVhijSKTwy25zo2cw
ZTAYBgNVHREEETAPgg0qLmxhYi5leGFtcGxlMAkGA1UdEwQCMAAwHQYDVR0OBBYE
FEGevtBzB8eZjjsXKzZFBwza8As6MB8GA1UdIwQYMBaAFGepk1l/NmGVtCRmWsU1
u716rNLOMAoGCCqGSM49BAMCA0gAMEUCIQD5N81dDbCvQpXM6jo9Wwc90H8SzMf+
Xt0kGN0jROLIQQIgVBDnCSs7gkBUunLMJNawIMFxcCbKQ073iUBTFi0mJqE=
-----END CERTIFICATE-----
"""
AUTHORITY = """\
-----BEGIN CERTIFICATE-----
MIIBrTCCAVOgAwIBAgIUVRERCFo+DXDaIXFGASSHzCQXT+QwCgYIKoZIzj0EAwIw
JDEMMAoGA1UECgwDTGFiMRQwEgYDVQQDDAtMYWIgQ0EgMjAyNDAeFw0yNDA5MDEw
MDAwMDBaFw00NDA5MDEwMDAwMDBaMCQxDDAKBgNVBAoMA0xhYjEUMBIGA1UEAwwL
TGFiIENBIDIwMjQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAARDSa5GwZshcyrm
2GbZe2EntN/fz0A5Sx28NQZWg5HETGQVI8DFoLueS42Rf6hy0sjQNn2EqOf9G9Ua
pF6CMMXDo2MwYTAdBgNVHQ4EFgQUZ6mTWX82YZW0JGZaxTW7vXqs0s4wHwYDVR0j
BBgwFoAUZ6mTWX82YZW0JGZaxTW7vXqs0s4wDwYDVR0TAQH/BAUwAwEB/zAOBgNV
HQ8BAf8EBAMCAQYwCgYIKoZIzj0EAwIDSAAwRQIgBDnx29Kh5PLSpW/srtGh+HjD
VYFqMhe0eKoI4x6vNt0CIQCDMIpoKGMliDawDZdPOhLspbtIK+JlEvlQbEdMxkb+
Uw==
-----END CERTIFICATE-----
"""
YEAR_2025, YEAR_2026 = 1_750_000_000, 1_780_000_000
NGINX: dict[str, Content] = {"/etc/nginx/nginx.conf": "ssl_certificate /etc/nginx/tls/node.crt;\n"}
NOTHING = Startup(frozenset(), {}, {}, ())
BUNDLE, DEBIAN = "/etc/ssl/certs/ca-certificates.crt", "/usr/local/share/ca-certificates/lab.crt"
ANCHOR = "/etc/pki/ca-trust/source/anchors/lab.crt"


def test_certificates_are_read() -> None:
    first, second = read_certificates(f"x\n{SERVER}\n{AUTHORITY}")
    assert (first.name, first.last_day) == ("node.lab.example", "2025-10-01")
    assert (second.name, second.last_day) == ("Lab CA 2024", "2044-09-01")
    assert list(read_certificates(SERVER.replace("MIIB", "MIIC"))) == []
    assert list(read_certificates(SERVER[:200])) == []


def served(tmp_path: Path, files: dict[str, Content], epoch: int = YEAR_2026) -> list[str]:
    given = subject(make_tree(tmp_path, {"/etc/nginx/tls/node.crt": SERVER, **files}), epoch=epoch)
    return [finding.what for finding in prove_served(given)]


def test_an_expired_certificate_that_a_file_names_is_a_warning(tmp_path: Path) -> None:
    (what,) = served(tmp_path, NGINX)
    assert "node.lab.example in /etc/nginx/tls/node.crt, which /etc/nginx/nginx.conf names" in what
    assert "expired on 2025-10-01" in what


@pytest.mark.parametrize(
    ("files", "epoch"),
    [
        (NGINX, YEAR_2025),
        ({}, YEAR_2026),
        ({"/etc/nginx/nginx.conf": "# ssl_certificate /etc/nginx/tls/node.crt;\n"}, YEAR_2026),
        ({"/etc/nginx/nginx.conf": "ssl_certificate /etc/nginx/tls/node.crt.new;\n"}, YEAR_2026),
        ({**NGINX, "/etc/nginx/tls/node.crt": AUTHORITY + SERVER}, YEAR_2026),
    ],
)
def test_certificates_that_are_no_problem(
    files: dict[str, Content], epoch: int, tmp_path: Path
) -> None:
    assert served(tmp_path, files, epoch) == []


def test_a_folder_of_certificates_can_be_named(tmp_path: Path) -> None:
    files: dict[str, Content] = {"/etc/haproxy/haproxy.cfg": " bind :443 ssl crt /etc/nginx/tls/\n"}
    assert len(served(tmp_path, files)) == 1


def anchors(tmp_path: Path, files: dict[str, Content], startup: Startup = NOTHING) -> list[str]:
    given = subject(make_tree(tmp_path, {BUNDLE: SERVER, **files}))
    return [finding.what for finding in prove_anchors(running(given, startup))]


def test_an_authority_that_no_program_of_the_image_reads(tmp_path: Path) -> None:
    (what,) = anchors(tmp_path, {ANCHOR: AUTHORITY})
    assert what.startswith(
        f"programs do not trust the authority Lab CA 2024 in {ANCHOR}: the image"
    )
    assert "has no update-ca-trust" in what


def test_an_authority_that_nobody_added_to_the_bundle(tmp_path: Path) -> None:
    update: dict[str, Content] = {"/usr/sbin/update-ca-certificates": Program()}
    (what,) = anchors(tmp_path, {DEBIAN: AUTHORITY, **update})
    assert "nothing ran update-ca-certificates after it was added" in what


@pytest.mark.parametrize(
    "files",
    [
        {DEBIAN: AUTHORITY, BUNDLE: SERVER + AUTHORITY},
        {ANCHOR: AUTHORITY, "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem": AUTHORITY},
        {DEBIAN: AUTHORITY, "/etc/ssl/certs/5f1eee53.0": AUTHORITY},
        # A program that reads the file itself.
        {ANCHOR: AUTHORITY, "/etc/default/serve": f"SSL_CERT_FILE={ANCHOR}\n"},
        {"/usr/local/share/ca-certificates/README": "x"},
    ],
)
def test_authorities_that_are_trusted(files: dict[str, Content], tmp_path: Path) -> None:
    assert anchors(tmp_path, files) == []


def test_a_unit_may_add_them_at_boot(tmp_path: Path) -> None:
    unit = LoadedUnit(
        "ca.service",
        (),
        {"Unit Load State": ("loaded",)},
        {"ExecStart": (("/usr/sbin/update-ca-certificates",),)},
    )
    startup = Startup(frozenset((unit.name,)), {}, {unit.name: unit}, ())
    assert anchors(tmp_path, {DEBIAN: AUTHORITY}, startup) == []
