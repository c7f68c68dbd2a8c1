# SPDX-License-Identifier: Apache-2.0
"""The boot server: what the real daemons are told, and running them."""
