# SPDX-License-Identifier: Apache-2.0
"""Verify the store, the package pool and the netboot tree, and repair what is damaged."""
