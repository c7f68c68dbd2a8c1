# SPDX-License-Identifier: Apache-2.0
"""Secrets that must not be in an image, which whoever can boot it can read: what, and where.

Kinds come from systemd's "Safely Building Images", virt-sysprep's operations, and from what the
tools on GPU nodes leave behind.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.checks.walk import Found, read_file, walk

MOST_BYTES = 1_000_000  # a secret is small; what is larger is not read
# Where people, packages and builds put things; distributions' own data below /usr is not read.
PLACES = (
    "/boot", "/etc", "/home", "/mnt", "/opt", "/root", "/srv", "/tmp", "/usr/local", "/var",
)  # fmt: skip
# Libraries test themselves with keys that everybody knows.
PUBLIC = re.compile(r"/(site|dist)-packages/|/python[\d.]+/test/|/share/doc/|/node_modules/")

HOME = r"(/root|/home/[^/]+|/etc/skel|/srv/[^/]+|/opt/[^/]+|/var/lib/[^/]+)"
# An address with a password in it, such as https://me:secret@host/.
IN_ADDRESS = rb"://[^\s/:@'\"]+:[^\s/@'\"]+@"
PRIVATE = rb"(?m)^\s*-----BEGIN ([A-Z0-9]+ )*PRIVATE KEY( BLOCK)?-----"
SETTING = (
    rb"(?mi)^\s*(export\s+)?[A-Z0-9_]*(PASSWORD|PASSWD|SECRET|TOKEN|API_?KEY|ACCESS_?KEY)"
    rb"[A-Z0-9_]*\s*=\s*['\"]?[^\s'\"#]"
)
NODES_OWN = "let the node have it as its own file"
REMOVE = "remove it in the script or package that makes it"


@dataclass(frozen=True)
class Secret:
    """A kind of secret: files at `path` that hold `holds`, or that are not empty."""

    name: str
    path: str
    holds: bytes = b""
    todo: str = NODES_OWN


KINDS = (
    # Keys of machines and people.
    Secret("ssh host key", r".*/ssh_host_[^/]*key"),
    Secret("ssh user key", HOME + r"/\.ssh/.*", PRIVATE),
    Secret("private key", r".*", PRIVATE),
    Secret("GnuPG private key", r".*/(private-keys-v1\.d/[^/]+\.key|secring\.gpg)"),
    Secret("self-signed key", r"/etc/ssl/private/ssl-cert-snakeoil\.key", todo=REMOVE),
    Secret("DKMS signing key", r"/var/lib/(dkms/mok\.key|shim-signed/mok/[^/]+\.priv)",
         todo=REMOVE),
    Secret("munge key", r"(/etc/munge|/var/lib/munge)/munge\.key"),
    Secret("Kerberos keytab", r"/etc/([^/]+/)*[^/]*\.keytab"),
    Secret("disk key", r"/etc/(cryptsetup-keys\.d/.+|luks/.+\.key)"),
    Secret("systemd credential", r"/etc/credstore(\.encrypted)?/.+"),
    # Networks.
    Secret("WireGuard key", r"/etc/(wireguard/.+|systemd/network/.+\.netdev)",
         rb"(?mi)^\s*(PrivateKey|PresharedKey)\s*=\s*\S"),
    Secret("Wi-Fi password", r"/etc/(wpa_supplicant/.+|hostapd/.+|netplan/.+)|/var/lib/iwd/.+",
         rb"(?mi)^\s*(psk|sae_password|wpa_passphrase|password|Passphrase)\s*[=:]\s*\S"),
    Secret("NetworkManager secret",
         r"/etc/NetworkManager/system-connections/.+",
         rb"(?mi)^\s*(psk|password|private-key|leap-password|wep-key\d)\s*=\s*\S"),
    Secret("NetworkManager identity", r"/var/lib/NetworkManager/(secret_key|seen-bssids)",
         todo=REMOVE),
    Secret("Tailscale state", r"/var/lib/tailscale/.+\.state"),
    # Package managers and repositories.
    Secret("netrc", HOME + r"/\.netrc|/etc/netrc"),
    Secret("git credentials", HOME + r"/(\.git-credentials|\.config/git/credentials)"),
    Secret("git token in an address", HOME + r"/\.gitconfig|/etc/gitconfig|.*/\.git/config",
         IN_ADDRESS),
    Secret("GitHub token", HOME + r"/\.config/(gh/hosts\.yml|hub)", rb"oauth_token:\s*\S"),
    Secret("apt password", r"/etc/apt/auth\.conf(\.d/.+)?", rb"(?m)^\s*[^#\s]"),
    Secret("apt proxy password", r"/etc/apt/apt\.conf(\.d/.+)?", IN_ADDRESS),
    Secret("apt source password", r"/etc/apt/sources\.list(\.d/.+)?", IN_ADDRESS),
    Secret("pip index password",
         HOME + r"/(\.pip/pip\.conf|\.config/pip/pip\.conf)|/etc/(xdg/pip/)?pip\.conf", IN_ADDRESS),
    Secret("PyPI token", HOME + r"/\.pypirc", rb"(?m)^\s*password\s*[=:]\s*\S"),
    Secret("npm token", HOME + r"/\.npmrc|/etc/npmrc", rb"(_authToken|_password|_auth)\s*=\s*\S"),
    # Clouds and clusters.
    Secret("container registry login", HOME + r"/\.docker/config\.json|"
         r"(/etc|/root/\.config|/home/[^/]+/\.config)/containers/auth\.json",
         rb'"(auth|identitytoken)"\s*:\s*"[^"]'),
    Secret("Kubernetes credentials", HOME + r"/\.kube/.+|/etc/(kubernetes|rancher)/.+|"
         r"/var/lib/rancher/.+",
         rb"(client-key-data|token|password)\s*:\s*\S"),
    Secret("AWS credentials", HOME + r"/\.aws/.+",
         rb"(?i)(secret_access_key|session_token)\s*=\s*\S"),
    Secret("Google credentials", HOME + r"/\.config/gcloud/(credentials\.db|.*credentials\.json)|"
         r".*\.json", rb'"(private_key|refresh_token)"\s*:\s*"[^"]'),
    Secret("Azure token", HOME + r"/\.azure/(accessTokens|msal_token_cache|service_principal).*"),
    Secret("Hugging Face token",
         HOME + r"/(\.cache/huggingface|\.huggingface)/(token|stored_tokens)"),
    Secret("rclone password", HOME + r"/\.config/rclone/rclone\.conf",
         rb"(?m)^\s*(pass|token|secret_access_key)\s*=\s*\S"),
    Secret("Ansible vault password", HOME + r"/\.(ansible_)?vault[^/]*|"
         r"/etc/ansible/[^/]*vault[^/]*", todo=REMOVE),
    Secret("Ansible leftovers", HOME + r"/\.ansible/tmp/.+", todo=REMOVE),
    Secret("cloud-init state", r"/var/lib/cloud/.+", todo=REMOVE),
    # Identity of a machine that storage servers know.
    Secret("iSCSI initiator name", r"/etc/iscsi/initiatorname\.iscsi", rb"(?m)^InitiatorName=\S"),
    Secret("NVMe host name", r"/etc/nvme/host(nqn|id)"),
    # Passwords.
    Secret("password hash", r"/etc/(shadow|gshadow)-?", rb"(?m)^[^:#]+:[^:!*]",
         "log in with keys; a node's own password is a node's own file"),
    Secret("empty password", r"/etc/shadow-?", rb"(?m)^[^:#]+::", "lock the account: passwd -l"),
    Secret("password of a file server", HOME + r"/\.smbcredentials|/etc/([^/]+/)?[^/]*cred[^/]*",
         rb"(?mi)^\s*password\s*=\s*\S"),
    Secret("database password", HOME + r"/\.(my\.cnf|pgpass)|/etc/mysql/debian\.cnf",
         rb"(?mi)^\s*(password\s*=\s*\S|[^#\s:]+:[^:]+:[^:]+:[^:]+:\S)"),
    Secret("Samba secrets", r"/var/lib/samba/private/secrets\.[tl]db"),
    Secret("VNC password", HOME + r"/\.vnc/passwd"),
    # What builds and people leave.
    Secret("shell history", HOME + r"/\.[a-z_]*(history|hst)", todo=REMOVE),
    Secret("secret in the environment",
         r"/etc/(environment|environment\.d/.+|default/.+|profile\.d/.+|sysconfig/.+)|"
         + HOME + r"/\.(profile|bashrc|bash_profile|zshrc|env)", SETTING),
    Secret("secret in a unit", r"/etc/systemd/(system|user)/.+\.(service|conf)",
         rb"(?mi)^\s*Environment=.*(PASSWORD|PASSWD|SECRET|TOKEN|API_?KEY)[A-Z0-9_]*=[^\s\"']"),
    Secret("build log with an environment",
         r"/var/log/.+|/tmp/.+|/var/tmp/.+|/var/lib/dkms/.+\.log", SETTING, REMOVE),
)  # fmt: skip


def find_leftovers(tree: Path) -> Mapping[str, tuple[str, ...]]:
    """The paths at which a tree has secrets, by name of the kind."""
    found: dict[str, tuple[str, ...]] = {}
    patterns = {kind.name: re.compile(kind.path) for kind in KINDS}
    for file in candidates(tree):
        fitting = [kind for kind in KINDS if patterns[kind.name].fullmatch(file.path)]
        content = read_file(tree, file.path, MOST_BYTES) if fitting else b""
        for kind in fitting:
            if re.search(kind.holds, content):
                found[kind.name] = (*found.get(kind.name, ()), file.path)
    return found


def candidates(tree: Path) -> Iterator[Found]:
    """The files that may hold a secret: small, not empty, nobody's public test data."""
    for place in PLACES:
        for file in walk(tree, place):
            fits = file.is_file and 0 < file.info.st_size <= MOST_BYTES
            if fits and not PUBLIC.search(file.path):
                yield file
