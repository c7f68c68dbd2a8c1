# SPDX-License-Identifier: Apache-2.0
"""What the files of a root say: facts for which several questions ask, and no findings."""
