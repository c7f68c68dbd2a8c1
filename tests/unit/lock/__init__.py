# SPDX-License-Identifier: Apache-2.0
"""Tests of the lock: against small signed archives on the loopback, with planted faults."""
