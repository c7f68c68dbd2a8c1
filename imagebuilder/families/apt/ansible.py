# SPDX-License-Identifier: Apache-2.0
"""What Ansible finds in a root of Debian or Ubuntu."""

from __future__ import annotations

import re

from imagebuilder.families.protocol import AnsibleSetup
from imagebuilder.sandbox import INSIDE

# No lists of packages: what is not in the root already is not in the lock.
APT_CONF = 'Dir::Etc::sourcelist "/dev/null";\nDir::Etc::sourceparts "/dev/null";\n'
ANSIBLE = AnsibleSetup(
    facts={"os_family": "Debian", "pkg_mgr": "apt"},
    # A suite that is not released yet has no version.
    versions={
        "bookworm": "12", "trixie": "13", "jammy": "22.04", "noble": "24.04", "resolute": "26.04",
    },
    kernel=re.compile(r"linux-image-(?:unsigned-)?(\d.*)"),
    files={"apt.conf": APT_CONF},
    environment={"APT_CONFIG": f"{INSIDE}/ansible/apt.conf"},
)  # fmt: skip
