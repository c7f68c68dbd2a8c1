# SPDX-License-Identifier: Apache-2.0
"""Roll-outs: a release reaches one node, then some, then all, or goes back where it failed."""
