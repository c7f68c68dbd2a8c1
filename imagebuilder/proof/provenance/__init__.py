# SPDX-License-Identifier: Apache-2.0
"""Where every path of a root is from: a package, a file of an overlay, a step, or nobody knows."""
