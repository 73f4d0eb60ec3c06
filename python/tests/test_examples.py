"""The examples run as they are."""

import pathlib
import shutil
import subprocess
import sys

import pytest

import kakehi

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"


def example(name, *words, launcher=()):
    said = subprocess.run(
        [*launcher, sys.executable, str(EXAMPLES / name), *map(str, words)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert said.returncode == 0, said.stderr
    return said.stdout


def test_arrays_are_stored_and_mapped(tmp_path):
    pytest.importorskip("numpy")
    assert "4 tasks, sum 1999000.0" in example("arrays.py", tmp_path / "a.sion")


def test_ranks_write_one_file_and_read_it_with_fewer(tmp_path):
    pytest.importorskip("mpi4py")
    mpirun = shutil.which("mpirun")
    if mpirun is None:
        pytest.skip("no mpirun")
    flags = ["--allow-run-as-root", "--oversubscribe"]
    version = subprocess.run([mpirun, "--version"], capture_output=True, text=True, check=True)
    flags = flags if "Open MPI" in version.stdout else []
    path = tmp_path / "ranks.sion"
    assert "4 ranks" in example("ranks.py", path, launcher=[mpirun, *flags, "-n", "4"])
    with kakehi.Multifile(path) as multifile:
        assert len(multifile) == 4 and multifile.info["files"] == 2
        assert [multifile[task][:1] for task in range(4)] == [b"0", b"1", b"2", b"3"]


def test_zarr_group_is_read_from_a_container(tmp_path):
    pytest.importorskip("zarr")
    pytest.importorskip("fsspec")
    try:
        command = kakehi.command()
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    said = example("zarr_group.py", tmp_path, command)
    assert "read 1000000 numbers" in said
