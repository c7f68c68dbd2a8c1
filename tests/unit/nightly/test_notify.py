# SPDX-License-Identifier: Apache-2.0
"""What receivers are told of a night."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from imagebuilder.errors import InputError
from imagebuilder.nightly.exclusive import find_killed
from imagebuilder.nightly.history import LATEST, find_latest
from imagebuilder.nightly.message import headline
from imagebuilder.nightly.notify import find_kind, notify_run
from imagebuilder.nightly.run import RunRecord
from imagebuilder.nightly.save import save_run
from imagebuilder.nightly.site import find_report_folder, load_nightly
from imagebuilder.nightly.types import Ending, NightlyRun, NightlyStage
from imagebuilder.notify.receivers import find_receivers, load_notify, make_mail
from imagebuilder.notify.send import notifying
from imagebuilder.notify.types import Message
from imagebuilder.recipe.model import SiteFile
from imagebuilder.recipe.model_nightly import NightlyModel
from imagebuilder.recipe.model_notify import MailModel, NotifyModel
from imagebuilder.recipe.positions import load_document
from imagebuilder.recipe.validate import parse_model
from imagebuilder.settings import load_settings
from imagebuilder.tree import make_tree
from imagebuilder.ui import Ui
from tests.unit.nightly.samples import FIRST, HOSTILE, failed, make_nights, night, unchanged

TOKEN = "T0KEN-nobody-may-see"
FAILED = night(unchanged(), failed("rx7600xt", NightlyStage.TEST, stable="1"))


@pytest.mark.parametrize(
    ("one", "kind"),
    [
        (night(unchanged()), "nightly-unchanged"),
        (night(unchanged(), replace(unchanged("x"), ending=Ending.PROMOTED)), "nightly-changed"),
        (night(replace(unchanged(), warnings=("the lock was not refreshed",))), "nightly-changed"),
        (replace(night(unchanged()), warnings=("nothing was committed",)), "nightly-changed"),
        (FAILED, "nightly-failed"),
        (night(unchanged(), finished=False), "nightly-failed"),
    ],
    ids=["unchanged", "promoted", "warned", "night-warned", "failed", "unfinished"],
)
def test_kinds(one: NightlyRun, kind: str) -> None:
    assert find_kind(one, after_kill=False) == kind


def test_a_night_that_was_killed_is_told_of_by_the_next(tmp_path: Path) -> None:
    def killed(started: datetime) -> bool:
        """Whether a quiet night tells of one before; it is saved."""
        quiet = night(unchanged(), started=started)
        found = find_killed(tmp_path, find_latest(tmp_path), quiet.id)
        save_run(quiet, tmp_path)
        wanted = "nightly-failed" if found else "nightly-unchanged"
        assert find_kind(quiet, after_kill=found is not None) == wanted
        return found is not None

    day = timedelta(days=1)
    assert not killed(FIRST)
    save_run(night(unchanged(), finished=False, started=FIRST + 5 * day), tmp_path)
    assert killed(FIRST + day), "the clock was set back"
    assert not killed(FIRST + 2 * day)
    latest = (tmp_path / LATEST).read_bytes()
    save_run(night(finished=False, started=FIRST + 6 * day), tmp_path)
    (tmp_path / LATEST).write_bytes(latest)
    assert killed(FIRST + 7 * day), "killed before latest.json was written"
    assert not killed(FIRST + 8 * day)


def test_a_night_is_not_finished_before_its_message_is_written_down(tmp_path: Path) -> None:
    began = night(unchanged(), finished=False)
    record = RunRecord(began, tmp_path, make_tree(tmp_path / "tree"), Ui(io.StringIO()))
    record.after_kill = True
    seen: list[tuple[bool, bool, bool]] = []

    def tell(run: NightlyRun, *, after_kill: bool) -> None:
        saved = find_latest(tmp_path)
        assert saved is not None
        seen.append((saved.finished, run.finished, after_kill))

    record.finish(tell)
    assert seen == [(False, True, True)]
    saved = find_latest(tmp_path)
    assert saved is not None
    assert saved.finished


def test_headlines() -> None:
    done = [failed(name, NightlyStage.LOCK) for name in "abcde"]
    for one, said in (
        (FAILED, "1 of 2 profiles failed (rx7600xt at test)"),
        (night(*done), "5 of 5 profiles failed (a at lock, b at lock, c at lock, 2 more)"),
        (night(unchanged()), "1 profile unchanged"),
        (night(), "no profiles"),
        (night(unchanged(), finished=False, planned=2), "1 of 3 profiles done"),
        (
            night(unchanged(), replace(unchanged("x"), ending=Ending.PROMOTED)),
            "2 profiles: 1 promoted, 1 unchanged",
        ),
    ):
        assert headline(one) == said


def program(folder: Path, *kinds: str) -> NotifyModel:
    """A receiver that keeps what it is sent."""
    words = ["sh", "-c", f"cat >> {folder}/got"]
    return NotifyModel.model_validate({"to": {"r": {"exec": words, "kinds": [*kinds]}}})


def test_a_receiver_gets_the_night(tmp_path: Path) -> None:
    site = program(tmp_path, "nightly-failed")
    with notifying(find_receivers(site, {}), pytest.fail) as notifier:
        notify_run(FAILED, tmp_path, notifier)
        notify_run(night(unchanged()), tmp_path, notifier)
    (line,) = (tmp_path / "got").read_text().splitlines()
    body = json.loads(line)
    assert body["text"] == "imagebuilder: 1 of 2 profiles failed (rx7600xt at test)"
    assert (body["topic"], body["kinds"]) == ("nightly", ["nightly-failed"])
    assert body["nightly"]["failed"] is True
    assert body["nightly"]["report"] == f"{tmp_path}/nights/{FAILED.id}.html"
    assert body["nightly"]["profiles"][1]["what"].startswith("failed in stage root")


def catch(one: NightlyRun, folder: Path) -> Message:
    """The message that is sent about a night."""
    caught: list[Message] = []

    class Catcher:
        def send(self, make: Callable[[object], Message | None]) -> None:
            class Anybody:
                def wants(self, _: str) -> bool:
                    return True

            if message := make(Anybody()):
                caught.append(message)

    notify_run(one, folder, Catcher())  # type: ignore[arg-type]
    return caught[0]


def test_a_mail_about_a_night(tmp_path: Path) -> None:
    one = replace(make_nights(1)[0], warnings=("Größe: zu klein",))
    made = make_mail(MailModel(to=["root"]), catch(one, tmp_path))
    assert made["Subject"] == f"imagebuilder: {headline(one)}"
    text = made.get_content()
    assert "Größe: zu klein" in text
    assert f"{tmp_path}/nights/{one.id}.html" in text
    assert "From security pockets" in text


def test_text_of_strangers_stays_text(tmp_path: Path) -> None:
    fault = replace(FAILED.profiles[1], profile=f"x{HOSTILE}\r\nBcc: evil@example.org")
    made = make_mail(MailModel(to=["a@b"]), catch(night(fault), tmp_path))
    assert made["Bcc"] is None
    assert "\x1b" not in made.get_content()


# --- the site file


def load(path: Path, text: str) -> list[str]:
    """The first lines of the faults of a site file."""
    path.write_text(text)
    faults: list[object] = []
    parse_model(SiteFile, load_document(path, "site.yaml"), faults)  # type: ignore[arg-type]
    return [str(fault).splitlines()[0] for fault in faults]


def test_faults_of_the_site_file_have_positions_and_no_secret(tmp_path: Path) -> None:
    said = load(
        tmp_path / "site.yaml",
        f"nightly:\n  keep: 0\nnotify:\n  gather: -1\n  to:\n    chat:\n      webhook: ftp://{TOKEN}\n"
        "    ops:\n      mail:\n        to: []\n        form: x@y\n        relay: a b\n"
        "      kinds: [nightly-faild]\n"
        f"    both:\n      webhook: https://{TOKEN}\n      exec: [page]\n    none: {{}}\n",
    )
    assert [line.split(": ")[0] for line in sorted(said)] == [
        "site.yaml:10:13", "site.yaml:11:9", "site.yaml:12:16", "site.yaml:13:15",
        "site.yaml:15:7", "site.yaml:17:11", "site.yaml:2:9", "site.yaml:4:11", "site.yaml:7:16",
    ]  # fmt: skip
    assert "must begin with https:// or http://" in "".join(said)
    assert "must have exactly one of webhook, webhook-file, mail, exec" in "".join(said)
    assert TOKEN not in "".join(said)


@pytest.mark.parametrize("key", ["when: changed", f"webhook: https://{TOKEN}", "mail: {to: [x]}"])
def test_what_moved_says_where_to(tmp_path: Path, key: str) -> None:
    (said,) = load(tmp_path / "site.yaml", f"nightly:\n  {key}\n")
    assert "moved to the section `notify`" in said
    assert "notify: {to: {NAME: {mail: {to: [root]}}}}" in said
    assert TOKEN not in said


def test_what_the_site_says_is_read_with_its_faults(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    env = {"HOME": str(tmp_path), "IMAGEBUILDER_SITE": str(tmp_path / "site.yaml")}
    settings = load_settings(env, project=tmp_path, state=tmp_path / "state")
    assert load_nightly(settings, env) == NightlyModel()
    assert load_notify(settings, env) == NotifyModel()
    assert find_report_folder(NightlyModel(), settings, env) == tmp_path / "state/nightly"
    settings.site.write_text("nightly: {report: ~/nights, keep: 7}\nnotify: {gather: 5}\n")
    found = load_nightly(settings, env)
    assert found.keep == 7
    assert load_notify(settings, env).gather == 5
    assert find_report_folder(found, settings, env) == tmp_path / "nights"
    settings.site.write_text("notify: {kepp: 7}\n")
    with pytest.raises(InputError, match="unknown key"):
        load_notify(settings, env)
