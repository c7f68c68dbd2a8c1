# SPDX-License-Identifier: Apache-2.0
"""The kernel among the files of packages."""

from __future__ import annotations

import pytest

from imagebuilder.errors import InputError
from imagebuilder.families.kernel import release_among

DEBIAN = "/boot/vmlinuz-6.12.107-amd64\n/usr/share/doc/vmlinuz-1\n"
ENTERPRISE = "/boot/vmlinuz-5.14.0-687.el9.x86_64\n/lib/modules/5.14.0-687.el9.x86_64/vmlinuz\n"
OTHERS = "/usr/lib/modules/6.12.107-amd64/kernel/vmlinuz\n/usr/lib/modules/6.12.107-amd64/vmlinuz\n"


@pytest.mark.parametrize(
    ("listed", "release"),
    [
        (DEBIAN, "6.12.107-amd64"),
        (OTHERS, "6.12.107-amd64"),
        (f"{DEBIAN}{OTHERS}", "6.12.107-amd64"),
        (ENTERPRISE, "5.14.0-687.el9.x86_64"),
    ],
)
def test_one_kernel(listed: str, release: str) -> None:
    assert release_among(listed, "kernel") == release


@pytest.mark.parametrize(
    ("listed", "said"),
    [
        ("/usr/bin/sh\n", "the package kernel installs 0 kernels"),
        (f"{DEBIAN}{ENTERPRISE}", "2 kernels: 5.14.0-687.el9.x86_64, 6.12.107-amd64"),
    ],
)
def test_none_or_several(listed: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        release_among(listed, "kernel")
