"""Which decoder runs and why, and how the compiled one gets into a wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

from cdc_outbox.binlog.accelerator import MODULE, PURE, decoder
from cdc_outbox.binlog.json_text import json_text
from cdc_outbox.binlog.packets import cut
from tests.harness.accelerator import SANITIZE

ROOT = Path(__file__).parents[3]
READS_MUCH = ["test_damage.py", "test_json_text.py", "test_packets.py", "test_row_loop.py", "test_whole.py"]


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PURE, raising=False)


@pytest.mark.parametrize(("value", "kind"), [("1", "pure"), ("yes", "pure"), ("0", "compiled"), ("", "compiled")])
def test_the_environment_decides(monkeypatch: pytest.MonkeyPatch, compiled: ModuleType, value: str, kind: str) -> None:
    monkeypatch.setitem(sys.modules, MODULE, compiled)
    assert decoder() == ("compiled", compiled.json_text, compiled.cut, compiled.rows, "")
    monkeypatch.setenv(PURE, value)
    assert decoder().kind == kind


def test_without_the_module_it_is_pure_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MODULE, None)
    assert decoder()[:4] == ("pure", json_text, cut, None)
    assert "is not there" in decoder().why


def test_a_module_of_other_sources_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MODULE, SimpleNamespace(SOURCE_CRC=1))
    assert decoder()[:4] == ("pure", json_text, cut, None)
    assert "install again" in decoder().why


def wheel(folder: Path, *, target: str = "standard", **environ: str) -> tuple[Path, str]:
    """The wheel, and what building it said."""
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", f"wheel:{target}", "-d", str(folder)],
        cwd=ROOT,
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=True,
    )
    (path,) = folder.iterdir()
    return path, done.stdout + done.stderr


def kind_in(wheel: Path, folder: Path) -> str:
    """What runs where nothing but this wheel is installed, printing a value on the way."""
    with zipfile.ZipFile(wheel) as packed:
        packed.extractall(folder)
    # What this environment has installed is none of the wheel's.
    hidden = "" if (folder / f"{MODULE}.abi3.so").exists() else f"sys.modules[{MODULE!r}] = None"
    program = (
        f"import sys; sys.path.insert(0, {str(folder)!r}); {hidden}\n"
        "from cdc_outbox.binlog.accelerator import decoder, __file__\n"
        "d = decoder(); print(d.kind, d.json_text(b'\\x05\\xff\\xff').decode(), __file__)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, check=True)
    kind, text, file = done.stdout.split()
    assert text == "-1" and Path(file).is_relative_to(folder)
    return kind


@pytest.mark.usefixtures("compiled")  # only where there is a compiler
def test_a_wheel_has_the_compiled_module(tmp_path: Path) -> None:
    path, _ = wheel(tmp_path / "wheel")
    assert "-cp311-abi3-" in path.name
    assert kind_in(path, tmp_path / "installed") == "compiled"


@pytest.mark.usefixtures("compiled")
def test_an_editable_wheel_has_it_too(tmp_path: Path) -> None:
    path, _ = wheel(tmp_path, target="editable")
    with zipfile.ZipFile(path) as packed:
        assert f"{MODULE}.abi3.so" in packed.namelist()


@pytest.mark.parametrize("compiler", ["none", "failing"])
def test_without_a_compiler_a_wheel_is_pure_and_says_so(tmp_path: Path, compiler: str) -> None:
    environ = {"PATH": str(tmp_path), "CC": ""} if compiler == "none" else {"CC": "false"}
    path, said = wheel(tmp_path / "wheel", **environ)
    assert path.name.endswith("-py3-none-any.whl")
    assert "without its accelerator" in said
    assert ("no C compiler" if compiler == "none" else "`false ") in said
    assert kind_in(path, tmp_path / "installed") == "pure"


@pytest.mark.long
@pytest.mark.usefixtures("compiled")
def test_nothing_is_read_or_written_out_of_bounds() -> None:
    """All that reads damaged bytes once more, under the address and undefined behaviour sanitizers."""
    found = subprocess.run(["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=False)
    library = Path(found.stdout.strip())
    if not library.is_absolute():
        pytest.skip("this compiler has no address sanitizer")
    folder = Path(__file__).parent
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(str(folder / name) for name in READS_MUCH)],
        cwd=ROOT,
        env={
            **os.environ,
            SANITIZE: "1",
            "LD_PRELOAD": str(library),
            "ASAN_OPTIONS": "detect_leaks=0",  # the interpreter frees little when it ends
            "PYTHONMALLOC": "malloc",  # so that it sees the end of each object
        },
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-5000:]
