"""Turns symbolic functions and C files into the compiled artefacts that `companion.core.kernel` loads."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from companion.core.disk import put_in_place
from companion.core.errors import UserError
from companion.core.kernel import artifact, is_built

if TYPE_CHECKING:
    import casadi

CFLAGS = ("-O3", "-fPIC", "-shared", "-std=c11", "-fno-math-errno")


class CompileError(UserError):
    """The C compiler is absent or failed; the message is its first error."""


def compiler() -> str:
    """The C compiler: $CC, else cc or gcc on the PATH."""
    for candidate in (os.environ.get("CC"), "cc", "gcc", "clang"):
        if candidate and shutil.which(candidate.split()[0]):
            return candidate
    raise CompileError("no C compiler found: install gcc (Debian: apt-get install gcc libc6-dev) or set CC")


def compile_library(name: str, print_: str, sources: Iterable[Path], flags: Iterable[str] = ()) -> Path:
    """Compile C sources into the artefact (name, fingerprint) unless it is built; returns the library's path.

    The library appears under its name only when it is complete and on the disk. An interrupted build or a loss of power
    therefore leaves no incomplete library behind, and two builds may run at the same time.
    """
    target = artifact(name, print_)
    if is_built(target):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        output = Path(scratch) / target.name
        command = [*compiler().split(), *CFLAGS, *map(str, sources), "-o", str(output), *flags, "-lm"]
        result = subprocess.run(command, capture_output=True, text=True)
        if result.returncode != 0:
            lines = [line for line in result.stderr.splitlines() if line.strip()]
            message = next((line for line in lines if "error" in line), lines[-1] if lines else "no message")
            raise CompileError(f"{name}: {command[0]} ended with status {result.returncode}: {message.strip()}")
        put_in_place(output, target)
    return target


def compile_functions(
    name: str,
    print_: str,
    functions: "Iterable[casadi.Function]",
    sources: Iterable[Path] = (),
    flags: Iterable[str] = (),
) -> Path:
    """Generate C for CasADi functions and compile it into one artefact; returns the library's path.

    functions: every output is made dense, because `companion.core.kernel.Kernel` binds dense buffers. sources, flags: C
    files that call them, and compiler flags.
    """
    target = artifact(name, print_)
    if is_built(target):
        return target
    import casadi  # here, because only generation needs it

    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        generator = casadi.CodeGenerator(f"{name}_model.c")
        for function in functions:
            symbols = [casadi.MX.sym(function.name_in(i), *function.size_in(i)) for i in range(function.n_in())]
            if all(function.sparsity_out(i).is_dense() for i in range(function.n_out())):
                generator.add(function)
                continue
            outputs = function.call(symbols, True, False)
            generator.add(
                casadi.Function(function.name(), symbols, [casadi.densify(o) for o in outputs]).expand()
                if function.is_a("SXFunction")
                else casadi.Function(function.name(), symbols, [casadi.densify(o) for o in outputs])
            )
        generator.generate(scratch + os.sep)
        return compile_library(name, print_, [Path(scratch) / f"{name}_model.c", *sources], flags)
