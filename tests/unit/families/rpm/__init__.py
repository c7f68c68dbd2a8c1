# SPDX-License-Identifier: Apache-2.0
"""Tests of RPMs: small repositories and databases, with planted faults."""
