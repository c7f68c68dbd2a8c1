# SPDX-License-Identifier: Apache-2.0
"""What a playbook needs on a node is there, and what it left behind is not."""

from __future__ import annotations

import pytest
from testinfra.host import Host

from imagebuilder.checks.facts import Facts

PLACES = "/root /home /opt /srv /var/tmp /tmp"


def packages_of(facts: Facts) -> str:
    """The Python package that Ansible's module for packages needs."""
    return "apt" if facts.image.distribution in ("debian", "ubuntu") else "dnf"


@pytest.mark.static
def test_modules_can_run(host: Host, facts: Facts) -> None:
    name = packages_of(facts)
    found = host.run(f"/usr/bin/python3 -c 'import {name}'")
    assert found.rc == 0, f"Ansible's {name} module cannot run: python3-{name} is missing or broken"


@pytest.mark.static
def test_nothing_of_a_run_is_left(host: Host) -> None:
    found = host.check_output(
        f"find {PLACES} -maxdepth 3 -name '.ansible*' -o -name 'ansible-tmp-*'"
    )
    assert not found, "a playbook has left files behind: they are of no use on a node"


@pytest.mark.boot
def test_ansible_can_go_on(host: Host, facts: Facts) -> None:
    """Over ssh, as `ansible-playbook` would: a module is Python that runs from a place in /tmp."""
    module = f"import {packages_of(facts)}, tempfile; tempfile.mkdtemp()"
    found = host.run(f"/usr/bin/python3 -c '{module}'")
    assert found.rc == 0, f"Ansible's modules cannot run: {found.stderr}"
