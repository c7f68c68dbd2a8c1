# SPDX-License-Identifier: Apache-2.0
"""Playbooks of overlays: Ansible runs on the builder, its tasks in the root.

builder      programs of the host and the project, read-only; usually no network
  ansible-playbook with our connection, become and callback plugins
    |  command_socket.py: a connection for each command
root         the step's own sandbox, which exists until the playbook has ended;
             inside/shim.py replaces programs that need a running node
"""
