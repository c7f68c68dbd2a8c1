# SPDX-License-Identifier: Apache-2.0
"""Take out of a root what the nodes of one profile have no use for; runs in the step's sandbox."""
