# SPDX-License-Identifier: Apache-2.0
"""Files that every node needs, and those that have no effect or are refused."""
