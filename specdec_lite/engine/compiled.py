"""Compile a C file for the processor of this machine, once, and load it.

The library is stored in the cache folder. Its name contains a hash of everything that it depends on:
the source, the compiler, the flags and the processor.
"""

import ctypes
import os
import shlex
import shutil
import subprocess
import warnings
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from specdec_lite.engine.processor import processor

FLAGS = ("-O3", "-std=gnu11", "-ffp-contract=fast", "-fno-tree-ter", "-shared", "-fPIC")
"""GCC's tree-ter moves statements apart, after which the sums of several rows leave the registers."""
COMPILERS = ("cc", "gcc", "clang")
"""Names that are tried if the environment sets no CC."""
SECONDS = 300
"""Time after which a compiler is given up."""
OFF = "SPECDEC_COMPILE"
"""Environment variable: "0" compiles nothing, a name such as "x86-64-v3" for that processor."""


def cache_folder() -> Path:
    """Return the folder for what is made once: SPECDEC_CACHE if the environment sets it, else
    `specdec_lite` in XDG_CACHE_HOME or ~/.cache.
    """
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("SPECDEC_CACHE") or Path(caches, "specdec_lite"))


def compiler() -> list[str]:
    """Return the command of the C compiler; empty if there is none."""
    for name in [os.environ["CC"]] if os.environ.get("CC") else COMPILERS:
        command = shlex.split(name)
        if path := shutil.which(command[0]):
            return [path, *command[1:]]
    return []


def library(source: Path, flags: tuple[str, ...] = ()) -> ctypes.CDLL | None:
    """Return a C file as a library, compiled now if it has not been.

    Returns None if the environment forbids it, if there is no compiler or, with a warning, if the
    compiler fails or the cache cannot be written.
    """
    command = compiler()
    if os.environ.get(OFF) == "0" or not command:
        return None
    kind = os.environ.get(OFF, "")
    flags = flags or (f"-march={kind if '-' in kind else 'native'}",)
    about = os.stat(command[0])
    version = (*command, about.st_size, about.st_mtime_ns, *FLAGS, *flags, processor())
    digest = sha256(source.read_bytes() + repr(version).encode()).hexdigest()[:16]
    path = cache_folder() / "compiled" / f"{source.stem}-{digest}.so"
    try:
        if not path.is_file():
            build([*command, *FLAGS, *flags, str(source), "-lm"], path)
        if not is_ours(path):
            raise OSError(f"{path} belongs to another user, or others may write to it")
        return ctypes.CDLL(str(path))
    except (OSError, subprocess.SubprocessError) as error:
        output = getattr(error, "stderr", None) or str(error)
        reason = next((line for line in output.splitlines() if "error" in line.lower()), output)
        warnings.warn(
            f"{source.name} could not be compiled, so that passes over several tokens take longer:"
            f" {' '.join(reason.split())[:300]} (set {OFF}=0 to compile nothing)",
            stacklevel=2,
        )
        return None


def build(command: list[str], path: Path) -> None:
    """Run a compiler, and move its result to `path` in one step."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(
        prefix=f"{path.stem}-", dir=path.parent, ignore_cleanup_errors=True
    ) as scratch:
        result = Path(scratch, path.name)
        subprocess.run(
            [*command, "-o", str(result)],
            check=True,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
        )
        result.chmod(0o755)
        os.replace(result, path)


def is_ours(path: Path) -> bool:
    """Return whether only this user and the system's administrator can have written a file."""
    about = path.stat()
    return about.st_uid in (0, os.getuid()) and not about.st_mode & 0o022
