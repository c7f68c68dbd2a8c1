# SPDX-License-Identifier: Apache-2.0
"""Reports of boot tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from imagebuilder.cli.context import (
    Call,
    Context,
    option,
    print_json,
    print_table,
    print_text,
    wants_colour,
)
from imagebuilder.cli.names import AsJson, ReleaseName, TreeOption
from imagebuilder.tree import DEFAULT_TREE

if TYPE_CHECKING:
    from imagebuilder.report.types import Report
    from imagebuilder.tree import Tree

STDOUT = Path("-")
HtmlOption = Annotated[
    Path | None, option("Write a self-contained HTML page; - for stdout.", metavar="FILE")
]
JunitOption = Annotated[Path | None, option("Write JUnit XML; - for stdout.", metavar="FILE")]


def report(
    context: Call,
    release: ReleaseName,
    identity: Annotated[
        str,
        option(
            "Show this report instead of the newest; a unique part is enough.", "--id", metavar="ID"
        ),
    ] = "",
    every: Annotated[bool, option("List all reports.", "--all")] = False,
    html: HtmlOption = None,
    junit: JunitOption = None,
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Show the report of the last boot test of a profile or release.

    Exits with 0 whatever the result; only imagebuilder test exits with 1 after a failure.

    Example: imagebuilder report rx7600xt --html report.html
    """
    from imagebuilder.publish.find import open_tree
    from imagebuilder.report.save import find_report

    place = open_tree(tree)
    if every:
        show_all(place, release, context.obj, json=json)
        return
    found = find_report(place, release, identity)
    write_files(place, found, html, junit)
    if json or (html is None and junit is None):
        show_report(place, found, json=json)


def show_report(tree: Tree, found: Report, *, json: bool) -> None:
    from imagebuilder.report.save import report_folder
    from imagebuilder.report.terminal import render_report
    from imagebuilder.report.types import REPORT

    if json:
        print_json(REPORT.encode(found))
    else:
        where = report_folder(tree, found)
        print_text(render_report(found, colour=wants_colour(), place=where))


def show_all(tree: Tree, name: str, common: Context, *, json: bool) -> None:
    """Print the list of reports, with warnings for unreadable ones."""
    from imagebuilder.report.save import list_reports
    from imagebuilder.report.terminal import HEADERS, report_row, report_summary

    found = list_reports(tree, name)
    for fault in found.faults:
        common.ui.warn(f"{fault.where}: {fault.what}")
    if json:
        print_json([report_summary(one) for one in found.reports])
    else:
        rows = [report_row(one) for one in found.reports]
        print_table(rows, HEADERS, empty="no readable reports")


def write_files(tree: Tree, found: Report, html: Path | None, junit: Path | None) -> None:
    """Write the report as files, each complete or not at all; `-` is stdout.  Raises HostError."""
    from imagebuilder.report.junit import render_junit
    from imagebuilder.report.page import render_page
    from imagebuilder.report.save import read_logs, report_folder

    if html is not None:
        write_text(html, render_page(found, read_logs(report_folder(tree, found))))
    if junit is not None:
        write_text(junit, render_junit(found))


def write_text(path: Path, text: str) -> None:
    """Write a file, complete or not at all.  Raises InputError and HostError."""
    from imagebuilder.errors import HostError

    if path == STDOUT:
        print_text(text)
        return
    try:
        write_whole(path, text)
    except OSError as error:
        raise HostError(f"cannot be written: {error.strerror}", where=os.fspath(path)) from error


def write_whole(path: Path, text: str) -> None:
    """Replace or make a file in one step; a special file such as /dev/stdout is written directly.

    Raises InputError for a folder, another user's link in a folder such as /tmp, or if the parent
    folder does not exist, and OSError.
    """
    from imagebuilder.errors import InputError
    from imagebuilder.files import write_file
    from imagebuilder.rights import check_links

    check_links(path, os.environ)
    if path.exists() and not path.is_file() and not path.is_dir():
        path.write_text(text, encoding="utf-8")
        return
    place = path.resolve()  # a symlink stays one
    if place.is_dir():
        raise InputError("is a folder", where=os.fspath(path), hint="name a file in it")
    if not place.parent.is_dir():
        raise InputError(
            "does not exist", where=os.fspath(place.parent), hint="create the folder first"
        )
    write_file(place, text.encode())
