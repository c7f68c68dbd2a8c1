# SPDX-License-Identifier: Apache-2.0
"""What a playbook needs on a node is there, and what it left behind is not."""

from __future__ import annotations

import pytest
from testinfra.host import Host

PLACES = "/root /home /opt /srv /var/tmp /tmp"


@pytest.mark.static
def test_modules_can_run(host: Host) -> None:
    found = host.run("/usr/bin/python3 -c 'import apt'")
    assert found.rc == 0, "Ansible's apt module cannot run: python3-apt is missing or broken"


@pytest.mark.static
def test_nothing_of_a_run_is_left(host: Host) -> None:
    found = host.check_output(
        f"find {PLACES} -maxdepth 3 -name '.ansible*' -o -name 'ansible-tmp-*'"
    )
    assert not found, "a playbook has left files behind: they are of no use on a node"


@pytest.mark.boot
def test_ansible_can_go_on(host: Host) -> None:
    """Over ssh, as `ansible-playbook` would: a module is Python that runs from a place in /tmp."""
    found = host.run("/usr/bin/python3 -c 'import apt, tempfile; tempfile.mkdtemp()'")
    assert found.rc == 0, f"Ansible's modules cannot run: {found.stderr}"
