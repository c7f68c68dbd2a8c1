# SPDX-License-Identifier: Apache-2.0
"""Package managers and the distributions they make: one folder each, behind one protocol."""
