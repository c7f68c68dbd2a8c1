# SPDX-License-Identifier: Apache-2.0
"""The boot server: configure and run the daemons that nodes boot from."""
