# SPDX-License-Identifier: Apache-2.0
"""Where the program starts and ends: a signal during either stops it without a traceback.

Imports only what Python itself has loaded or loads in milliseconds: all the rest takes a third of a
second, in which people notice a typing mistake and press Ctrl-C.
"""

import os
import signal
import sys

STOPPED = 130
STOPPING = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)


def main() -> None:
    """Run the program; exits with what `program.run()` returns."""
    leave_on_signals()
    from imagebuilder.cli.program import run

    try:
        status = run()
    finally:
        leave_on_signals()
    sys.exit(status)


def leave_on_signals() -> None:
    """Let a signal end this process at once; for the times when there is nothing to undo.

    An exception would be printed, or swallowed by a library that tries to import another one.
    """
    for number in STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, leave)


def leave(number: int, frame: object) -> None:
    del number, frame
    os._exit(STOPPED)


if __name__ == "__main__":
    main()
