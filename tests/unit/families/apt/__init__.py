# SPDX-License-Identifier: Apache-2.0
"""Tests of apt and dpkg: small databases and archives, with planted faults."""
