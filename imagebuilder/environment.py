# SPDX-License-Identifier: Apache-2.0
"""The environment of the programs that are started."""

from __future__ import annotations

import os
import pwd
import sys
from pathlib import Path

# What a program may see of the caller's environment: where to find programs and how to reach
# mirrors.  Locale, time zone and umask are fixed, because outputs depend on them.
PASSED_ON = (
    "PATH", "HOME", "TERM", "TMPDIR",
    "http_proxy", "https_proxy", "ftp_proxy", "no_proxy",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
)  # fmt: skip
FIXED = {"LC_ALL": "C.UTF-8", "TZ": "UTC"}
# After sys.executable: this program, and nothing of the folder that it is started in.
OWN_MODULE = ("-P", "-m", "imagebuilder.cli.main")
SBIN = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def base_environment() -> dict[str, str]:
    """The allow-listed environment of a program on the host."""
    env = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    env["PATH"] = f"{env['PATH']}:{SBIN}" if env.get("PATH") else SBIN
    if sys.dont_write_bytecode:
        env["PYTHONDONTWRITEBYTECODE"] = "1"
    if os.geteuid() == 0:
        env["HOME"] = root_home(env.get("HOME", ""))
    return env | FIXED


def root_home(home: str) -> str:
    """Where programs of root keep what they keep: not in the home of somebody else."""
    try:
        owner = Path(home).stat().st_uid
    except OSError:
        owner = 0
    return home if home and owner == 0 else pwd.getpwuid(0).pw_dir
