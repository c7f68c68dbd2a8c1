# SPDX-License-Identifier: Apache-2.0
"""Live systems of distributions, booted over the network into memory: a folder for each."""
