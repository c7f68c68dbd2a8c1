# SPDX-License-Identifier: Apache-2.0
"""The kernel and its modules."""
