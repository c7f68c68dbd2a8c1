# SPDX-License-Identifier: Apache-2.0
"""Secrets that can only be recognised by path, because they are binary or arbitrary words.

From systemd's "Safely Building Images", virt-sysprep's operations, and what the tools on GPU nodes
leave behind.  imagebuilder.secret recognises secrets in text at any path.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from imagebuilder.families.registry import families

HOME = r"(/root|/home/[^/]+|/etc/skel|/srv/[^/]+|/opt/[^/]+|/var/lib/[^/]+)"
AS_NODE_FILE = "provide it to the node as one of its own files"
REMOVE = "remove it in the script or package that makes it"
WITH_KEYS = "log in with keys; provide a node's own password as one of its own files"


@dataclass(frozen=True)
class SecretPlace:
    """A kind of secret: files at `path` that match `holds`, or that are not empty."""

    name: str
    path: str
    holds: bytes = b""
    todo: str = AS_NODE_FILE


OURS = (
    # Keys of machines and people.
    SecretPlace("ssh host key", r".*/ssh_host_[^/]*key"),
    SecretPlace("GnuPG private key", r".*/(private-keys-v1\.d/[^/]+\.key|secring\.gpg)"),
    SecretPlace("self-signed key", r"/etc/ssl/private/ssl-cert-snakeoil\.key", todo=REMOVE),
    SecretPlace(
        "DKMS signing key", r"/var/lib/(dkms/mok\.key|shim-signed/mok/[^/]+\.priv)", todo=REMOVE
    ),
    SecretPlace("munge key", r"(/etc/munge|/var/lib/munge)/munge\.key"),
    SecretPlace("Kerberos keytab", r"/etc/([^/]+/)*[^/]*\.keytab"),
    SecretPlace("disk key", r"/etc/(cryptsetup-keys\.d/.+|luks/.+\.key)"),
    SecretPlace("systemd credential", r"/etc/credstore(\.encrypted)?/.+"),
    # Networks, package managers, clouds and clusters.
    SecretPlace(
        "NetworkManager identity", r"/var/lib/NetworkManager/(secret_key|seen-bssids)", todo=REMOVE
    ),
    SecretPlace("Tailscale state", r"/var/lib/tailscale/.+\.state"),
    SecretPlace("netrc", HOME + r"/\.netrc|/etc/netrc"),
    SecretPlace("git credentials", HOME + r"/(\.git-credentials|\.config/git/credentials)"),
    SecretPlace("Google credentials", HOME + r"/\.config/gcloud/credentials\.db"),
    SecretPlace(
        "Azure token", HOME + r"/\.azure/(accessTokens|msal_token_cache|service_principal).*"
    ),
    SecretPlace(
        "Hugging Face token", HOME + r"/(\.cache/huggingface|\.huggingface)/(token|stored_tokens)"
    ),
    SecretPlace(
        "Ansible vault password",
        HOME + r"/\.(ansible_)?vault[^/]*|/etc/ansible/[^/]*vault[^/]*",
        todo=REMOVE,
    ),
    SecretPlace("Ansible leftovers", HOME + r"/\.ansible/tmp/.+", todo=REMOVE),
    SecretPlace("cloud-init state", r"/var/lib/cloud/.+", todo=REMOVE),
    # Identity of a machine that storage servers know.
    SecretPlace(
        "iSCSI initiator name", r"/etc/iscsi/initiatorname\.iscsi", rb"(?m)^InitiatorName=\S"
    ),
    SecretPlace("NVMe host name", r"/etc/nvme/host(nqn|id)"),
    # Passwords.
    SecretPlace(
        "password hash", r"/etc/(shadow|gshadow)-?", rb"(?m)^[^:#]+:[^:!*$]", todo=WITH_KEYS
    ),
    SecretPlace(
        "empty password", r"/etc/shadow-?", rb"(?m)^[^:#]+::", todo="lock the account: passwd -l"
    ),
    SecretPlace("database password", HOME + r"/\.pgpass", rb"(?m)^[^#\s:]+:[^:]+:[^:]+:[^:]+:\S"),
    SecretPlace("Samba secrets", r"/var/lib/samba/private/secrets\.[tl]db"),
    SecretPlace("VNC password", HOME + r"/\.vnc/passwd"),
    # What builds and people leave.
    SecretPlace("shell history", HOME + r"/\.[a-z_]*(history|hst)", todo=REMOVE),
)
OF_FAMILIES = tuple(
    SecretPlace(one.name, one.path, one.holds) for family in families() for one in family.secrets
)
KINDS = (*OURS, *OF_FAMILIES)
PATTERNS = tuple((kind, re.compile(kind.path)) for kind in KINDS)
# Nearly no path fits: one match says so in a fifth of the time.
ANY_OF_OURS = re.compile("|".join(f"(?:{kind.path})" for kind in OURS))


def fitting_kinds(path: str) -> list[SecretPlace]:
    """The kinds of secrets that this path may contain."""
    patterns = PATTERNS if ANY_OF_OURS.fullmatch(path) else PATTERNS[len(OURS) :]
    return [kind for kind, pattern in patterns if pattern.fullmatch(path)]
