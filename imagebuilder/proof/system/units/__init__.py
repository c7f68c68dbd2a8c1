# SPDX-License-Identifier: Apache-2.0
"""What systemd starts, and settings of its manager and units."""
