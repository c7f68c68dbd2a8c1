# SPDX-License-Identifier: Apache-2.0
"""A BMC that speaks IPMI over LAN at 127.0.0.1:9623, which ipmi_sim plays."""

from __future__ import annotations

from pathlib import Path

from imagebuilder.process import Word

LAN = """\
name "{name}"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 9623
    priv_limit admin
    allowed_auths_admin none md2 md5 straight
    guid a123456789abcdefa123456789abcdef
  endlan
  {more}
  user 2 true  "admin" "{password}" admin 10 none md2 md5 straight
"""
EMULATED = """\
mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
mc_enable 0x20
"""


def make_bmc(folder: Path, name: str, password: str, more: str) -> list[Word]:
    """The command of node `name`'s BMC; `more` says what it controls (ipmi_lan(5))."""
    lan, emulated = folder / "lan.conf", folder / "emu"
    lan.write_text(LAN.format(name=name, password=password, more=more))
    emulated.write_text(EMULATED)
    return ["ipmi_sim", "-c", lan, "-f", emulated, "-n", "-s", folder]
