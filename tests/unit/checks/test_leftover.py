# SPDX-License-Identifier: Apache-2.0
"""Every kind of secret is found where it is planted, and nothing is found that is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from imagebuilder.checks.leftover import KINDS, MOST_BYTES, find_leftovers

KEY = "-----BEGIN OPENSSH {}KEY-----\nx\n".format("PRIVATE ")  # no scanner of ours sees a key here
AT = "https://me:" + "hidden@host/\n"
# For each kind one place and what is there.
PLANTED = {
    "ssh host key": ("/etc/ssh/ssh_host_ed25519_key", "x"),
    "ssh user key": ("/root/.ssh/id_ed25519", KEY),
    "private key": ("/srv/www/tls.pem", KEY.replace("OPENSSH ", "")),
    "GnuPG private key": ("/root/.gnupg/private-keys-v1.d/AB.key", "x"),
    "self-signed key": ("/etc/ssl/private/ssl-cert-snakeoil.key", "x"),
    "DKMS signing key": ("/var/lib/dkms/mok.key", "x"),
    "munge key": ("/etc/munge/munge.key", "x"),
    "Kerberos keytab": ("/etc/krb5.keytab", "x"),
    "disk key": ("/etc/cryptsetup-keys.d/data.key", "x"),
    "systemd credential": ("/etc/credstore/token", "x"),
    "WireGuard key": ("/etc/wireguard/wg0.conf", "[Interface]\nPrivateKey = abc\n"),
    "Wi-Fi password": ("/etc/wpa_supplicant/wpa_supplicant.conf", 'network={\n psk="abc"\n}\n'),
    "NetworkManager secret": ("/etc/NetworkManager/system-connections/home", "[wifi]\npsk=abc\n"),
    "NetworkManager identity": ("/var/lib/NetworkManager/secret_key", "x"),
    "Tailscale state": ("/var/lib/tailscale/tailscaled.state", "x"),
    "netrc": ("/home/me/.netrc", "machine x login y password z"),
    "git credentials": ("/root/.git-credentials", AT),
    "git token in an address": ("/opt/tool/.git/config", f"url = {AT}"),
    "GitHub token": ("/root/.config/gh/hosts.yml", "oauth_token: abc"),
    "apt password": ("/etc/apt/auth.conf.d/vendor.conf", "machine x login y password z\n"),
    "apt proxy password": ("/etc/apt/apt.conf.d/90proxy", f'Acquire::http::Proxy "{AT}";'),
    "apt source password": ("/etc/apt/sources.list.d/v.list", f"deb {AT} x main"),
    "pip index password": ("/etc/pip.conf", f"[global]\nindex-url = {AT}"),
    "PyPI token": ("/root/.pypirc", "[pypi]\npassword = pypi-abc\n"),
    "npm token": ("/root/.npmrc", "//host/:_authToken=abc"),
    "container registry login": ("/root/.docker/config.json", '{"auths": {"h": {"auth": "abc"}}}'),
    "Kubernetes credentials": ("/etc/kubernetes/admin.conf", "client-key-data: abc"),
    "AWS credentials": ("/root/.aws/credentials", "aws_secret_access_key = abc"),
    "Google credentials": ("/opt/app/service.json", '{"private_key": "abc"}'),
    "Azure token": ("/root/.azure/msal_token_cache.json", "x"),
    "Hugging Face token": ("/root/.cache/huggingface/token", "hf_abc"),
    "rclone password": ("/root/.config/rclone/rclone.conf", "[x]\npass = abc\n"),
    "Ansible vault password": ("/root/.vault_pass", "x"),
    "Ansible leftovers": ("/root/.ansible/tmp/ansible-tmp-1/args", "x"),
    "cloud-init state": ("/var/lib/cloud/instance/user-data.txt", "x"),
    "iSCSI initiator name": ("/etc/iscsi/initiatorname.iscsi", "InitiatorName=iqn.x"),
    "NVMe host name": ("/etc/nvme/hostnqn", "nqn.x"),
    "password hash": ("/etc/shadow", "root:$y$abc:1::::::\n"),
    "empty password": ("/etc/shadow-", "root::1::::::\n"),
    "password of a file server": ("/etc/samba/credentials", "username=a\npassword=b\n"),
    "database password": ("/root/.pgpass", "host:5432:db:me:secret\n"),
    "Samba secrets": ("/var/lib/samba/private/secrets.tdb", "x"),
    "VNC password": ("/home/me/.vnc/passwd", "x"),
    "shell history": ("/root/.bash_history", "ls\n"),
    "secret in the environment": ("/etc/environment", "HF_TOKEN=abc\n"),
    "secret in a unit": (
        "/etc/systemd/system/x.service.d/key.conf",
        "[Service]\nEnvironment=OPENAI_API_KEY=abc\n",
    ),
    "build log with an environment": ("/var/log/build/dkms.log", "PATH=/bin\nCI_TOKEN=abc\n"),
}
# What looks like one and is none, or is somebody else's.
INNOCENT = {
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
    "/var/lib/dpkg/info/x.json": '{"private": "abc"}',
    "/var/log/empty.log": "",
}


def plant(tree: Path, path: str, text: str) -> None:
    """A file of the tree."""
    file = Path(f"{tree}{path}")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_every_kind_is_planted_below() -> None:
    assert list(PLANTED) == [kind.name for kind in KINDS]
    assert len(PLANTED) >= 20
    assert all(kind.todo for kind in KINDS)


@pytest.mark.parametrize("kind", PLANTED)
def test_a_secret_is_found(tmp_path: Path, kind: str) -> None:
    path, text = PLANTED[kind]
    plant(tmp_path, path, text)
    assert path in find_leftovers(tmp_path).get(kind, ())


def test_nothing_is_found_that_is_none(tmp_path: Path) -> None:
    for path, text in INNOCENT.items():
        plant(tmp_path, path, text)
    assert find_leftovers(tmp_path) == {}


def test_links_are_not_followed_and_special_files_not_opened(tmp_path: Path) -> None:
    plant(tmp_path, "/outside/.netrc", "machine x login y password z")
    tree = tmp_path / "tree"
    (tree / "root").mkdir(parents=True)
    (tree / "root/.netrc").symlink_to(tmp_path / "outside/.netrc")
    (tree / "home").symlink_to(tmp_path / "outside")
    os.mkfifo(tree / "root/.bash_history")
    assert find_leftovers(tree) == {}


def test_what_is_large_is_no_secret(tmp_path: Path) -> None:
    plant(tmp_path, "/var/lib/model.json", '{"private_key": "abc"}' + " " * MOST_BYTES)
    assert find_leftovers(tmp_path) == {}
