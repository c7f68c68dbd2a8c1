# SPDX-License-Identifier: Apache-2.0
"""Who may become root: every way that the root opens, and whether somebody answers for it."""
