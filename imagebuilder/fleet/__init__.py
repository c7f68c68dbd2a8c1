# SPDX-License-Identifier: Apache-2.0
"""Running nodes: sets of them, what is known of each, power, and commands over ssh."""
