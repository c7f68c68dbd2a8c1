# SPDX-License-Identifier: Apache-2.0
"""The network of a node: its NICs, names, and what filters packets."""
