# SPDX-License-Identifier: Apache-2.0
"""The checks that every image has: the test files here run on a root or on a node, not on us."""
