# SPDX-License-Identifier: Apache-2.0
"""ssh opens to keys only, and the image holds no host key."""

from __future__ import annotations

import pytest
from testinfra.host import Host

from imagebuilder.checks.facts import Facts

HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
# Such a release (bookworm) prints its settings only where it could run.
BEFORE_9_3 = (
    "mkdir -p /run/sshd; [ -e /tmp/key ] || ssh-keygen -q -N '' -t ed25519 -f /tmp/key; "
    "/usr/sbin/sshd -T -h /tmp/key"
)
SETTINGS = (
    "passwordauthentication no",
    "kbdinteractiveauthentication no",
    "permitemptypasswords no",
    "pubkeyauthentication yes",
    "x11forwarding no",
    f"hostkey {HOST_KEY}",
)


@pytest.fixture(scope="module")
def settings(host: Host) -> list[str]:
    """What sshd is set to."""
    # Newer releases print keywords in mixed case, and the other name of without-password.
    said = host.check_output(f"/usr/sbin/sshd -G || {{ {BEFORE_9_3}; }}").lower()
    return said.replace("without-password", "prohibit-password").splitlines()


@pytest.mark.static
@pytest.mark.parametrize("setting", SETTINGS)
def test_sshd_is_set(settings: list[str], setting: str) -> None:
    assert setting in settings


@pytest.mark.static
def test_root_has_no_password(settings: list[str]) -> None:
    allowed = [f"permitrootlogin {how}" for how in ("prohibit-password", "forced-commands-only")]
    assert set(settings) & {*allowed, "permitrootlogin no"}


@pytest.mark.static
def test_sshd_reads_the_keys(settings: list[str]) -> None:
    files = next(line.split()[1:] for line in settings if line.startswith("authorizedkeysf"))
    assert files[0] == "/etc/ssh/authorized_keys"


@pytest.mark.static
def test_somebody_can_log_in(host: Host) -> None:
    keys = host.file("/etc/ssh/authorized_keys")
    assert (keys.user, keys.group, keys.mode) == ("root", "root", 0o644)
    listed = host.check_output("ssh-keygen -l -f /etc/ssh/authorized_keys").splitlines()
    assert listed
    assert len(listed) == len(keys.content_string.splitlines())


@pytest.mark.static
def test_no_host_key_is_in_the_image(host: Host) -> None:
    assert host.check_output("find /etc/ssh -name '*host*key*'") == ""


def server_of(facts: Facts) -> str:
    """The name of the server's service."""
    return "ssh" if facts.image.distribution in ("debian", "ubuntu") else "sshd"


@pytest.mark.static
def test_units_are_set(host: Host, facts: Facts) -> None:
    units = "/etc/systemd/system"
    if server_of(facts) == "ssh":
        assert host.file(f"{units}/sshd-keygen.service").linked_to == "/dev/null"
        assert host.file(f"{units}/ssh.service.requires/ssh-host-key.service").is_symlink
    else:
        assert host.file(f"{units}/sshd-keygen.target").linked_to == "/dev/null"
        drop_in = host.file(f"{units}/sshd.service.d/50-host-key.conf").content_string
        assert "Requires=ssh-host-key.service" in drop_in


@pytest.mark.boot
def test_sshd_listens(host: Host, facts: Facts) -> None:
    assert host.service(server_of(facts)).is_running
    assert host.socket("tcp://0.0.0.0:22").is_listening


@pytest.mark.boot
def test_the_node_has_one_host_key(host: Host) -> None:
    key = host.file(HOST_KEY)
    assert (key.user, key.mode) == ("root", 0o600)
    assert host.check_output("find /etc/ssh -name 'ssh_host_*_key'") == HOST_KEY
    assert host.check_output(f"ssh-keygen -l -f {HOST_KEY}.pub").endswith("(ED25519)")
