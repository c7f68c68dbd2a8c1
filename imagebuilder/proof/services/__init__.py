# SPDX-License-Identifier: Apache-2.0
"""What the profile's services run with, after systemd has merged their units."""
