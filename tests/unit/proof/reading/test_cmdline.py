# SPDX-License-Identifier: Apache-2.0
"""The kernel's command line is read as the kernel and systemd read it."""

from __future__ import annotations

import pytest

from imagebuilder.proof.reading.config import kernel_words


@pytest.mark.parametrize(
    ("text", "key", "value", "on"),
    [
        ("quiet", "quiet", "", True),
        ("systemd.debug-shell", "systemd.debug_shell", "", True),
        ("module.sig-enforce=Y", "module.sig_enforce", "Y", True),
        ("module.sig_enforce=N", "module.sig_enforce", "N", False),
        ("systemd.debug_shell=off", "systemd.debug_shell", "off", False),
        ("sysctl.net.ipv4.conf.br-0.rp_filter=1", "sysctl.net.ipv4.conf.br-0.rp_filter", "1", True),
        ("root=live:http://a/b=c-d", "root", "live:http://a/b=c-d", True),
    ],
)
def test_words_have_one_spelling(text: str, key: str, value: str, *, on: bool) -> None:
    (word,) = kernel_words([text])
    assert (word.key, word.value, word.on, word.evidence.said) == (key, value, on, text)
