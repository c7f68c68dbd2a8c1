# SPDX-License-Identifier: Apache-2.0
"""The pages of releases, and of what boot tests found."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request

from imagebuilder.errors import InputError
from imagebuilder.publish.listing import ListedRelease
from imagebuilder.report.page import render_page
from imagebuilder.report.save import load_report, names, read_logs, read_reports
from imagebuilder.report.types import Report
from imagebuilder.report.words import headline
from imagebuilder.web.api import AbsentError, find_listed
from imagebuilder.web.detail import ReleaseDetail
from imagebuilder.web.render import show_page
from imagebuilder.web.site import WebSite
from imagebuilder.web.snapshot import WebSnapshot


@dataclass(frozen=True)
class ReleaseRow:
    listed: ListedRelease
    detail: ReleaseDetail


@dataclass(frozen=True)
class ProfileReleases:
    """The releases of a profile, the newest first."""

    profile: str
    rows: tuple[ReleaseRow, ...]


@dataclass(frozen=True)
class ReportRow:
    report: Report
    headline: str


def find_profiles(snapshot: WebSnapshot) -> list[ProfileReleases]:
    found: dict[str, list[ReleaseRow]] = {}
    for listed in snapshot.releases:
        row = ReleaseRow(listed, snapshot.details[listed.release])
        found.setdefault(listed.release.profile, []).insert(0, row)
    return [ProfileReleases(name, tuple(rows)) for name, rows in found.items()]


def releases_page(site: WebSite, request: Request) -> bytes:
    """Every release, by profile."""
    del request
    snapshot = site.snapshot
    profiles = find_profiles(snapshot)
    return show_page(site, snapshot, "releases.html.j2", here="/releases", profiles=profiles)


def release_page(site: WebSite, request: Request) -> bytes:
    """A release.  Raises AbsentError."""
    snapshot, listed = site.snapshot, find_listed(site, request)
    found = read_reports(site.tree.reports(listed.release))
    return show_page(
        site,
        snapshot,
        "release.html.j2",
        here="/releases",
        listed=listed,
        detail=snapshot.details[listed.release],
        reports=[ReportRow(report, headline(report)) for report in reversed(found.reports)],
        faults=found.faults,
    )


def report_page(site: WebSite, request: Request) -> bytes:
    """The page of a boot test, as `report --html` writes it.  Raises AbsentError."""
    top = site.tree.reports(find_listed(site, request).release)
    name = request.path_params["id"]
    if name not in names(top):
        raise AbsentError(f"no boot test {name!r} of this release")
    try:
        report = load_report(top / name)
    except InputError as error:
        raise AbsentError(str(error)) from error
    return render_page(report, read_logs(top / name)).encode(errors="replace")
