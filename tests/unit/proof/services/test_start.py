# SPDX-License-Identifier: Apache-2.0
"""What keeps a service from its files, its program and its driver; usual units are let pass."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from imagebuilder.image.proof import Level
from imagebuilder.process import Completed
from imagebuilder.proof.reading.commands import CommandLine
from imagebuilder.proof.reading.environment import Variable
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.services.devices import (
    prove_interfaces,
    prove_python_path,
    prove_search,
    prove_selection,
)
from imagebuilder.proof.services.programs import Confined, prove_confinement
from imagebuilder.proof.services.prove import line_of
from imagebuilder.proof.services.settings import (
    CLEANING,
    prove_accepted,
    prove_hosts,
    prove_known,
    prove_lent,
    prove_model,
    prove_port,
    prove_processor,
    prove_threads,
    prove_values,
)
from imagebuilder.proof.services.start import (
    MOST_CHECKS,
    prove_conditions,
    prove_files,
    prove_lines,
    prove_others,
    prove_program,
)
from imagebuilder.recipe.engines import EngineKind, find_engine, load_engines
from imagebuilder.recipe.expectations import Expectations
from imagebuilder.recipe.model_engine import EngineModel, WordsModel
from imagebuilder.root import Root
from tests.unit.proof.trees import (
    Content,
    Link,
    Program,
    Sandbox,
    faults,
    make_tree,
    running,
    subject,
    warnings,
)
from tests.workshop import SHIPPED_OVERLAYS

SERVER = "/usr/bin/llama-server"
ENGINES = load_engines(SHIPPED_OVERLAYS, ("llama-cpp", "vllm"))
LLAMA, VLLM = find_engine(ENGINES, "llama.cpp"), find_engine(ENGINES, "vllm")


def setting(
    values: Mapping[str, str], commands: Mapping[str, tuple[tuple[str, ...], ...]]
) -> LoadedUnit:
    loaded = {key: (value,) for key, value in values.items()}
    return LoadedUnit("a.service", ("/etc/systemd/system/a.service",), loaded, commands)


def unit(commands: Mapping[str, tuple[str, ...]] | None = None, **values: str) -> LoadedUnit:
    return setting(values, {key: (words,) for key, words in (commands or {}).items()})


def given(**values: str) -> dict[str, Variable]:
    return {name: Variable(value, "/etc/default/a") for name, value in values.items()}


def line(*words: str, **environment: str) -> CommandLine:
    return CommandLine("a.service", words, given(**environment), "/etc/a")


@pytest.mark.parametrize(
    ("file", "writer", "starts"),
    [
        ("/run/vault/a.env", "", False),
        ("/run/vault/a.env", "/usr/local/bin/vault", True),
        ("/usr/lib/a/env", "", False),
        ("/etc/default/a", "", True),
        ("-/run/vault/a.env", "", True),
    ],
)
def test_files_of_variables(file: str, writer: str, starts: bool, tmp_path: Path) -> None:  # noqa: FBT001
    asked = subject(tmp_path, run=Sandbox({"grep -rlsF": writer, "grep -rlsE": ""}))
    assert (not list(prove_files(asked, unit(EnvironmentFile=file), {}))) == starts


def test_file_of_variables_below_run_of_the_image(tmp_path: Path) -> None:
    file = "/run/site/a.env"
    tree = make_tree(tmp_path, {file: "A=1\n"})
    asked = subject(tree, run=Sandbox({"grep -rlsF": "", "grep -rlsE": ""}))
    found = faults(prove_files(asked, unit(EnvironmentFile=file), {}))
    assert "empty at boot" in "".join(found)


@pytest.mark.parametrize(
    ("text", "ignored"),
    [
        ("A=1\n# export B=2\n", ""),
        ("A=1\nexport B=secret\n", "export B"),
        ("A.B=1\n", "A.B"),
        ("A=1 \\\n  B=2\n", ""),
    ],
)
def test_lines_that_systemd_ignores(text: str, ignored: str, tmp_path: Path) -> None:
    tree = make_tree(tmp_path, {"/etc/default/a": text})
    found = faults(prove_lines(subject(tree), unit(EnvironmentFile="/etc/default/a")))
    assert bool(found) == bool(ignored)
    assert f"{ignored!r}" in "".join(found) or not ignored
    assert "secret" not in "".join(found)


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("A=secret  # not a comment", Level.FAULT),
        ("A=secret #note", Level.WARNING),
        ("A='secret # 1'", None),
    ],
)
def test_comments_behind_values(text: str, level: Level | None, tmp_path: Path) -> None:
    tree = make_tree(tmp_path, {"/etc/default/a": text})
    found = list(prove_lines(subject(tree), unit(EnvironmentFile="/etc/default/a")))
    assert [one.level for one in found] == ([level] if level else [])
    assert "secret" not in str(found)


@pytest.mark.parametrize(
    ("values", "hidden"),
    [
        ({"ProtectHome": "yes"}, True),
        ({"ProtectHome": "read-only"}, False),
        ({"InaccessiblePaths": "-/home/a/models"}, True),
        ({"ProtectHome": "tmpfs", "BindReadOnlyPaths": "/home/a/models"}, False),
        ({}, False),
    ],
)
def test_model_that_a_setting_hides(
    values: dict[str, str],
    hidden: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    mount = "[Mount]\nWhere=/home/a/models\n"
    tree = make_tree(tmp_path, {"/etc/systemd/system/home-a-models.mount": mount})
    asks = {"ExecCondition": ("/usr/bin/test", "-e", "/home/a/models/x.gguf")}
    found = faults(prove_files(subject(tree), unit(asks, **values), {}))
    assert bool(found) == hidden


@pytest.mark.parametrize(
    ("model", "starts"),
    [("/models/a.gguf", True), ("/model/a.gguf", False), ("/run/a.gguf", True), ("/data/a", True)],
)
def test_a_model_is_where_something_is_mounted(model: str, starts: bool, tmp_path: Path) -> None:  # noqa: FBT001
    mount = {"/etc/systemd/system/models.mount": "[Mount]\nWhere=/models\n", "/data/": ""}
    look = unit({"ExecCondition": ("/usr/bin/test", "-e", "${MODEL}")})
    found = prove_files(subject(make_tree(tmp_path, mount)), look, given(MODEL=model))
    assert (not list(found)) == starts


def test_a_model_that_nothing_names(tmp_path: Path) -> None:
    look = unit({"ExecCondition": ("/usr/bin/test", "-e", "${MODEL}")})
    (found,) = faults(prove_files(subject(tmp_path), look, {}))
    assert "it checks for ${MODEL}, which nothing sets" in found


@pytest.mark.parametrize(
    ("value", "starts"), [("vm", False), ("no", True), ("!vm", True), ("!no", False)]
)
def test_conditions_on_the_machine(value: str, starts: bool, tmp_path: Path) -> None:  # noqa: FBT001
    found = prove_conditions(subject(tmp_path), unit(ConditionVirtualization=f"{value} untested"))
    assert (not list(found)) == starts


@pytest.mark.parametrize(
    ("words", "more", "said"),
    [
        ((SERVER,), (), ""),
        (("/usr/bin/nice", "-n5", SERVER), (), ""),
        (("/opt/bin/llama-server",), (), "starts /opt/bin/llama-server instead of /usr/bin"),
        (("/usr/bin/nice", "/opt/bin/llama-server"), (), "starts /opt/bin/llama-server"),
        ((SERVER,), ("/usr/local/bin/llama-server",), "comes before /usr/bin/llama-server in PATH"),
    ],
)
def test_the_program_is_the_one_that_was_asked(
    words: tuple[str, ...], more: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    files: dict[str, Content] = {path: Program() for path in (SERVER, *more)}
    found = faults(prove_program(subject(make_tree(tmp_path, files)), line(*words), LLAMA))
    assert [said in what for what in found] == ([True] if said else [])


@pytest.mark.parametrize(
    ("words", "environment", "level"),
    [
        ((), {}, None),
        ((), {"LLAMA_ARG_N_GPU_LAYERS": "all", "LLAMA_ARG_FIT_TARGET": "1024"}, None),
        ((), {"LLAMA_ARG_OVERRIDE_TENSOR": ".*=CPU"}, Level.FAULT),
        (("-ot", r"blk\..*\.ffn_.*_exps.=CPU"), {}, None),
        ((), {"LLAMA_ARG_KV_OFFLOAD": "0"}, Level.WARNING),
        (("-nkvo",), {}, Level.WARNING),
        (("--n-cpu-moe", "12"), {}, Level.WARNING),
        ((), {"LLAMA_ARG_N_CPU_MOE": "0"}, None),
        ((), {"LLAMA_ARG_FIT_TARGET": "20480"}, Level.WARNING),
    ],
)
def test_settings_of_llama(
    words: tuple[str, ...], environment: dict[str, str], level: Level | None
) -> None:
    found = list(prove_processor(line(SERVER, *words, **environment), LLAMA))
    assert [one.level for one in found] == ([level] if level else [])


@pytest.mark.parametrize(
    ("kind", "words", "environment", "said"),
    [
        (LLAMA, (), {"LLAMA_ARG_STATIC_PATH": "/"}, "LLAMA_ARG_STATIC_PATH=/: everybody"),
        (LLAMA, ("--path", "/etc/"), {}, "--path /etc/: everybody"),
        (LLAMA, ("--path=.",), {}, "--path .: everybody"),
        (LLAMA, (), {"LLAMA_ARG_STATIC_PATH": "/home/compute"}, "everybody"),
        (LLAMA, (), {"LLAMA_ARG_STATIC_PATH": "/usr/share/dashboard"}, ""),
        (
            LLAMA,
            (),
            {"LLAMA_ARG_CACHE_TYPE_V": "q8_0", "LLAMA_ARG_FLASH_ATTN": "off"},
            "has LLAMA_ARG_CACHE_TYPE_V=q8_0 and LLAMA_ARG_FLASH_ATTN=off: a quantised cache",
        ),
        (LLAMA, ("-ctv", "q4_0", "-fa", "off"), {}, "has -ctv q4_0 and -fa off: a quantised"),
        (LLAMA, (), {"LLAMA_ARG_CACHE_TYPE_V": "f16", "LLAMA_ARG_FLASH_ATTN": "off"}, ""),
        (LLAMA, (), {"LLAMA_ARG_CACHE_TYPE_V": "q8_0", "LLAMA_ARG_FLASH_ATTN": "on"}, ""),
        (LLAMA, (), {"LLAMA_ARG_CACHE_TYPE_V": "q8_0"}, ""),
        (LLAMA, (), {"LLAMA_ARG_STATIC_PATH": "/srv/www"}, ""),
        (VLLM, ("--load-format", "dummy"), {}, "random weights"),
        (VLLM, ("--load-format=safetensors",), {}, ""),
    ],
)
def test_values_that_are_wrong(
    kind: EngineKind, words: tuple[str, ...], environment: dict[str, str], said: str
) -> None:
    found = faults(prove_values(line(SERVER, *words, **environment), kind))
    assert [said in what for what in found] == ([True] if said else [])


def test_an_option_that_a_variable_adds_is_of_its_file() -> None:
    commands = {"ExecStart": ("/usr/libexec/vllm/serve", "--device", "cuda")}
    added = given(SERVE_ARGS="--enforce-eager --load-format dummy")
    found = list(prove_values(line_of(unit(commands), VLLM, added), VLLM))
    assert [one.evidence[0].path for one in found] == ["/etc/default/a"]
    given_line = line_of(unit({"ExecStart": ("/bin/serve", "--load-format=dummy")}), VLLM, added)
    assert given_line.words[given_line.added_at :] == ["--enforce-eager", "--load-format", "dummy"]


@pytest.mark.parametrize(("share", "told"), [("64", 1), ("0.5", 1), ("0", 0)])
def test_weights_of_vllm(share: str, told: int) -> None:
    found = prove_processor(line("/usr/libexec/vllm/serve", "--cpu-offload-gb", share), VLLM)
    assert len(warnings(found)) == told


def test_a_file_that_is_made_at_boot_is_not_opened(tmp_path: Path) -> None:
    sandbox = Sandbox({"env": ""})
    words = (SERVER, "--api-key-file", "/run/key", "--jinja")
    given_line = line(*words, LLAMA_ARG_API_KEY_FILE="/run/key", A="1")
    assert list(prove_accepted(subject(tmp_path, run=sandbox), given_line, LLAMA)) == []
    assert sandbox.asked == [("env", "A=1", SERVER, "--jinja", "--list-devices")]


def test_a_folder_that_is_made_at_boot_is_not_opened(tmp_path: Path) -> None:
    sandbox = Sandbox({"env": ""})
    root = make_tree(tmp_path, {"/etc/tmpfiles.d/a.conf": "d /var/cache/slots 0750\n"})
    words = (SERVER, "--slot-save-path", "/var/cache/slots/", "--jinja")
    given_line = line(*words, LLAMA_ARG_SLOT_SAVE_PATH="/var/cache/slots/", A="1")
    assert list(prove_accepted(subject(root, run=sandbox), given_line, LLAMA)) == []
    assert sandbox.asked == [("env", "A=1", SERVER, "--jinja", "--list-devices")]


@pytest.mark.parametrize(
    ("words", "variables", "said"),
    [
        ("--max-model-len 4096 --no-enable-log-requests", {}, ""),
        ("--max_model_len=4096 --speculative-config.model /models/x", {}, ""),
        ("-tp 2 value --", {}, ""),
        ("--disable-log-requests", {}, "does not start: this E has no option --disable-log-requ"),
        ("", {"E_NEW": "1", "OTHER_OLD": "1"}, ""),
        ("", {"E_OLD": "1"}, "has E_OLD, which this E does not read: it has no effect"),
    ],
)
def test_words_that_this_version_of_an_engine_does_not_have(
    words: str, variables: dict[str, str], said: str, tmp_path: Path
) -> None:
    files: dict[str, Content] = {
        "/opt/e/arguments.py": "'--max-model-len' enable_log_requests: bool  # speculative_config",
        "/opt/e/envs": b"\0E_NEW\0",
    }
    names = {"options": ["/opt/e/*.py"], "variables": ["/opt/e/envs"], "prefix": "E_"}
    kind = EngineKind(tmp_path, EngineModel(name="e", title="E", words=WordsModel(**names)))  # type: ignore[arg-type]
    given_line = CommandLine("e.service", ["/opt/e/run", *words.split()], given(**variables), "/u")
    found = list(prove_known(subject(make_tree(tmp_path, files)), given_line, kind))
    assert [each.what for each in found] == [each.what for each in found if said in each.what]
    assert bool(found) == bool(said)
    gone = subject(make_tree(tmp_path / "without", {"/etc/x": ""}))
    assert list(prove_known(gone, given_line, kind)) == []


def test_modules_before_those_of_the_environment(tmp_path: Path) -> None:
    asked = subject(make_tree(tmp_path, {"/srv/python/torch/__init__.py": ""}))
    assert list(prove_python_path(asked, "a.service", ["torch"], {})) == []
    (what,) = faults(
        prove_python_path(asked, "a.service", ["torch"], given(PYTHONPATH="/srv/python"))
    )
    assert "makes a.service import /srv/python/torch" in what
    (what,) = warnings(prove_python_path(asked, "a.service", ["torch"], given(PYTHONPATH="/srv/x")))
    assert "may import modules that its check" in what


@pytest.mark.parametrize(
    ("key", "value", "kept"),
    [
        ("MemoryDenyWriteExecute", "yes", True),
        ("ProcSubset", "pid", True),
        ("CPUQuotaPerSecSec", "200ms", True),
        ("CPUQuotaPerSecSec", "1s 500ms", False),
        ("CPUQuotaPerSecSec", "infinity", False),
        ("MemoryHigh", str(512 << 20), True),
        ("MemoryHigh", str(8 << 30), False),
    ],
)
def test_what_a_driver_needs(key: str, value: str, kept: bool, tmp_path: Path) -> None:  # noqa: FBT001
    confined = Confined(setting({key: value}, {}), (), serves=False, computes=True)
    nothing = Startup(frozenset(), {}, {}, ())
    assert bool(list(prove_confinement(Root(tmp_path), nothing, confined))) == kept


@pytest.mark.parametrize(
    ("value", "told"),
    [("ROCm1", 1), ("Vulkan2,Vulkan3", 1), ("ROCm0", 0), ("ROCm1,ROCm0", 0), ("none", 0)],
)
def test_devices_that_a_node_may_not_have(value: str, told: int) -> None:
    found = warnings(prove_values(line(SERVER, LLAMA_ARG_DEVICE=value), LLAMA))
    assert len(found) == told
    assert len(warnings(prove_values(line(SERVER, "--device", value), LLAMA))) == told


@pytest.mark.parametrize(
    ("quota", "words", "environment", "said"),
    [
        ("4s", (), {}, "may use 4 processors (CPUQuota= of a.service), but llama.cpp starts a thr"),
        ("4s", ("-t", "-1"), {}, "a thread for each core"),
        ("1s 500ms", ("--threads", "2"), {}, "may use 1.5 processors"),
        ("8s", (), {"LLAMA_ARG_THREADS": "16"}, "starts 16 threads"),
        ("8s", (), {"LLAMA_ARG_THREADS": "8"}, ""),
        ("1min", ("-t", "48"), {}, ""),
        ("infinity", (), {}, ""),
        # A fault of its own.
        ("500ms", (), {}, ""),
    ],
)
def test_more_threads_than_processors(
    quota: str, words: tuple[str, ...], environment: dict[str, str], said: str
) -> None:
    limited = setting({"CPUQuotaPerSecSec": quota}, {})
    nothing = Startup(frozenset(), {}, {}, ())
    found = warnings(prove_threads(nothing, limited, line(SERVER, *words, **environment), LLAMA))
    assert [said in what for what in found] == ([True] if said else [])


@pytest.mark.parametrize(
    ("key", "listed", "words", "said"),
    [
        ("CPUAffinity", "0-3", ("-t", "16"), "may use 4 processors (CPUAffinity= of a.service)"),
        ("AllowedCPUs", "0-1 8", ("-t", "4"), "may use 3 processors (AllowedCPUs= of a.service)"),
        ("CPUAffinity", "0-3", ("-t", "4"), ""),
        ("CPUAffinity", "4-N", ("-t", "16"), ""),
        # It may count what it has.
        ("CPUAffinity", "0-3", (), ""),
        ("AllowedCPUs", "", ("-t", "16"), ""),
    ],
)
def test_more_threads_than_a_list_of_processors(
    key: str, listed: str, words: tuple[str, ...], said: str
) -> None:
    nothing = Startup(frozenset(), {}, {}, ())
    found = warnings(
        prove_threads(nothing, setting({key: listed}, {}), line(SERVER, *words), LLAMA)
    )
    assert [said in what for what in found] == ([True] if said else [])


def test_the_processors_of_a_slice_count_too() -> None:
    group = LoadedUnit("site.slice", ("/etc/site.slice",), {"CPUQuotaPerSecSec": ("2s",)}, {})
    startup = Startup(frozenset(), {}, {"site.slice": group}, ())
    (what,) = warnings(
        prove_threads(startup, setting({"Slice": "site.slice"}, {}), line(SERVER), LLAMA)
    )
    assert "CPUQuota= of site.slice" in what


@pytest.mark.parametrize(
    ("port", "values", "setting_line", "said"),
    [
        ("80", {"User": "compute"}, "", "a.service cannot listen on port 80: compute may only use"),
        ("80", {"User": "compute", "AmbientCapabilities": "cap_net_bind_service"}, "", ""),
        ("80", {"User": "root"}, "", ""),
        ("80", {}, "", ""),
        ("8080", {"User": "compute"}, "", ""),
        ("80", {"User": "compute"}, "net.ipv4.ip_unprivileged_port_start = 80", ""),
        ("8080", {"User": "compute"}, "net.ipv4.ip_unprivileged_port_start = 9000", "9000 and abo"),
    ],
)
def test_ports_that_an_account_may_use(
    port: str, values: dict[str, str], setting_line: str, said: str, tmp_path: Path
) -> None:
    answer = f"# /etc/sysctl.d/a.conf\n{setting_line}\n"
    sandbox = Sandbox({"systemd-analyze cat-config sysctl.d": answer})
    asked, served = subject(tmp_path, run=sandbox), line(SERVER, LLAMA_ARG_PORT=port)
    found = faults(prove_port(asked, setting(values, {}), served, LLAMA))
    assert [said in what for what in found] == ([True] if said else [])


@pytest.mark.parametrize(
    ("lines", "model", "said"),
    [
        ("d /models 0755 root root 7d", "/models/a.gguf", "older than 7d from /models"),
        ("e /models/llm - - - 30d", "/models/llm/a.gguf", "older than 30d from /models/llm"),
        ("d /models 0755 root root -", "/models/a.gguf", ""),
        ("d /models 0755 root root 7d\nx /models/llm", "/models/llm/a.gguf", ""),
        ("d /srv 0755 root root 7d", "/models/a.gguf", ""),
        ("d /model 0755 root root 7d", "/models/a.gguf", ""),
    ],
)
def test_models_that_are_removed_by_their_age(
    lines: str, model: str, said: str, tmp_path: Path
) -> None:
    asked = subject(make_tree(tmp_path, {"/etc/tmpfiles.d/a.conf": f"{lines}\n"}))
    cleaning = Startup(frozenset((CLEANING,)), {}, {}, ())
    chosen = given(LLAMA_ARG_MODEL=model)
    found = faults(prove_model(running(asked, cleaning), "a.service", LLAMA, chosen))
    assert [said in what for what in found] == ([True] if said else [])
    never = Startup(frozenset(), {}, {}, ())
    assert list(prove_model(running(asked, never), "a.service", LLAMA, chosen)) == []


def test_a_library_that_stands_for_the_drivers(tmp_path: Path) -> None:
    files: dict[str, Content] = {
        "/usr/lib/libcuda.so.1": b"driver",
        "/opt/stubs/libcuda.so.1": b"stub",
        "/opt/links/libcuda.so.1": Link("/usr/lib/libcuda.so.1"),
    }
    expected = Expectations(libraries=("/usr/lib/libcuda.so.1",))
    asked = subject(make_tree(tmp_path, files), expectations=expected, run=Sandbox({"env": ""}))

    def told(folders: str) -> list[str]:
        return faults(prove_search(asked, "a.service", [SERVER], given(LD_LIBRARY_PATH=folders)))

    (what,) = told("/opt/none:/opt/stubs:/usr/lib")
    assert "load /opt/stubs/libcuda.so.1 instead of /usr/lib/libcuda.so.1" in what
    assert [told(folders) for folders in ("/usr/lib:/opt/stubs", "/opt/links", "/opt/none:")] == [
        [], [], [],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "value", "rule", "told"),
    [
        ("UCX_NET_DEVICES", "mlx5_0:1", "rdma_rename %k NAME_FALLBACK", 1),
        ("NCCL_IB_HCA", "=mlx5_0,mlx5_1", "rdma_rename %k NAME_PCI", 1),
        ("NCCL_IB_HCA", "rocep1s0", "rdma_rename %k NAME_PCI", 0),
        ("NCCL_IB_HCA", "mlx5_0", "rdma_rename %k NAME_KERNEL", 0),
        ("NCCL_IB_HCA", "mlx5_0", "", 0),
        ("NAME", "mlx5_0", "rdma_rename %k NAME_PCI", 0),
    ],
)
def test_adapters_that_udev_renames(
    name: str, value: str, rule: str, told: int, tmp_path: Path
) -> None:
    text = f'ACTION=="add", PROGRAM="{rule}"\n' if rule else ""
    rules = "/usr/lib/udev/rules.d/60-rdma-persistent-naming.rules"
    asked = subject(make_tree(tmp_path, {rules: text}))
    assert len(warnings(prove_interfaces(asked, "a.service", given(**{name: value})))) == told


@pytest.mark.parametrize(
    ("environment", "jobs", "told"),
    [
        ({"LLAMA_ARG_RPC": "node1:50052"}, (), 1),
        ({"LLAMA_ARG_RPC": "node1:50052"}, ("llama-rpc-server.service",), 0),
        ({"LLAMA_ARG_RPC": ""}, (), 0),
        ({}, (), 0),
    ],
)
def test_devices_that_no_node_lends(
    environment: dict[str, str], jobs: tuple[str, ...], told: int
) -> None:
    startup = Startup(frozenset(jobs), {}, {}, ())
    assert len(warnings(prove_lent(startup, line(SERVER, **environment), LLAMA))) == told


def test_an_engine_is_not_asked_about_other_machines(tmp_path: Path) -> None:
    sandbox = Sandbox({"env": ""})
    given_line = line(SERVER, "--rpc", "node2:50052", LLAMA_ARG_RPC="node1:50052", A="1")
    assert list(prove_accepted(subject(tmp_path, run=sandbox), given_line, LLAMA)) == []
    assert sandbox.asked == [("env", "A=1", SERVER, "--list-devices")]


@pytest.mark.parametrize(
    ("values", "files", "told"),
    [
        ("LLAMA_RPC_HOST=192.168.1.11", {}, 1),
        ("LLAMA_RPC_HOST=fd00::11", {}, 1),
        (
            "LLAMA_RPC_HOST=192.168.1.11",
            {"/etc/systemd/network/9.network": "[Network]\nAddress=192.168.1.11/24\n"},
            0,
        ),
        ("LLAMA_RPC_HOST=0.0.0.0", {}, 0),
        ("LLAMA_RPC_HOST=127.0.0.1", {}, 0),
        ("LLAMA_RPC_HOST=node1", {}, 0),
        ("OTHER_HOST=192.168.1.11", {}, 0),
    ],
)
def test_an_address_of_one_node(
    values: str, files: dict[str, Content], told: int, tmp_path: Path
) -> None:
    asked = subject(make_tree(tmp_path, files), listens=("50052/tcp",))
    asked.__dict__["shipped"] = {}
    settings = {"Environment": (values, "LLAMA_RPC_PORT=50052"), "Unit Load State": ("loaded",)}
    lends = LoadedUnit("a.service", ("/etc/systemd/system/a.service",), settings)
    startup = Startup(frozenset(("a.service",)), {}, {"a.service": lends}, ())
    assert len(warnings(prove_hosts(running(asked, startup)))) == told


@pytest.mark.parametrize(
    ("name", "value", "words", "told"),
    [
        ("GLOO_SOCKET_IFNAME", "eth0", (), 1),
        ("NCCL_SOCKET_IFNAME", "=eth0,eth1", (), 1),
        ("UCX_NET_DEVICES", "eth0:1", (), 1),
        ("NCCL_SOCKET_IFNAME", "eth0", ("net.ifnames=0",), 0),
        ("NCCL_SOCKET_IFNAME", "^lo,docker", (), 0),
        ("NCCL_SOCKET_IFNAME", "enp1s0", (), 0),
        ("UCX_NET_DEVICES", "mlx5_0:1", (), 0),
        ("NAME", "eth0", (), 0),
    ],
)
def test_nics_that_no_node_has(
    name: str, value: str, words: tuple[str, ...], told: int, tmp_path: Path
) -> None:
    asked = subject(tmp_path, cmdline=words)
    assert len(faults(prove_interfaces(asked, "a.service", given(**{name: value})))) == told
    found = prove_interfaces(asked, "everybody", given(**{name: value}), uses=False)
    assert len(warnings(found)) == told


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("GPU-5a1c9d3e-0b7f-4c62-9d18-3f6e2a7b4c90", "names a card by its UUID"),
        ("MIG-1f", "names a card by its UUID"),
        ("1", "a node with fewer devices"),
        ("0", ""),
    ],
)
def test_a_card_of_one_node(value: str, said: str) -> None:
    found = prove_selection("a.service", ("cuda",), given(CUDA_VISIBLE_DEVICES=value))
    assert [said in what for what in warnings(found)] == ([True] if said else [])


@pytest.mark.parametrize(
    ("guard", "is_told"),
    [
        ("/usr/libexec/find-gpus ROCm Vulkan", False),  # that of the first one
        ("/usr/libexec/find-gpus ROCm", False),
        ("/usr/libexec/find-gpus CPU", True),  # is content without a card
        ("-/usr/libexec/find-gpus ROCm", True),  # its failure is ignored
        ("/usr/libexec/gone ROCm", True),  # cannot run
        ("/usr/bin/test -e /models/a", True),
        ("", True),
    ],
)
def test_checks_of_a_second_service(guard: str, is_told: bool, tmp_path: Path) -> None:  # noqa: FBT001
    line = f"ExecStartPre={guard}\n" if guard else ""
    tree = make_tree(
        tmp_path, {"/etc/systemd/system/b.service": f"[Service]\n{line}ExecStart={SERVER}\n"}
    )
    run = Sandbox(
        {
            "env /usr/libexec/find-gpus ROCm": Completed(1, "", "no device"),
            "env /usr/libexec/find-gpus CPU": "CPU0\n",
        }
    )
    first = unit({"ExecStartPre": ("/usr/libexec/find-gpus", "ROCm", "Vulkan")})
    words = tuple(guard.removeprefix("-").split())
    guards = {"ExecStartPre": (words,)} if guard else {}
    second = LoadedUnit("b.service", (), {}, {**guards, "ExecStart": ((SERVER,),)})
    both = {"a.service": first, "b.service": second}
    found = faults(
        prove_others(
            running(subject(tree, run=run), Startup(frozenset(both), {}, both, ())),
            first,
            SERVER,
            (),
        )
    )
    assert ["without the check for the device" in what for what in found] == [True] * is_told


def test_checks_of_many_services_are_not_all_run(tmp_path: Path) -> None:
    guard = "/usr/libexec/check-"
    names = [f"b{number}.service" for number in range(MOST_CHECKS + 5)]
    text = f"[Service]\nExecStartPre={guard}%p\nExecStart={SERVER}\n"
    tree = make_tree(tmp_path, {f"/etc/systemd/system/{name}": text for name in names})
    run = Sandbox({f"env {guard}": Completed(1, "", "no device")})
    units = {name: LoadedUnit(name, (), {}, {"ExecStart": ((SERVER,),)}) for name in names}
    startup = Startup(frozenset(units), {}, units, ())
    found = faults(prove_others(running(subject(tree, run=run), startup), unit(), SERVER, ()))
    assert (len(run.asked), len(found)) == (MOST_CHECKS, 5)
