# SPDX-License-Identifier: Apache-2.0
"""Releases for other places: over ssh, or into a tree on this machine."""
