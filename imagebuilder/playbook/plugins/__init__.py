# SPDX-License-Identifier: Apache-2.0
"""Plugins that ansible-playbook loads by their file; see the folders."""
