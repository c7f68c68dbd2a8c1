# SPDX-License-Identifier: Apache-2.0
"""A report as JUnit XML for CI systems: a suite for the static checks and one for every machine.

The stages of a machine are test cases too, so that the CI system names the stage that failed.
"""

from __future__ import annotations

from xml.etree import ElementTree

from imagebuilder.report.timeline import find_failed, find_spans
from imagebuilder.report.types import (
    Check,
    MachineReport,
    Outcome,
    Report,
    Stage,
    Trial,
    TrialVerdict,
)
from imagebuilder.report.words import headline
from imagebuilder.untrusted import clean_lines

STAGES = "stages"


def render_junit(report: Report) -> str:
    """The whole report as an XML document."""
    top = element(None, "testsuites", name=f"imagebuilder test {report.name}")
    if report.static:
        checks = suite(top, report, "static", sum(check.seconds for check in report.static))
        add_checks(checks, report.static)
        close(checks)
    for trial in report.trials:
        # Without a machine, only the verdict of the trial exists.
        for machine in trial.machines or (None,):
            name = f"{trial.firmware}+{trial.root}" + (f" {machine.name}" if machine else "")
            part = suite(top, report, name, trial.seconds)
            add_stages(part, trial, machine)
            if machine:
                add_checks(part, machine.checks)
            close(part)
    for key in ("tests", "failures", "skipped", "errors"):
        top.set(key, str(sum(int(part.get(key, "0")) for part in top)))
    top.set("time", f"{report.seconds:.3f}")
    ElementTree.indent(top)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(top, "unicode") + "\n"


def element(
    parent: ElementTree.Element | None, tag: str, text: str = "", **attributes: str
) -> ElementTree.Element:
    """Add an element to `parent`; XML does not allow most control characters."""
    clean = {name: clean_lines(value) for name, value in attributes.items()}
    if parent is None:
        made = ElementTree.Element(tag, clean)
    else:
        made = ElementTree.SubElement(parent, tag, clean)
    made.text = clean_lines(text) or None
    return made


def suite(
    top: ElementTree.Element, report: Report, name: str, seconds: float
) -> ElementTree.Element:
    """A suite without cases yet, with the facts of the report as properties."""
    part = element(
        top, "testsuite", name=name, time=f"{seconds:.3f}", timestamp=report.started[:19],
        hostname=report.host,
    )  # fmt: skip
    properties = element(part, "properties")
    found = {
        "release": report.name,
        "report": report.id,
        "verdict": headline(report),
        "acceleration": report.acceleration,
        "degraded": str(report.degraded).lower(),
        **{f"digest.{key}": value for key, value in report.digests.items()},
    }
    for key, value in found.items():
        element(properties, "property", name=key, value=value)
    return part


def add_stages(part: ElementTree.Element, trial: Trial, machine: MachineReport | None) -> None:
    """Add a case for each passed stage and for the failed one."""
    spans = find_spans(machine) if machine else ()
    failed = not trial.verdict.passed and (machine is None or machine in find_failed(trial))
    for span in spans:
        if not (failed and span.stage is trial.verdict.stage):
            case(part, STAGES, span.stage, span.seconds)
    if failed:
        add_failure(part, trial.verdict)


def add_failure(part: ElementTree.Element, verdict: TrialVerdict) -> None:
    """Add the failure to its case, with evidence and hint."""
    bad = case(part, STAGES, verdict.stage or "boot", 0.0)
    hint = (f"hint: {verdict.hint}",) if verdict.hint else ()
    log = (f"log: {verdict.log}",) if verdict.log else ()
    text = "\n".join((*verdict.evidence, *hint, *log))
    element(bad, "failure", text, message=verdict.what, type=verdict.stage or "boot")


def add_checks(part: ElementTree.Element, checks: tuple[Check, ...]) -> None:
    for check in checks:
        made = case(part, f"{check.kind}.{check.group}", check.name, check.seconds)
        first = check.message.partition("\n")[0]
        if check.outcome is Outcome.FAILED:
            element(made, "failure", check.message, message=first, type="check")
        elif check.outcome is Outcome.SKIPPED:
            element(made, "skipped", message=first)


def case(
    part: ElementTree.Element, group: str, name: str | Stage, seconds: float
) -> ElementTree.Element:
    """Add a test case.  Its class contains the suite's name, because CI systems show only that."""
    where = f"{part.get('name', '')}.{group}"
    return element(part, "testcase", classname=where, name=str(name), time=f"{seconds:.3f}")


def close(part: ElementTree.Element) -> None:
    part.set("tests", str(len(part.findall("testcase"))))
    part.set("failures", str(len(part.findall("testcase/failure"))))
    part.set("skipped", str(len(part.findall("testcase/skipped"))))
    part.set("errors", "0")
