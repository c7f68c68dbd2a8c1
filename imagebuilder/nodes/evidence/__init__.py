# SPDX-License-Identifier: Apache-2.0
"""Reports of nodes, and what they prove about releases in use."""
