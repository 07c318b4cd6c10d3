"""Write requirements-hashes.txt: the pins of requirements.txt, each with the hashes of its wheels.

    python site/lock_hashes.py    # a minute, with a network; needs uv

The set-up of `make` installs this file first, so that pip refuses a package that was changed after
its version was pinned. It lists the wheels for CPython 3.11 to 3.14 on Linux, macOS and Windows.
torch is left out: its builds for CPUs and for each kind of GPU share one version, and the index that
a reader has chosen decides which of them is installed.
"""

import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from packaging.tags import Tag
from packaging.utils import canonicalize_name, parse_wheel_filename

ROOT = Path(__file__).resolve().parent.parent
PINS, LOCK = ROOT / "requirements.txt", ROOT / "requirements-hashes.txt"
HEAD = """# The pins of requirements.txt with the hashes of their wheels. `python site/lock_hashes.py` writes
# this file; torch is not in it, because its builds for CPUs and GPUs share one version.
"""
UNLOCKED = {"torch"}
MINORS = range(11, 15)
"""Versions 3.x of Python."""
PLATFORM = re.compile(
    r"any|manylinux\w+_(x86_64|aarch64)|macosx_\w+_(arm64|x86_64|universal2)|win_(amd64|arm64)"
)


def pins(text: str) -> dict[str, str]:
    """Return {name: version} of the pins in a file of requirements, in their order."""
    return dict(re.findall(r"^([\w.-]+)==([\w.+!-]+)", text, flags=re.M))


def is_wanted(tag: Tag) -> bool:
    """Return whether one of the Pythons and platforms installs wheels of a tag."""
    python = re.fullmatch(r"(py|cp)3(\d*)", tag.interpreter)
    if python is None or PLATFORM.fullmatch(tag.platform) is None:
        return False
    if python[1] == "py" or tag.abi == "abi3":  # and all later ones
        return int(python[2] or 0) <= MINORS[-1]
    return tag.abi in {f"cp3{minor}" for minor in MINORS}


def wheel_hashes(files: Iterable[dict]) -> list[str]:
    """Return the SHA-256 of the wanted wheels among a package's files."""
    hashes = []
    for file in files:
        name = file.get("name") or file["url"].rpartition("/")[2]
        if any(is_wanted(tag) for tag in parse_wheel_filename(name)[3]):
            hashes.append(file["hashes"]["sha256"])
    return sorted(hashes)


def locked(versions: dict[str, str], packages: list[dict]) -> str:
    """Return the text of the lock.

    Raises:
        ValueError: a pin has no wheel, or another version than the packages.
    """
    found = {canonicalize_name(package["name"]): package for package in packages}
    lines = []
    for name, version in versions.items():
        if name in UNLOCKED:
            continue
        package = found.get(canonicalize_name(name), {})
        hashes = wheel_hashes(package.get("wheels", ()))
        if package.get("version") != version or not hashes:
            raise ValueError(f"{name}=={version}: no wheels of this version were listed")
        lines.append(
            " ".join([f"{name}=={version}", *(f"--hash=sha256:{each}" for each in hashes)])
        )
    return HEAD + "\n".join(lines) + "\n"


def main() -> None:
    """Ask the index for the files of every pin, and write the lock."""
    if not shutil.which("uv"):
        raise SystemExit("uv is needed here: pip install uv")
    with TemporaryDirectory() as folder:
        path = Path(folder, "pylock.toml")
        command = ["uv", "pip", "compile", "--quiet", "--no-deps", "--universal", "--no-header"]
        options = ["--python-version", "3.11.9", "--format", "pylock.toml", "--output-file", path]
        subprocess.run([*command, *options, PINS], check=True, cwd=ROOT)
        packages = tomllib.loads(path.read_text("utf-8"))["packages"]
    LOCK.write_text(locked(pins(PINS.read_text("utf-8")), packages), "utf-8")
    print(LOCK.name, f"{LOCK.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
