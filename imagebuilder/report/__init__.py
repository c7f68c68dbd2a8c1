# SPDX-License-Identifier: Apache-2.0
"""Reports: the results of boot tests, stored beside the release."""
