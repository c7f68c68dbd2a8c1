# SPDX-License-Identifier: Apache-2.0
"""What `make test` does with a sample, and `make test-all` whole.

IMAGEBUILDER_TEST_ALL=1, which `make test-all` sets, is the whole.
"""

from __future__ import annotations

import os

ALL = os.environ.get("IMAGEBUILDER_TEST_ALL") == "1"


def times(sample: int, whole: int) -> int:
    """How often something is repeated."""
    return whole if ALL else sample
