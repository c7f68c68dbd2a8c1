# SPDX-License-Identifier: Apache-2.0
"""Debian and Ubuntu: the only code that knows apt, dpkg and their files."""
