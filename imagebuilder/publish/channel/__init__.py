# SPDX-License-Identifier: Apache-2.0
"""Channels: which release nodes get, and what a release needs to become stable."""
