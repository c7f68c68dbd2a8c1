# SPDX-License-Identifier: Apache-2.0
"""A night: every profile from its lock to its channel, what came of it, and who is told."""
