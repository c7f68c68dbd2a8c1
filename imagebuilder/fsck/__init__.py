# SPDX-License-Identifier: Apache-2.0
"""Verify what lasts: the store, the package pool, the netboot tree; and repair what is damaged."""
