# SPDX-License-Identifier: Apache-2.0
"""Whether a node starts, is reachable and usable: units, network, names, accounts."""
