# SPDX-License-Identifier: Apache-2.0
"""`nightly --install`: units that systemd takes, that carry what a night needs and no secret."""

from __future__ import annotations

import io
import re
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.errors import InputError, WorkError
from imagebuilder.nightly.install import (
    CARRIED,
    TimerOptions,
    install_nightly,
    uninstall_nightly,
)
from imagebuilder.notify.receivers import Credential, find_credentials
from imagebuilder.recipe.model_notify import NotifyModel
from imagebuilder.settings import DEFAULT_CALENDAR, Settings
from imagebuilder.tree import Tree
from imagebuilder.ui import Ui
from tests.systemd import verify

SETTINGS = Settings(
    Path("/srv/project"), Path("/var/lib/imagebuilder"), Path("/root/.cache/imagebuilder"),
    Path("/home/me/my site.yaml"),
)  # fmt: skip
DEFAULT = TimerOptions()
TREE = Tree(Path("/srv/netboot"))
UNITS = "etc/systemd/system"
NAMES = ["imagebuilder-nightly.service", "imagebuilder-nightly.timer"]


@pytest.fixture(autouse=True)
def _nothing_to_carry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the host of the tests has set is not what is tested."""
    for name in CARRIED:
        monkeypatch.delenv(name, raising=False)


def install(
    root: Path, options: TimerOptions = DEFAULT, settings: Settings = SETTINGS
) -> tuple[str, str]:
    """What it says on stdout and stderr."""
    stream = io.StringIO()
    said = install_nightly(options, settings, TREE, root, Ui(stream))
    return said, stream.getvalue()


def lines(root: Path, name: str = NAMES[0]) -> list[str]:
    """The lines of a unit."""
    return (root / UNITS / name).read_text().splitlines()


def test_a_service_and_its_timer_are_written(tmp_path: Path) -> None:
    options = TimerOptions(("rx7600xt", "--promote", "--report", "/srv/100% $nights"))
    said, warned = install(tmp_path, options)
    assert warned == ""
    assert sorted(path.name for path in (tmp_path / UNITS).iterdir()) == NAMES
    for name in NAMES:
        assert f"wrote      {tmp_path / UNITS / name}: " in said
    assert "sudo systemctl enable --now imagebuilder-nightly.timer" in said
    service, timer = lines(tmp_path), lines(tmp_path, NAMES[1])
    (command,) = (line for line in service if line.startswith("ExecStart="))
    assert shlex.split(command)[-5:] == [
        "nightly", "rx7600xt", "--promote", "--report", "/srv/100%% $$nights",
    ]  # fmt: skip
    for line in (
        'Environment="IMAGEBUILDER_PROJECT=/srv/project"',
        'Environment="IMAGEBUILDER_STATE=/var/lib/imagebuilder"',
        'Environment="IMAGEBUILDER_SITE=/home/me/my site.yaml"',
        'Environment="IMAGEBUILDER_TREE=/srv/netboot"',
        "Type=oneshot", "KillMode=mixed", "IOSchedulingClass=idle", "ProtectSystem=full",
    ):  # fmt: skip
        assert line in service
    assert not [line for line in service if line.startswith("LoadCredential")]
    assert f"OnCalendar={DEFAULT_CALENDAR}" in timer
    assert "Persistent=true" in timer
    assert [line for line in timer if line.startswith("RandomizedDelaySec=")]


@pytest.mark.parametrize(
    "option",
    [
        "ReadWritePaths", "StateDirectory", "PrivateDevices", "ProtectHostname", "PrivateUsers",
        "ProtectKernelTunables", "ProtectClock", "RestrictNamespaces", "RestrictSUIDSGID",
        "MemoryDenyWriteExecute", "ProtectControlGroups", "ProtectKernelModules",
    ],
)  # fmt: skip
def test_it_may_do_what_a_build_does(tmp_path: Path, option: str) -> None:
    install(tmp_path)
    assert not [line for line in lines(tmp_path) if line.startswith(f"{option}=")]


@pytest.mark.parametrize("place", ["/etc/imagebuilder", "/usr/src/project", "/boot/x"])
def test_a_project_where_the_system_is_stays_writable(tmp_path: Path, place: str) -> None:
    install(tmp_path, settings=replace(SETTINGS, project=Path(place)))
    assert "ProtectSystem=full" not in lines(tmp_path)
    install(tmp_path, settings=replace(SETTINGS, project=Path("/usrlocal/x")))
    assert "ProtectSystem=full" in lines(tmp_path)


def test_a_project_below_tmp_stays_in_sight(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.executable", "/opt/imagebuilder/bin/python3")
    install(tmp_path)
    assert "PrivateTmp=yes" in lines(tmp_path)
    install(tmp_path, settings=replace(SETTINGS, state=Path("/tmp/state")))
    assert "PrivateTmp=yes" not in lines(tmp_path)
    install(tmp_path)
    monkeypatch.setattr("sys.executable", "/var/tmp/venv/bin/python3")
    install(tmp_path)
    assert "PrivateTmp=yes" not in lines(tmp_path)


def test_what_reaches_mirrors_is_carried_and_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IMAGEBUILDER_MIRROR", "http://me:s3cret@mirror.example/debian")
    monkeypatch.setenv("http_proxy", 'http://proxy.example:3128/?"a"=100%')
    monkeypatch.setenv("HTTPS_PROXY", "me:s3cret@proxy.example:3128")
    monkeypatch.setenv("SUDO_USER", "me@example")
    monkeypatch.setenv("IMAGEBUILDER_OTHER", "x")
    _, warned = install(tmp_path)
    service = lines(tmp_path)
    assert r'Environment="http_proxy=http://proxy.example:3128/?\"a\"=100%%"' in service
    assert 'Environment="SUDO_USER=me@example"' in service
    assert "IMAGEBUILDER_OTHER" not in "".join(service)
    assert "s3cret" not in "".join(service) + warned
    assert "warning: IMAGEBUILDER_MIRROR contains a user name or password" in warned


def test_the_webhook_is_a_credential(tmp_path: Path) -> None:
    secret = tmp_path / "web%hook"
    site = NotifyModel.model_validate({"to": {
        "chat": {"webhook-file": str(secret)}, "pager": {"exec": ["page"]},
    }})  # fmt: skip
    with pytest.raises(InputError, match="does not exist"):
        [*find_credentials(site, {})]
    secret.write_text("https://hook.example/T0KEN")
    install(tmp_path, TimerOptions(credentials=tuple(find_credentials(site, {}))))
    escaped = str(secret).replace("%", "%%")
    given = [line for line in lines(tmp_path) if line.startswith("LoadCredential")]
    assert given == [f"LoadCredential=notify-chat:{escaped}"]
    assert "T0KEN" not in "".join(lines(tmp_path))


@pytest.mark.root
@pytest.mark.parametrize("calendar", ["half past two", "*-*-* 25:00", "-1"])
def test_a_time_that_is_none_is_refused(tmp_path: Path, calendar: str) -> None:
    with pytest.raises(InputError, match="is not a time") as caught:
        install(tmp_path, TimerOptions(calendar=calendar))
    assert DEFAULT_CALENDAR in caught.value.faults[0].hint
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("calendar", ["", " ", "daily\nExecStart=/bin/sh"])
def test_a_time_is_one_line(tmp_path: Path, calendar: str) -> None:
    with pytest.raises(InputError, match="is not a time"):
        install(tmp_path, TimerOptions(calendar=calendar))


def test_again_it_changes_nothing_and_other_options_do(tmp_path: Path) -> None:
    install(tmp_path)
    before = {name: (tmp_path / UNITS / name).stat().st_ino for name in NAMES}
    said, _ = install(tmp_path)
    assert "wrote " not in said
    assert said.count("unchanged ") == 2
    assert before == {name: (tmp_path / UNITS / name).stat().st_ino for name in NAMES}
    said, _ = install(tmp_path, TimerOptions(calendar="Mon..Fri 03:00"))
    assert re.findall(r"^(\w+) .*nightly\.(\w+):", said, re.MULTILINE) == [
        ("unchanged", "service"), ("wrote", "timer"),
    ]  # fmt: skip


def test_what_was_installed_can_be_removed_and_nothing_else(tmp_path: Path) -> None:
    assert "no units of imagebuilder are installed" in uninstall_nightly(tmp_path)
    install(tmp_path)
    served = tmp_path / UNITS / "imagebuilder-nginx.service"
    served.write_text("# Made by imagebuilder serve --install; changes are lost.\n")
    said = uninstall_nightly(tmp_path)
    assert list((tmp_path / UNITS).iterdir()) == [served]
    assert said.count("removed ") == 2


def test_where_nothing_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "etc").write_text("")
    with pytest.raises(WorkError, match="cannot be written"):
        install(tmp_path)


@pytest.mark.root
def test_systemd_takes_what_is_written(tmp_path: Path) -> None:
    secret = tmp_path / "webhook"
    secret.write_text("https://hook.example")
    options = TimerOptions(
        ("generic", "--report", "/srv/my nights/100%"),
        "Mon 03:00",
        (Credential("notify-chat", secret),),
    )
    install(tmp_path / "root", options)
    units = [tmp_path / "root" / UNITS / name for name in NAMES]
    assert verify(units, tmp_path) == ""


@pytest.mark.root
@pytest.mark.parametrize(
    ("number", "right", "wrong"),
    [(0, "ExecStart=/", "ExecStart=/nonexistent/"), (0, "KillMode=mixed", "KillMode=kindly"),
     (1, "OnCalendar=*-*-* 02:30", "OnCalendar=at night")],
)  # fmt: skip
def test_a_faulty_unit_would_be_found(tmp_path: Path, number: int, right: str, wrong: str) -> None:
    install(tmp_path / "root")
    units = [tmp_path / "root" / UNITS / name for name in NAMES]
    text = units[number].read_text()
    assert right in text
    units[number].write_text(text.replace(right, wrong))
    assert NAMES[number] in verify(units, tmp_path)
