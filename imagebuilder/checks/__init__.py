# SPDX-License-Identifier: Apache-2.0
"""Checks: the testinfra tests of overlays and the common ones, run on a root or on a node."""
