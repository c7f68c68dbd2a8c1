# SPDX-License-Identifier: Apache-2.0
"""The checks of every image: test files that run on a root or on a node."""
