# SPDX-License-Identifier: Apache-2.0
"""Who can log in, and within which limits: accounts, sshd, PAM, fail2ban."""
