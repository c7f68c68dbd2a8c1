# SPDX-License-Identifier: Apache-2.0
"""Streams of modules that are enabled, required, defaults, in conflict, or not there."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from imagebuilder.errors import InputError, WorkError
from imagebuilder.families.rpm.indexes import load_indexes
from imagebuilder.families.rpm.modulemd import documents_of, stream_of
from imagebuilder.families.rpm.modules import ModuleFilter, module_filter
from imagebuilder.families.rpm.repository import Index, Repository
from imagebuilder.recipe.types import Source
from tests.fixtures.rpm_repository import DATE
from tests.unit.families.rpm.conftest import RpmSite


def build(
    name: str,
    stream: str,
    *artifacts: str,
    version: int = 1,
    context: str = "c1",
    static: bool = False,
    requires: str = "{platform: [el9]}",
) -> str:
    """A document as libmodulemd writes it, with parts that nobody reads here."""
    listed = "".join(f"\n    - {artifact}" for artifact in artifacts) or " []"
    return f"""---
document: modulemd
version: 2
data:
  name: {name}
  stream: "{stream}"
  version: {version}
  context: {context}
  static_context: {str(static).lower()}
  arch: x86_64
  summary: "{name} {stream}"
  description: >-
    Of no interest:
    data: [name]
  license: {{module: [MIT]}}
  xmd: {{name: {{stream: wrong, data: [[[[deep]]]]}}}}
  dependencies:
  - buildrequires: {{platform: [el8]}}
    requires: {requires}
  profiles: {{common: {{rpms: [{name}]}}}}
  artifacts:
    rpm-map: {{sha256: {{abc: {{name: wrong}}}}}}
    rpms:{listed}
...
"""


def default(module: str, stream: str, modified: int = 1) -> str:
    return f"""---
document: modulemd-defaults
version: 1
data: {{module: {module}, modified: {modified}, stream: "{stream}", profiles: {{"8": [common]}}}}
...
"""


NGINX = (
    build("nginx", "1.22", "nginx-1:1.22-1.el9.x86_64", "nginx-mod-0:3-1.el9.noarch"),
    build("nginx", "1.24", "nginx-1:1.24-1.el9.x86_64", "nginx-1:1.24-1.el9.src"),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def indexes(
    folder: Path, *texts: str, streams: Sequence[str] = (), vendor: Sequence[str] = ()
) -> list[Index]:
    """An index of the distribution for each text; the vendor has the last one if it has streams."""
    base = Source("rocky", ("9",), ("AppStream",), Path("/k"), mirror="rocky", streams=(*streams,))
    other = Source("tools", ("/",), (), Path("/k"), uri="https://v.example", streams=(*vendor,))
    found = []
    for number, text in enumerate(texts):
        path = folder / f"{number}-modules.yaml"
        path.write_text(text)
        source = other if vendor and number == len(texts) - 1 else base
        repository = Repository(source, source.suites[0], "AppStream", "http://m.example", "9")
        found.append(Index(repository, DATE, "0" * 64, signed=True, primary=path, modules=path))
    return found


def choose(folder: Path, text: str, *streams: str) -> ModuleFilter:
    return module_filter(indexes(folder, text, streams=streams))


def nginx(found: ModuleFilter, version: str) -> bool:
    return found.is_visible("nginx", version, "x86_64")


def test_without_modules_everything_is_visible(folder: Path) -> None:
    found = choose(folder, "")
    assert found == ModuleFilter()
    assert found.is_visible("bash", "5.1-9.el9", "x86_64", ["bash", "/bin/sh"])


def test_packages_of_inactive_streams_are_hidden(folder: Path) -> None:
    found = choose(folder, "".join(NGINX))
    assert not nginx(found, "1:1.22-1.el9")
    assert not nginx(found, "1:1.24-1.el9")
    assert nginx(found, "1:1.20-1.el9")  # no module has it
    assert nginx(found, "1.24-1.el9")  # neither this one, without an epoch
    assert not found.is_visible("nginx-mod", "3-1.el9", "noarch")
    assert not found.is_visible("nginx-mod", "0:3-1.el9", "noarch")
    assert found.active == ()


def test_an_enabled_stream_hides_other_packages_of_its_names(folder: Path) -> None:
    found = choose(folder, "".join(NGINX), "nginx:1.22")
    assert found.active == ("nginx:1.22",)
    assert nginx(found, "1:1.22-1.el9")
    assert not nginx(found, "1:1.24-1.el9")
    assert not nginx(found, "1:1.20-1.el9")
    assert not found.is_visible("fork", "9-1", "x86_64", ["fork", "nginx"])
    assert found.is_visible("fork", "9-1", "x86_64", ["fork"])
    assert found.is_visible("nginx-mod", "3-1.el9", "noarch")
    assert found.is_visible("bash", "5.1-9.el9", "x86_64")


def test_names_of_source_packages_hide_nothing(folder: Path) -> None:
    text = build("m", "1", "sources-0:1-1.src", "binary-0:1-1.x86_64")
    found = choose(folder, text, "m:1")
    assert found.is_visible("sources", "2-1", "x86_64")
    assert not found.is_visible("binary", "2-1", "x86_64")


def test_a_default_stream_is_active_unless_another_is_enabled(folder: Path) -> None:
    text = "".join((*NGINX, default("nginx", "1.24")))
    assert choose(folder, text).active == ("nginx:1.24",)
    assert choose(folder, text, "nginx:1.22").active == ("nginx:1.22",)


@pytest.mark.parametrize("backwards", [False, True])
def test_the_newest_default_counts_in_any_order(folder: Path, backwards: bool) -> None:  # noqa: FBT001
    texts = [*NGINX, default("nginx", "1.22", 5), default("nginx", "1.24", 7)]
    order = texts[::-1] if backwards else texts
    assert module_filter(indexes(folder, *order)).active == ("nginx:1.24",)
    both = [*order, default("nginx", "1.22", 7)]
    assert module_filter(indexes(folder, *both)).active == ()
    assert module_filter(indexes(folder, *order, default("nginx", "", 9))).active == ()


def test_every_version_of_a_stream_is_active(folder: Path) -> None:
    text = build("m", "1", "m-0:1-1.x86_64", version=1) + build(
        "m", "1", "m-0:1-2.x86_64", version=2
    )
    found = choose(folder, text, "m:1")
    assert found.is_visible("m", "1-1", "x86_64")
    assert found.is_visible("m", "1-2", "x86_64")


def test_a_stream_is_a_text(folder: Path) -> None:
    text = build("python", "3.10", "python-0:3.10-1.x86_64").replace('"3.10"', "3.10")
    assert choose(folder, text, "python:3.10").active == ("python:3.10",)


PERL = build("perl", "5.26", "perl-4:5.26-1.x86_64") + build("perl", "5.30", "perl-4:5.30-1.x86_64")


def dbi(stream: str, context: str) -> str:
    requires = f"{{platform: [el9], perl: ['{stream}']}}"
    return build("dbi", "1", f"dbi-0:1-{context}.x86_64", context=context, requires=requires)


def test_the_build_for_the_enabled_stream_of_another_module(folder: Path) -> None:
    text = PERL + dbi("5.26", "a") + dbi("5.30", "b")
    found = choose(folder, text, "dbi:1", "perl:5.30")
    assert found.active == ("dbi:1", "perl:5.30")
    assert not found.is_visible("dbi", "1-a", "x86_64")
    assert found.is_visible("dbi", "1-b", "x86_64")


def test_a_required_stream_is_enabled_too(folder: Path) -> None:
    text = PERL + dbi("5.26", "a") + build("app", "1", "app-0:1-1.noarch", requires="{dbi: []}")
    assert choose(folder, text, "app:1").active == ("app:1", "dbi:1", "perl:5.26")


def test_a_required_stream_is_the_default_if_that_would_do(folder: Path) -> None:
    text = PERL + build("app", "1", requires="{perl: []}") + default("perl", "5.30")
    found = choose(folder, text, "app:1")
    assert found.active == ("app:1", "perl:5.30")
    assert found.is_visible("perl", "4:5.30-1", "x86_64")
    assert not found.is_visible("perl", "4:5.26-1", "x86_64")


@pytest.mark.parametrize(
    ("requires", "more", "what", "hint"),
    [
        ("{perl: []}", (), "app:1 requires module perl", "enable one of perl:5.26, perl:5.30"),
        ("{perl: ['-5.26', '-5.30']}", (), "app:1 requires module perl", ""),
        ("{perl: ['5.32']}", (), "requires module perl 5.32, which no source has", ""),
        ("{ruby: ['3']}", (), "requires module ruby 3, which no source has", ""),
        (
            "{perl: ['5.26']}",
            ("perl:5.30",),
            "app:1 requires module perl 5.26, but perl:5.30 is enabled",
            "enable streams that belong together",
        ),
        ("{platform: [el8]}", (), "app:1 is for el8, not for el9", "use the repository"),
    ],
)
def test_requirements_that_cannot_be_met(
    folder: Path, requires: str, more: tuple[str, ...], what: str, hint: str
) -> None:
    text = PERL + build("app", "1", "app-0:1-1.noarch", requires=requires)
    with pytest.raises(InputError, match=what) as caught:
        choose(folder, text, "app:1", *more)
    assert hint in caught.value.faults[0].hint


def test_a_stream_may_be_excluded(folder: Path) -> None:
    text = PERL + build("app", "1", "app-0:1-1.noarch", requires="{perl: ['-5.26']}")
    assert choose(folder, text, "app:1").active == ("app:1", "perl:5.30")


def test_a_default_whose_requirements_are_not_active_is_not(folder: Path) -> None:
    text = PERL + dbi("5.26", "a") + default("dbi", "1")
    assert choose(folder, text).active == ()
    assert choose(folder, text, "perl:5.26").active == ("dbi:1", "perl:5.26")
    assert choose(folder, text, "perl:5.30").active == ("perl:5.30",)
    assert choose(folder, text + default("perl", "5.26")).active == ("dbi:1", "perl:5.26")


def test_builds_of_another_context_are_not_active(folder: Path) -> None:
    text = build("m", "1", "m-0:1-1.x86_64", context="rhel9", static=True, version=2) + build(
        "m", "1", "m-0:2-1.x86_64", context="other", static=True, version=1
    )
    found = choose(folder, text, "m:1")
    assert found.is_visible("m", "1-1", "x86_64")
    assert not found.is_visible("m", "2-1", "x86_64")


@pytest.mark.parametrize(
    ("streams", "what", "hint"),
    [
        (("ngix:1.22",), "source rocky: it has no module ngix", 'did you mean "nginx"?'),
        (
            ("nginx:2",),
            'its module nginx has no stream "2"',
            "use one of nginx:1.22, nginx:1.24",
        ),
        (("nginx",), "nginx names no stream", "use one of nginx:1.22"),
        (
            ("nginx:1.22", "nginx:1.24"),
            "nginx:1.24 and nginx:1.22 are both enabled",
            "enable one stream of a module",
        ),
    ],
)
def test_streams_that_cannot_be_enabled(
    folder: Path, streams: tuple[str, ...], what: str, hint: str
) -> None:
    with pytest.raises(InputError, match=what) as caught:
        choose(folder, "".join(NGINX), *streams)
    assert hint in caught.value.faults[0].hint


def test_a_source_enables_streams_of_its_own_modules(folder: Path) -> None:
    driver = build("nvidia-driver", "open-dkms", "nvidia-driver-3:560-1.el9.x86_64", requires="{}")
    found = module_filter(
        indexes(folder, "".join(NGINX), driver, vendor=("nvidia-driver:open-dkms",))
    )
    assert found.active == ("nvidia-driver:open-dkms",)
    assert not nginx(found, "1:1.22-1.el9")
    with pytest.raises(InputError, match="source tools: it has no module nginx"):
        module_filter(indexes(folder, "".join(NGINX), driver, vendor=("nginx:1.22",)))
    with pytest.raises(InputError, match="both enabled"):
        module_filter(
            indexes(
                folder, "".join(NGINX), "".join(NGINX),
                streams=("nginx:1.22",), vendor=("nginx:1.24",),
            )
        )  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "---\ndocument: [\n",
        "---\ndocument: modulemd\ndata: {name: a\x00b}\n",
        "---\ndocument: modulemd\ndata: {name: &a x, stream: *a}\n",
        "---\ndocument: modulemd\ndata: *missing\n",
        "---\ndocument: modulemd\ndata: {artifacts: {rpms: &a [x], rpms: [*a]}, name: a}\n",
    ],
)
def test_a_damaged_file_is_an_error(folder: Path, text: str) -> None:
    with pytest.raises(WorkError, match=r"modules\.yaml of rocky-9-AppStream cannot be read"):
        choose(folder, text)


@pytest.mark.parametrize(
    "text",
    [
        "--- []\n",
        "--- 5\n",
        "---\ndocument: modulemd\n",
        "---\ndocument: modulemd\ndata: []\n",
        "---\ndocument: modulemd\ndata: {stream: x}\n",
        "---\ndocument: modulemd-packager\ndata: {name: x, stream: y}\n",
        "---\ndocument: modulemd\ndata: {name: [x], stream: {y: z}, artifacts: 5}\n",
        "---\n? [a, b]\n: c\n",
        f"---\na: {'[' * 500}{']' * 500}\n",
    ],
)
def test_other_documents_are_ignored(folder: Path, text: str) -> None:
    assert choose(folder, text) == ModuleFilter()


def test_artifacts_that_are_no_packages_are_ignored() -> None:
    text = build("m", "1", "'a b-0:1-1.x86_64'", "nothing", f"{'a-' * 2000}", "a-1-1.x86_64")
    ((_, data),) = documents_of(text)
    found = stream_of(data, "rocky")
    assert found
    assert found.artifacts == {"a-0:1-1.x86_64"}


def test_ten_megabytes_take_a_few_seconds(folder: Path) -> None:
    listed = [f"perl-Package-{number}-0:5.26.3-{number}.module_el9.x86_64" for number in range(150)]
    text = "".join(
        build(f"m{number % 60}", f"{number}", *listed, version=number) for number in range(700)
    )
    assert len(text) > 5_000_000
    start = time.process_time()
    found = choose(folder, text, "m5:5")
    assert time.process_time() - start < 6
    assert found.is_visible("perl-Package-7", "5.26.3-7.module_el9", "x86_64")


def test_modules_of_a_repository(site: RpmSite) -> None:
    site.again("AppStream", DATE, "".join(NGINX))
    found = module_filter(load_indexes(site.repositories(), site.cache, site.notes.append))
    assert not nginx(found, "1:1.24-1.el9")
