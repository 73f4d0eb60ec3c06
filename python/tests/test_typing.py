"""The types that users see."""

import pathlib
import subprocess
import sys

import pytest

PROGRAM = """
import kakehi
from typing import Any

with kakehi.Multifile("a", "w", tasks=2, chunk_size=[1, 2]) as out:
    count: int = out.write(0, b"x")
with kakehi.Multifile("a") as stored:
    view: memoryview = stored.view(0)
    sizes: list[int] = [task.size for task in stored.tasks]
data: kakehi.MapDataset[int] = kakehi.MapDataset("a", len)
path: str = kakehi.command()
wrong: str = stored.read(0)
"""


def test_module_is_typed(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "program.py").write_text(PROGRAM)
    said = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "program.py"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=300,
    )
    errors = [line for line in said.stdout.splitlines() if "error:" in line]
    assert len(errors) == 1 and "wrong" not in errors[0], said.stdout + said.stderr
    assert 'variable has type "str"' in errors[0], said.stdout


def test_package_says_that_it_is_typed():
    import kakehi

    assert (pathlib.Path(kakehi.__file__).parent / "py.typed").is_file()
