# SPDX-License-Identifier: Apache-2.0
"""Check that the shipped binaries have code for the GPU targets that they must support."""

from __future__ import annotations

import mmap
import posixpath
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from imagebuilder.elf import Elf, find_elf
from imagebuilder.image.proof import Evidence, Finding, Findings, fact, fault, warning
from imagebuilder.offload import BUNDLE, COMPRESSED, TARGET
from imagebuilder.proof.code import cuda, hip, level_zero
from imagebuilder.proof.code.hip import find_kernels
from imagebuilder.proof.facts import FileFacts
from imagebuilder.proof.reading.code import CodeFile, CodeObject, Form, in_order
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.expectations import Code
from imagebuilder.root import Root
from imagebuilder.ui import format_count

MOST_EVIDENCE = 8
MIB = 1 << 20
LIBRARIES = ("/usr/lib/*-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")
DEBIAN = ("/usr/lib/*-linux-gnu/nvidia/*",)


@dataclass(frozen=True)
class Maker:
    """How the code of one vendor is read and described.

    `forward` is what the driver compiles, with the libraries `compilers` (globs) that it opens by
    name, so that no NEEDED lists them; `install` is the hint for a missing one, `elsewhere` the
    hint for missing code.
    """

    read: Callable[[Elf, str], list[CodeObject]]
    serves: Callable[[CodeObject, str], Form | None]
    code: str
    container: str
    forward: str
    elsewhere: str
    compilers: tuple[str, ...] = ()
    install: str = ""


HIP = Maker(
    hip.read_hip,
    lambda code, target: code.form if hip.serves(code, target) else None,
    "code object",
    "bundle",
    "",
    "use a build that has it, such as the vendor's ROCm, or compute with Vulkan, which compiles"
    " its shaders for every card",
)
NVIDIA = Maker(
    lambda file, _: cuda.read_cuda(file),
    cuda.serves,
    "cubin",
    "fat binary",
    "PTX",
    "build it with a CUDA that supports the target (sm_120: 12.8 or newer), or use a variant whose"
    " wheels have it",
    tuple(f"{folder}/libnvidia-ptxjitcompiler.so.*" for folder in (*LIBRARIES, *DEBIAN)),
    "install the compiler of the NVIDIA driver (libnvidia-ptxjitcompiler1)",
)
INTEL = Maker(
    lambda file, _: level_zero.read_level_zero(file),
    level_zero.serves,
    "module",
    "module",
    "SPIR-V",
    "use a build with SPIR-V, which the driver compiles for every card",
    tuple(f"{folder}/libigc.so.*" for folder in LIBRARIES),
    "install Intel's graphics compiler (libigc2 or intel-igc-core)",
)


def prove_code(subject: Subject) -> Findings:
    """Each expected binary has code that the target runs, or that the driver can compile."""
    for expected in subject.expectations.code:
        yield from prove_expected(subject.root, subject.code, expected)


def maker_of(target: str) -> Maker:
    if target.startswith("gfx"):
        return HIP
    return NVIDIA if target.startswith("sm_") else INTEL


def prove_expected(root: Root, code: FileFacts[CodeFile], expected: Code) -> Findings:
    maker = maker_of(expected.target)
    contents: dict[str, CodeFile] = {}
    read = partial(read_content, root, target=expected.target, maker=maker)
    for glob in expected.files:
        paths = [path for path in root.glob(glob) if root.is_file(path)]
        if not paths:
            yield no_file(root, glob, expected.target, maker)
            continue
        here = {path: code.of(path, read, expected.target) for path in paths}
        # Tensile's .dat files are solutions for kernels and not code.
        is_code = not all(path.endswith(".dat") for path in paths)
        if is_code and not any(content.objects for content in here.values()):
            yield no_code(glob, expected.target, maker)
        contents |= here
    # The same file may have several names (libcublas.so.12); kernel files are one thing together.
    unique = {root.resolve(path): content for path, content in contents.items() if content.objects}
    for content in unique.values():
        if not content.whole:
            yield prove_library(content, expected, maker)
    yield from prove_kernel_files([c for c in unique.values() if c.whole], expected, maker)
    if maker is HIP:
        yield from prove_tensile(root, list(contents), expected.target)
    if expected.accept == "forward":
        yield from prove_compiler(root, list(unique.values()), expected.target, maker)


def read_content(root: Root, path: str, *, target: str, maker: Maker) -> CodeFile:
    place = root.host(path)
    assert place is not None
    if file := find_elf(place):
        objects = tuple(maker.read(file, target))
        return CodeFile(path, objects, any(not o.section for o in objects))
    if maker is HIP:
        with place.open("rb") as plain:
            if plain.read(4) in (BUNDLE[:4], COMPRESSED):
                with mmap.mmap(plain.fileno(), 0, prot=mmap.PROT_READ) as data:
                    at = hip.reader(data)
                    objects = tuple(hip.read_bundle(at, 0, wanted=target))
                    return CodeFile(path, objects, whole=True)
        if path.endswith(hip.KERNELS):
            problem = "is neither a complete ELF file nor a bundle"
            cut = CodeObject("", Form.NATIVE, 0, "", problem=problem)
            return CodeFile(path, (cut,), whole=True)
    if maker is INTEL:
        return CodeFile(path, tuple(level_zero.read_module(root.read(path) or b"")), whole=True)
    return CodeFile(path, (), whole=False)


def no_file(root: Root, glob: str, target: str, maker: Maker) -> Finding:
    folder = posixpath.dirname(glob)
    others = {
        name
        for place in root.glob(folder)
        for file in root.names(place)
        for name in TARGET.findall(file)
    }
    if others:
        what = f"no code for {target}: {folder} has kernels for {' '.join(in_order(others))}"
        return fault(what, Evidence(glob, said=" ".join(in_order(others))), hint=maker.elsewhere)
    what = f"no code for {target}: no file matches {glob}"
    hint = "install the package that has it, or exclude it from `prune:` and `slim:`"
    return fault(what, Evidence(glob, said="matches no file"), hint=hint)


def no_code(glob: str, target: str, maker: Maker) -> Finding:
    what = f"no code for {target}: nothing in {glob} carries a {maker.code}"
    hint = "it was built for the processor, or its code was removed: " + maker.elsewhere
    return fault(what, Evidence(glob, said=f"no {maker.code}"), hint=hint)


def prove_library(content: CodeFile, expected: Code, maker: Maker) -> Finding:
    target, name = expected.target, content.name
    served = [(o, form) for o in content.objects if (form := maker.serves(o, target))]
    broken = [o for o, _ in served if o.problem] + [o for o in content.objects if not o.target]
    sections = " ".join(dict.fromkeys(o.section for o in content.objects))
    if broken:
        among = max(len(served), len(broken))
        return fault(
            f"code for {target} in {name} is damaged: {len(broken)} of {among} {maker.code}s, "
            f"the first of which {broken[0].problem}",
            *(
                Evidence(content.path, o.section, f"{maker.container} {o.container}", o.problem)
                for o in broken[:MOST_EVIDENCE]
            ),
            hint="reinstall its package; if `slim:` damaged it, exclude it from `slim:`",
        )
    evidence = (Evidence(content.path, sections, said=content.targets),)
    if not served:
        what = f"no code for {target}: {name} has {content.targets}"
        return fault(what, *evidence, hint=maker.elsewhere)
    native = [o for o, form in served if form is Form.NATIVE]
    if not native:
        return forward_only(content, expected, maker, evidence)
    return fact(f"{name} has code for {target}: {amount(native, content, maker)}", *evidence)


def amount(native: list[CodeObject], content: CodeFile, maker: Maker) -> str:
    """`140 code objects, 138 MiB`, with the number of bundles if it is not in all."""
    text = format_count(len(native), maker.code)
    size = sum(o.size for o in native)
    text += f", {size // MIB} MiB" if size >= MIB else f", {size // 1024} KiB"
    have = {(o.section, o.container) for o in native}
    every = {(o.section, o.container) for o in content.objects if o.form is Form.NATIVE}
    if len(have) < len(every):
        text += f", in {len(have)} of {format_count(len(every), maker.container)}"
    return text


def forward_only(
    content: CodeFile, expected: Code, maker: Maker, evidence: tuple[Evidence, ...]
) -> Finding:
    what = f"{maker.forward} only: {content.name} has no native code for {expected.target}"
    if expected.accept != "forward":
        return fault(what, *evidence, hint=maker.elsewhere)
    if maker is INTEL:
        said = f"{content.name} has SPIR-V, which the driver compiles for {expected.target}"
        return fact(said, *evidence)
    return warning(
        f"{what}; the driver compiles it at first use, which can take minutes",
        *evidence,
        hint=(
            "keep the cache of compiled code (~/.nv/ComputeCache, CUDA_CACHE_PATH) on a disk, or "
            + maker.elsewhere
        ),
    )


def prove_kernel_files(contents: list[CodeFile], expected: Code, maker: Maker) -> Findings:
    """Findings about files with one code object each, such as rocBLAS's, taken together."""
    target = expected.target
    good, size = [], 0
    for content in contents:
        served = [o for o in content.objects if maker.serves(o, target)]
        problem = next((o.problem for o in content.objects if o.problem), "")
        if problem or (not served and target in TARGET.findall(content.name)):
            said = problem or f"is for {content.targets}"
            what = f"{content.name} is not code for {target}: it {said}"
            yield fault(what, Evidence(content.path, said=said), hint="reinstall its package")
        elif served:
            good.append(content)
            size += sum(o.size for o in served)
    if good:
        folders = sorted({posixpath.dirname(content.path) for content in good})
        yield fact(
            f"{len(good)} kernel files for {target}, {size // MIB} MiB",
            *(Evidence(folder, said=f"for {target}") for folder in folders[:MOST_EVIDENCE]),
        )
    elif contents:
        others = in_order({o.target for c in contents for o in c.objects})
        yield fault(
            f"no code for {target}: {len(contents)} kernel files are for {' '.join(others)}",
            *(Evidence(c.path, said=c.targets) for c in contents[:MOST_EVIDENCE]),
            hint=maker.elsewhere,
        )


def prove_tensile(root: Root, files: list[str], target: str) -> Findings:
    for kernels in find_kernels(root, files, target):
        index = f"{kernels.folder}/{kernels.index}"
        if kernels.missing:
            yield fault(
                f"kernels for {target} were removed: {len(kernels.missing)} of the "
                f"{max(len(kernels.named), len(kernels.missing))} libraries lack "
                f"{kernels.missing[0]}" + (" and others" if len(kernels.missing) > 1 else ""),
                *(
                    Evidence(f"{kernels.folder}/{name}", said=f"named by {kernels.index}")
                    for name in kernels.missing[:MOST_EVIDENCE]
                ),
                hint="exclude them from `prune:` and `slim:`: multiplying matrices of that type "
                "fails",
            )
        else:
            said = f"all {len(kernels.named)} libraries that {kernels.index} names are present"
            evidence = (Evidence(index, said=f"{len(kernels.named)} names"),)
            yield fact(said, *evidence)


def prove_compiler(root: Root, contents: list[CodeFile], target: str, maker: Maker) -> Findings:
    """Code that is compiled at first use needs the compiler that the driver opens."""
    ways = [{maker.serves(o, target) for o in content.objects} for content in contents]
    if not any(Form.FORWARD in forms and Form.NATIVE not in forms for forms in ways):
        return
    found = [path for path in root.glob(*maker.compilers) if root.is_file(path)]
    if found:
        said = f"{posixpath.basename(found[0])} compiles {maker.forward} for {target}"
        yield fact(said, Evidence(found[0]))
        return
    name = posixpath.basename(maker.compilers[0]).removesuffix(".*")
    what = f"{maker.forward} cannot be compiled for {target}: no {name}"
    yield fault(what, Evidence(maker.compilers[0], said="matches no file"), hint=maker.install)
