# SPDX-License-Identifier: Apache-2.0
"""The origin of every path of a root: a package, a file of an overlay, a step, or unknown."""
