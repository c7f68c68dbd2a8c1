# SPDX-License-Identifier: Apache-2.0
"""Thirty nights of a tiny distribution that changes, with faults: what `nightly` must survive."""
