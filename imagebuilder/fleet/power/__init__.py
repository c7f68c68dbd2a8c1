# SPDX-License-Identifier: Apache-2.0
"""Switching nodes on and off: one protocol, a module for each way."""
