# SPDX-License-Identifier: Apache-2.0
"""The configuration of a live system: ssh keys that may log in, and what to install, if anything.

Ubuntu's runs cloud-init, which reads user-data, meta-data and vendor-data from a folder named on
the kernel line (the NoCloud source).  Debian's runs live-config, which runs a script named there.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path

from imagebuilder.errors import Fault, InputError
from imagebuilder.recipe.keys import load_key_file, load_site_keys
from imagebuilder.recipe.positions import parse_document, read_content
from imagebuilder.recipe.read import load_site
from imagebuilder.settings import Settings

HEADER = "#cloud-config"
NO_KEYS = "pass a public key with --ssh-key, add one to ssh-keys in {site}, or run ssh-keygen"
# systemd-run, because live-config runs before basic.target: waiting for ssh there would deadlock.
HOOK = """\
#!/bin/sh
# live-config runs this (its word hooks=): let the operator's keys in over ssh.
set -eu
for home in /root /home/*; do
    [ -d "$home" ] || continue
    mkdir -p "$home/.ssh"
    printf '%s\\n' {keys} > "$home/.ssh/authorized_keys"
    chmod 700 "$home/.ssh"
    chown -R --reference="$home" "$home/.ssh"
done
systemd-run --no-block sh -c '
    [ -x /usr/sbin/sshd ] || {{ apt-get update && apt-get install --yes openssh-server; }}
    systemctl start ssh'
"""


def load_operator_keys(settings: Settings, key_file: Path | None, home: Path) -> tuple[str, ...]:
    """The ssh keys of `key_file`, else of the site file, else the user's own.

    Raises InputError if there are none, or one is not a public key.
    """
    faults: list[Fault] = []
    if key_file is not None:
        keys = list(load_key_file(key_file, faults))
    else:
        site = load_site(settings, home, faults)
        keys = load_site_keys(site.document, site.file.ssh_keys, site.home, faults)
    if faults:
        raise InputError.of(faults)
    if not keys:
        raise InputError(
            "no ssh key is configured: nobody could log in to the live system",
            where=str(key_file or settings.site),
            hint=NO_KEYS.format(site=settings.site),
        )
    return tuple(keys)


def render_user_data(keys: Sequence[str]) -> str:
    """The cloud-config that only lets `keys` log in, without an installation.

    They apply to the default user, whose name differs between versions of the ISO and whose login
    shell is the installer, and to root, which has a normal shell (cloud-init, module `ssh`).
    """
    listed = "".join(f"  - {json.dumps(key, ensure_ascii=False)}\n" for key in keys)
    return f"{HEADER}\ndisable_root: false\nssh_authorized_keys:\n{listed}"


def load_autoinstall(path: Path) -> str:
    """The checked user-data of an unattended installation in `path`.

    Raises InputError with line and column.
    """
    shown = str(path)
    content = read_content(path, shown)
    document = parse_document(content, shown)
    text = content.decode("utf-8-sig")
    if text.splitlines()[0].rstrip() != HEADER:
        raise InputError(
            f"the first line must be {HEADER}",
            where=f"{shown}:1:1",
            hint="cloud-init ignores files without it; put `autoinstall:` below it",
        )
    found = document.value.get("autoinstall")
    if not isinstance(found, dict):
        what = "must be a mapping" if "autoinstall" in document.value else "the key is missing"
        fault = document.fault(("autoinstall",), what, "it starts with `version: 1`")
        raise InputError.of([fault])
    if found.get("version") != 1:
        raise InputError.of(
            [document.fault(("autoinstall", "version"), "must be 1", "`version: 1` is required")]
        )
    return text


def render_meta_data(name: str) -> str:
    """The meta-data: cloud-init needs an instance id."""
    return f"instance-id: live-{name}\n"


def render_hook(keys: Sequence[str]) -> str:
    return HOOK.format(keys=shlex.join(keys))
