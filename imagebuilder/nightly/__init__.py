# SPDX-License-Identifier: Apache-2.0
"""A nightly run: every profile from its lock to its channel, the result, and who is notified."""
