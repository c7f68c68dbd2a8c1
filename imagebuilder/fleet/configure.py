# SPDX-License-Identifier: Apache-2.0
"""Run ansible-playbook on nodes, with the inventory of the tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from imagebuilder.fleet.ansible import inventory_of, inventory_script
from imagebuilder.nodes.types import Node
from imagebuilder.playbook.step import find_ansible
from imagebuilder.process import Word, run
from imagebuilder.tree import Tree
from imagebuilder.untrusted import clean

EXTRA = "ANSIBLE_SSH_EXTRA_ARGS"


def configure_nodes(
    tree: Tree,
    nodes: Sequence[Node],
    playbooks: Sequence[Path],
    env: Mapping[str, str],
    tell: Callable[[str], None],
) -> int:
    """The exit status of ansible-playbook; `tell` hears each of its lines.

    `env` gives it what is the person's: their ssh agent, which is never forwarded to a node, and
    settings of Ansible.
    """
    program = find_ansible()
    kept = {k: v for k, v in env.items() if k.startswith("ANSIBLE_") or k == "SSH_AUTH_SOCK"}
    # host_vars() forbids it to ~/.ssh/config; after an `ssh_args = -A` of theirs, only -a counts.
    kept[EXTRA] = f"{env.get(EXTRA, '')} -a".strip()
    with (
        inventory_script(inventory_of(tree, nodes)) as inventory,
        TemporaryDirectory(prefix="imagebuilder-ansible-") as folder,
    ):
        files = [playbook.absolute() for playbook in playbooks]
        argv: list[Word] = [program, "--inventory", inventory, "--", *files]
        log = Path(folder) / "log"
        done = run(argv, env=kept, log=log, on_line=lambda line: tell(clean(line)), check=False)
    return done.status
