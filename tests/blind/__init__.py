# SPDX-License-Identifier: Apache-2.0
"""Faults and unusual images written without a look at the checks: how many are told apart."""
