# SPDX-License-Identifier: Apache-2.0
"""Ansible on nodes: a dynamic inventory, with the host keys of the tree alone, and playbooks."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from imagebuilder.digest import Json
from imagebuilder.fleet.addresses import find_addresses
from imagebuilder.fleet.select import ALL, groups_of, profiles_of
from imagebuilder.fleet.ssh import CONNECT_SECONDS
from imagebuilder.nodes.types import Node, Nodes
from imagebuilder.playbook.step import find_ansible
from imagebuilder.process import Word, run
from imagebuilder.ssh import NODE_OPTIONS, option_words, quoted_path
from imagebuilder.tree import Tree
from imagebuilder.untrusted import clean

RESERVED = frozenset(("all", "ungrouped", "_meta"))  # Ansible's own names
# It answers as `imagebuilder inventory` does, for the nodes that were chosen.
SCRIPT = '#!/bin/sh\n[ "$1" = --host ] && echo "{}" || cat "${0%/*}/inventory.json"\n'
EXTRA_ARGS = "ANSIBLE_SSH_EXTRA_ARGS"


def inventory_of(tree: Tree, nodes: Sequence[Node]) -> dict[str, Json]:
    """What an inventory script prints for --list: groups, and the vars of every host.

    Groups are those of nodes.yaml, its labels, and profile_NAME; Ansible allows letters, digits and
    `_` in names, everything else becomes `_`.
    """
    places = find_addresses(tree, nodes)
    chosen = Nodes(nodes=tuple(nodes))
    groups = {k: v for k, v in groups_of(chosen).items() if k != ALL}
    groups |= {f"profile_{name}": hosts for name, hosts in profiles_of(chosen).items()}
    found: dict[str, list[str]] = {}
    for name, hosts in groups.items():
        found.setdefault(group_name(name), []).extend(hosts)
    hostvars: dict[str, Json] = {
        node.name: host_vars(tree, node, places.get(node.name, "")) for node in nodes
    }
    every: list[Json] = [node.name for node in nodes]
    children: list[Json] = [*found]
    listed: dict[str, Json] = {
        name: {"hosts": [*dict.fromkeys(hosts)]} for name, hosts in found.items()
    }
    return {
        "_meta": {"hostvars": hostvars},
        "all": {"hosts": every, "children": children},
        **listed,
    }


def group_name(name: str) -> str:
    name = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"group_{name}" if name in RESERVED or name[0].isdecimal() else name


def host_vars(tree: Tree, node: Node, address: str) -> dict[str, Json]:
    """How Ansible reaches a node and what nodes.yaml says of it."""
    options = {
        "UserKnownHostsFile": quoted_path(tree.serve / "known_hosts"),
        "HostKeyAlias": node.name,
        "ConnectTimeout": str(CONNECT_SECONDS),
        **NODE_OPTIONS,
    }
    found: dict[str, Json] = {
        **dict(node.vars),
        "ansible_user": node.login,
        "ansible_ssh_common_args": shlex.join(option_words(options)),
        "ansible_python_interpreter": "/usr/bin/python3",
        "ansible_control_path": control_path(node, address),
        "imagebuilder_profile": node.profile,
        "imagebuilder_group": node.group,
    }
    return {**found, "ansible_host": address} if address else found


def control_path(node: Node, address: str) -> str:
    """Where Ansible keeps a connection to a node open: not where it would for another inventory,
    which may have checked no host key.

    As short as Ansible's own name: the path of a socket has about 100 bytes (unix(7)).
    """
    words = f"imagebuilder {node.name} {node.login} {address}"
    return f"%(directory)s/{hashlib.sha256(words.encode()).hexdigest()[:10]}"


def make_inventory(folder: Path, inventory: Mapping[str, Json]) -> Path:
    """A program that Ansible can ask for an inventory, with its data beside it."""
    (folder / "inventory.json").write_text(json.dumps(inventory))
    script = folder / "inventory"
    script.write_text(SCRIPT)
    script.chmod(0o700)
    return script


def configure_nodes(
    tree: Tree,
    nodes: Sequence[Node],
    playbooks: Sequence[Path],
    env: Mapping[str, str],
    tell: Callable[[str], None],
) -> int:
    """Run ansible-playbook; returns its exit status, and `tell` hears each of its lines.

    `env` gives it what is the person's: their ssh agent, which is never forwarded to a node, and
    settings of Ansible.
    """
    program = find_ansible()
    kept = {k: v for k, v in env.items() if k.startswith("ANSIBLE_") or k == "SSH_AUTH_SOCK"}
    # host_vars() forbids it to ~/.ssh/config; after an `ssh_args = -A` of theirs, only -a counts.
    kept[EXTRA_ARGS] = f"{env.get(EXTRA_ARGS, '')} -a".strip()
    with TemporaryDirectory(prefix="imagebuilder-ansible-") as folder:
        inventory = make_inventory(Path(folder), inventory_of(tree, nodes))
        files = [playbook.absolute() for playbook in playbooks]
        argv: list[Word] = [program, "--inventory", inventory, "--", *files]
        log = Path(folder) / "log"
        done = run(argv, env=kept, log=log, on_line=lambda line: tell(clean(line)), check=False)
    return done.status
