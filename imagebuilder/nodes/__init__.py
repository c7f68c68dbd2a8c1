# SPDX-License-Identifier: Apache-2.0
"""Nodes: the machines that boot, what they boot, and their own files."""
