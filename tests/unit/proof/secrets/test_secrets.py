# SPDX-License-Identifier: Apache-2.0
"""Every kind of secret is found where it is planted, and nothing is found that is none."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from imagebuilder.image.proof import Finding, Level
from imagebuilder.proof.reading.provenance import Provenance, Trace, TraceKind
from imagebuilder.proof.secrets.prove import KINDS, MOST_BYTES, prove_secrets
from imagebuilder.recipe.types import AllowedSecret
from tests.unit.proof.trees import Content, Link, at, make_tree, subject

KEY = "-----BEGIN OPENSSH {}KEY-----\nx\n".format("PRIVATE ")  # no scanner of ours sees a key here
HF = "hf_abcdefghijklmnopqrstuvwxyz0123"
AT = "https://me:" + "hidden1@host/\n"
# For each kind one place and what is there.
PLANTED = {
    "ssh host key": ("/etc/ssh/ssh_host_ed25519_key", "x"),
    "GnuPG private key": ("/root/.gnupg/private-keys-v1.d/AB.key", "x"),
    "self-signed key": ("/etc/ssl/private/ssl-cert-snakeoil.key", "x"),
    "DKMS signing key": ("/var/lib/dkms/mok.key", "x"),
    "munge key": ("/etc/munge/munge.key", "x"),
    "Kerberos keytab": ("/etc/krb5.keytab", "x"),
    "disk key": ("/etc/cryptsetup-keys.d/data.key", "x"),
    "systemd credential": ("/etc/credstore/token", "x"),
    "NetworkManager identity": ("/var/lib/NetworkManager/secret_key", "x"),
    "Tailscale state": ("/var/lib/tailscale/tailscaled.state", "x"),
    "netrc": ("/home/me/.netrc", "machine x login y password z"),
    "git credentials": ("/root/.git-credentials", AT),
    "apt password": ("/etc/apt/auth.conf.d/vendor.conf", "machine x login y password z\n"),
    "apt proxy password": ("/etc/apt/apt.conf.d/90proxy", f'Acquire::http::Proxy "{AT}";'),
    "apt source password": ("/etc/apt/sources.list.d/v.list", f"deb {AT} x main"),
    "dnf password": ("/etc/yum.repos.d/vendor.repo", "[v]\nusername=me\npassword = z\n"),
    "subscription password": ("/etc/rhsm/rhsm.conf", "[server]\nproxy_password = z\n"),
    "Google credentials": ("/root/.config/gcloud/credentials.db", "x"),
    "Azure token": ("/root/.azure/msal_token_cache.json", "x"),
    "Hugging Face token": ("/root/.cache/huggingface/token", "hf_abc"),
    "Ansible vault password": ("/root/.vault_pass", "x"),
    "Ansible leftovers": ("/root/.ansible/tmp/ansible-tmp-1/args", "x"),
    "cloud-init state": ("/var/lib/cloud/instance/user-data.txt", "x"),
    "iSCSI initiator name": ("/etc/iscsi/initiatorname.iscsi", "InitiatorName=iqn.x"),
    "NVMe host name": ("/etc/nvme/hostnqn", "nqn.x"),
    "password hash": ("/etc/shadow", "root:abcdefghijklm:1::::::\n"),
    "empty password": ("/etc/shadow-", "root::1::::::\n"),
    "database password": ("/root/.pgpass", "host:5432:db:me:secret\n"),
    "Samba secrets": ("/var/lib/samba/private/secrets.tdb", "x"),
    "VNC password": ("/home/me/.vnc/passwd", "x"),
    "shell history": ("/root/.bash_history", "ls\n"),
}
# What looks like one and is none, or is somebody else's.
INNOCENT: Mapping[str, Content] = {
    "/etc/shadow": "root:!*:1::::::\ncompute:!:1::::::\n",
    "/etc/gshadow": "root:*::\nvideo:!::compute\n",
    "/etc/apt/auth.conf": "# nothing here\n",
    "/etc/apt/apt.conf.d/90proxy": 'Acquire::http::Proxy "http://cache:3142";\n',
    "/etc/iscsi/initiatorname.iscsi": "GenerateName=yes\n",
    "/etc/default/useradd": "# SECRET=none\nSHELL=/bin/sh\nTOKEN=\n",
    "/etc/wpa_supplicant/functions.sh": "wpa_msg stderr\n",
    "/etc/systemd/system/x.service": "[Service]\nEnvironment=LLAMA_CACHE=/var/cache/x\n",
    "/root/.bashrc": "alias ll='ls -l'\n",
    "/root/.ssh/authorized_keys": "ssh-ed25519 AAAA me\n",
    "/opt/x/lib/python3.13/site-packages/tests/key.pem": KEY,
    "/usr/share/doc/openssl/demo.pem": KEY,
    "/usr/lib/python3.13/test/keycert.pem": KEY,
    "/etc/ssl/certs/ca.pem": "-----BEGIN CERTIFICATE-----\n",
    "/etc/ssh/ssh_config": "Host *\n",
    "/var/log/empty.log": "",
}


def proved(
    tmp_path: Path,
    files: Mapping[str, Content],
    *traces: Trace,
    allow_secret: tuple[AllowedSecret, ...] = (),
    cmdline: tuple[str, ...] = (),
) -> list[Finding]:
    given = Provenance({trace.path: trace for trace in traces}, {}, frozenset(("base",)))
    return list(
        prove_secrets(
            subject(
                make_tree(tmp_path, files),
                trace=lambda: given,
                allow_secret=allow_secret,
                cmdline=cmdline,
            )
        )
    )


def faults(findings: list[Finding]) -> list[str]:
    return [one.what for one in at(findings, Level.FAULT)]


def test_every_kind_is_planted_below() -> None:
    assert sorted(PLANTED) == sorted(kind.name for kind in KINDS)
    assert all(kind.todo for kind in KINDS)


@pytest.mark.parametrize("kind", PLANTED)
def test_a_secret_is_found_by_its_place(tmp_path: Path, kind: str) -> None:
    path, text = PLANTED[kind]
    assert faults(proved(tmp_path, {path: text})) == [f"{kind} in the image: {path}"]


def test_nothing_is_found_that_is_none(tmp_path: Path) -> None:
    assert faults(proved(tmp_path, INNOCENT)) == []


@pytest.mark.parametrize(
    ("path", "text", "what"),
    [
        ("/etc/app/env", f"A=1\nHF_TOKEN={HF}\n", "Hugging Face token"),
        ("/usr/local/bin/x", "curl -H 'Authorization: Bearer abcdef0123456789'\n", "bearer token"),
        ("/etc/app/api-token", "0123456789abcdef\n", "secret in a file of its own"),
        ("/srv/key.pem", KEY, "private key"),
        ("/etc/fstab", "//s/a /a cifs username=a,password=hunter2\n", "password"),
    ],
)  # fmt: skip
def test_a_secret_is_found_by_its_form(path: str, text: str, what: str, tmp_path: Path) -> None:
    found = proved(tmp_path, {path: text})
    assert faults(found)[0].startswith(f"{what} in the image: {path}:")
    assert "hunter2" not in str(found)
    assert "abcdef" not in str(found)


def test_what_a_package_ships_is_everybodys(tmp_path: Path) -> None:
    shipped = Trace("/etc/demo.pem", TraceKind.PACKAGE, ("base",), "tool 2.0")
    assert faults(proved(tmp_path, {"/etc/demo.pem": KEY}, shipped)) == []
    made = Trace("/etc/made.pem", TraceKind.STEP, ("base",))
    assert faults(proved(tmp_path, {"/etc/made.pem": KEY}, made))


def test_the_finding_says_who_did_it(tmp_path: Path) -> None:
    placed = Trace("/etc/a", TraceKind.OVERLAY, ("configure site",), "", "site")
    (fault,) = at(proved(tmp_path, {"/etc/a": "password=hunter2\n"}, placed), Level.FAULT)
    assert fault.evidence[0].path == "/etc/a:1"
    assert fault.evidence[0].said == "a file of the overlay site"


def test_a_secret_that_is_meant_is_told_with_its_reason(tmp_path: Path) -> None:
    allowed = AllowedSecret("/etc/app/*", "a key for a test server")
    files = {"/etc/app/key": "password=hunter2\n"}
    found = proved(tmp_path, files, allow_secret=(allowed,))
    assert faults(found) == []
    assert found[0].what == "/etc/app/* may contain a secret: a key for a test server"


def test_the_command_line_has_none(tmp_path: Path) -> None:
    words = ("quiet", "rd.luks.key=/key", "app.password=hunter2", "token=0123456789abcdef")
    assert faults(proved(tmp_path, {}, cmdline=words)) == [
        "password of app.password in the image: kernel command line",
        "token or key of token in the image: kernel command line",
    ]


def test_links_are_not_followed_and_special_files_not_opened(tmp_path: Path) -> None:
    outside = make_tree(tmp_path / "outside", {"/.netrc": "machine x login y password z"})
    tree = tmp_path / "tree"
    files: Mapping[str, Content] = {
        "/root/.netrc": Link(str(outside.path / ".netrc")),
        "/home": Link(str(outside.path)),
    }
    make_tree(tree, files)
    os.mkfifo(tree / "root/.bash_history")
    assert faults(proved(tree, {})) == []


def test_what_is_large_is_no_secret(tmp_path: Path) -> None:
    files = {"/var/lib/model.json": '{"password": "abc"}' + " " * MOST_BYTES}
    assert faults(proved(tmp_path, files)) == []
