# SPDX-License-Identifier: Apache-2.0
"""What a finished root says of its sources."""

from __future__ import annotations

SOURCES = """\
# This root is immutable: packages are added in its recipe, not on the node.
# Its exact packages and the suites they are from are in the image's manifest.
"""
FINALISE = f"""\
mkdir -p /etc/apt
cat > /etc/apt/sources.list <<'END'
{SOURCES}END
"""
