# SPDX-License-Identifier: Apache-2.0
"""Publish releases to other places: over ssh, or into a tree on this machine."""
