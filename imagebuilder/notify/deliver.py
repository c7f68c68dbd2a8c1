# SPDX-License-Identifier: Apache-2.0
"""A program that posts one message, or gives one mail to a server: `python -m` with JSON on stdin.

It prints what went wrong and ends with TRY_LATER if a later try may succeed, else with 1.  The
address may hold a token: nothing that is printed shows more of it than the host.  What libraries
say on stderr may, and is shown to nobody.
"""

from __future__ import annotations

import json
import resource
import smtplib
import socket
import sys
from email import message_from_string
from email.policy import SMTP
from urllib.parse import urlsplit

from imagebuilder.errors import why

TRY_LATER = 75  # EX_TEMPFAIL of sysexits(3)
SMTP_PORT = 25
MEMORY = 256 << 20  # bytes
SECONDS = 15.0  # for each answer; whoever started this limits the whole


class DeliveryError(Exception):
    """What went wrong, and whether to try again."""

    def __init__(self, what: str, *, retry: bool) -> None:
        super().__init__(what)
        self.retry = retry


def main() -> int:
    order: dict[str, str] = json.loads(sys.stdin.buffer.read())
    limit_memory()
    try:
        if "relay" in order:
            send_to_relay(order["mail"], order["relay"])
        else:
            post(order["address"], order["id"], order["body"])
    except DeliveryError as error:
        print(error)
        return TRY_LATER if error.retry else 1
    except MemoryError:
        print("its answer is too long")
        return TRY_LATER
    return 0


def limit_memory() -> None:
    """smtplib keeps the lines of an answer without end.  A limit that is lower already stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = min((value for value in (soft, hard) if value != resource.RLIM_INFINITY), default=MEMORY)
    resource.setrlimit(resource.RLIMIT_DATA, (min(most, MEMORY), hard))


def post(address: str, id: str, body: str) -> None:  # noqa: A002
    """Post JSON.  Redirects are not followed.  Raises DeliveryError."""
    import requests
    from urllib3.exceptions import HTTPError

    host = find_host(address) or "its address"
    headers = {"Content-Type": "application/json", "Idempotency-Key": id}
    try:
        with requests.post(
            address, data=body.encode(), headers=headers, timeout=SECONDS, allow_redirects=False,
            stream=True,
        ) as answer:  # fmt: skip
            status = answer.status_code
    except requests.Timeout:
        raise DeliveryError(f"{host}: did not answer within {SECONDS:.0f} s", retry=True) from None
    except (requests.ConnectionError, requests.exceptions.ChunkedEncodingError) as error:
        raise DeliveryError(f"{host}: is not reachable: {why(error)}", retry=True) from None
    except (requests.RequestException, HTTPError, OSError, ValueError) as error:
        what = f"{host}: cannot be asked: {type(error).__name__}"
        raise DeliveryError(what, retry=False) from None
    if not 200 <= status < 300:
        raise DeliveryError(f"{host}: answers {status}", retry=status >= 500 or status == 429)


def find_host(address: str) -> str:
    """The host in a URL, "" where there is none."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def send_to_relay(mail: str, relay: str) -> None:
    """Give a mail to a server.  Raises DeliveryError."""
    message = message_from_string(mail, policy=SMTP)
    try:
        host, port = split_relay(relay)
        # Our own name as it is: finding the whole one can take a resolver half a minute.
        with smtplib.SMTP(host, port, socket.gethostname(), SECONDS) as server:
            refused = server.send_message(message)
    except smtplib.SMTPRecipientsRefused as error:
        refused = error.recipients
    except smtplib.SMTPResponseException as error:
        said = error.smtp_error
        words = said.decode(errors="replace") if isinstance(said, bytes) else said
        what = f"{relay}: answers {error.smtp_code} {words}"
        raise DeliveryError(what, retry=error.smtp_code < 500) from None
    except TimeoutError:
        raise DeliveryError(f"{relay}: did not answer within {SECONDS:.0f} s", retry=True) from None
    except ValueError:
        raise DeliveryError(f"{relay}: is not a mail server", retry=False) from None
    except (smtplib.SMTPException, OSError) as error:
        what = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise DeliveryError(f"{relay}: did not accept the message: {what}", retry=True) from None
    if refused:
        named = ", ".join(f"{who} ({code})" for who, (code, _) in sorted(refused.items()))
        raise DeliveryError(f"{relay}: did not accept the message for {named}", retry=False)


def split_relay(relay: str) -> tuple[str, int]:
    """Host and port of `HOST`, `HOST:PORT`, `[ADDRESS]:PORT`.  Raises ValueError."""
    parts = urlsplit(f"//{relay}")
    return parts.hostname or "", parts.port or SMTP_PORT


if __name__ == "__main__":
    sys.exit(main())
