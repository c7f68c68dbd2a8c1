# SPDX-License-Identifier: Apache-2.0
"""Certificates of authorities that a site adds."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from datetime import UTC, datetime

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY

# Where programs look for them (containers-certs.d(5), update-ca-certificates(8)).
AUTHORITIES = (
    "/etc/containers/certs.d/*/*.crt", "/etc/docker/certs.d/*/*.crt",
    "/etc/containerd/certs.d/*/*.crt", "/usr/local/share/ca-certificates/*.crt",
    "/usr/local/share/ca-certificates/*/*.crt", "/etc/ssl/certs/*.crt", "/etc/pki/*/*.crt",
    "/etc/pki/*/*.pem",
)  # fmt: skip
MOST_BYTES = 4 << 20  # of such a file


def prove_authorities(subject: Subject) -> Iterator[Finding]:
    """Warnings of files of the site whose certificates of authorities had all expired when the
    packages of the image were chosen.
    """
    for path in (path for pattern in AUTHORITIES for path in subject.root.glob(pattern)):
        dates = [] if path in subject.shipped else ends_of(subject.root.text(path))
        if dates and max(dates) < subject.image.epoch:
            day = f"{datetime.fromtimestamp(max(dates), UTC):%Y-%m-%d}"
            what = f"the certificate of an authority in {path} expired on {day}: connections to "
            what += "servers that it vouches for fail"
            yield SAY.warning(what, Evidence(path), hint="replace it, or remove the file")


def ends_of(text: str) -> list[float]:
    """When the certificates of authorities in a PEM file expire, in seconds since 1970."""
    if "BEGIN CERTIFICATE" not in text or len(text) > MOST_BYTES:
        return []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=text)
        ends = [one.get("notAfter") for one in context.get_ca_certs()]
        return [ssl.cert_time_to_seconds(end) for end in ends if isinstance(end, str)]
    except (ssl.SSLError, ValueError):
        return []
