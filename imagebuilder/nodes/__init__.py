# SPDX-License-Identifier: Apache-2.0
"""The machines that boot: who they are, what they boot, and the files that are theirs alone."""
