"""What must be true of every node with this overlay."""

import pytest
from testinfra.host import Host


# `static` tests read the root of the image; `boot` tests run on a booted node, over ssh.
@pytest.mark.static
@pytest.mark.boot
def test_login_shells_have_our_settings(host: Host) -> None:
    assert host.file("/etc/profile.d/my-tools.sh").contains("LESS=-R")
