"""Compiles cdc_outbox/binlog/accelerator.c: hatchling's build hook, and a command that builds it for this Python alone.

Without a C compiler or Python's headers it says so, and the package is built without: it then reads the binlog in pure
Python, with the same results.

    python scripts/build_accelerator.py FOLDER
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

SOURCE = Path(__file__).parents[1] / "cdc_outbox" / "binlog" / "accelerator.c"
FILE = "_cdc_outbox_accelerator.abi3.so"
_TAG = "cp311-abi3"
_OPTIMIZED = ("-O2",)


class NotBuilt(Exception):
    """There is no compiled module; the message says why."""


class CompilerFailed(NotBuilt):
    """There is a compiler, and it refused."""


def build(folder: Path, options: Sequence[str] = _OPTIMIZED) -> Path:
    """Compile into `folder`, which exists, with these options of the compiler. Raises NotBuilt."""
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise NotBuilt("this Python has no stable ABI")
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").exists():
        raise NotBuilt(f"Python's headers are not in {headers} (Debian and Ubuntu: python3-dev)")
    target = folder / FILE
    shared = ["-bundle", "-undefined", "dynamic_lookup"] if sys.platform == "darwin" else ["-shared", "-fPIC"]
    crc = f"-DSOURCE_CRC={crc32(SOURCE.read_bytes())}u"
    command = [*_compiler(), *options, *shared, "-std=c11", crc, f"-I{headers}", str(SOURCE), "-o", str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CompilerFailed(f"`{shlex.join(command)}` failed:\n{done.stderr.strip()}")
    return target


def _compiler() -> list[str]:
    """The words that call it. Raises NotBuilt."""
    wanted = (os.environ.get("CC"), sysconfig.get_config_var("CC"), "cc", "gcc", "clang")
    for words in (shlex.split(one) for one in wanted if one):
        if shutil.which(words[0]):
            return words
    raise NotBuilt("there is no C compiler on PATH (Debian and Ubuntu: gcc, libc6-dev)")


def get_build_hook() -> type[Any]:
    """What hatchling asks a hook's file for."""
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface  # noqa: PLC0415  (only there in a build)

    class AcceleratorHook(BuildHookInterface):  # type: ignore[type-arg]
        """Puts the compiled module into the wheel, at its root: a checkout that is installed need not be writable."""

        def initialize(self, version: str, build_data: dict[str, Any]) -> None:
            # A folder of its own, not removed before the wheel is written.
            self._folder = Path(self.directory) / f"accelerator-{os.getpid()}"
            self._folder.mkdir(parents=True)
            try:
                module = build(self._folder)
            except NotBuilt as error:
                self.app.display_warning(f"cdc-outbox is built without its accelerator, and will be slower: {error}")
                return
            build_data["force_include_editable" if version == "editable" else "force_include"][str(module)] = FILE
            build_data["pure_python"] = False
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"{_TAG}-{platform}"

        def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
            shutil.rmtree(self._folder, ignore_errors=True)

    return AcceleratorHook


def main(arguments: Sequence[str]) -> int:
    if len(arguments) != 1 or not Path(arguments[0]).is_dir():
        sys.stderr.write("Give the folder to build into: python scripts/build_accelerator.py FOLDER\n")
        return 2
    try:
        print(build(Path(arguments[0])))
    except NotBuilt as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
