# SPDX-License-Identifier: Apache-2.0
"""Programs that are copied into the root while a playbook runs; the standard library only."""
