# SPDX-License-Identifier: Apache-2.0
"""Checks: the testinfra tests of overlays and the common set, run on a root or on a node."""
