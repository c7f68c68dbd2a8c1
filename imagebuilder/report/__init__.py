# SPDX-License-Identifier: Apache-2.0
"""Reports: what a boot test of a release found, kept beside the release."""
