"""Reading what SIONlib wrote."""

import pickle
import shutil
import subprocess
import sys

import pytest
from conftest import GOLDEN, cases, sha256

import kakehi

CLOSED = cases(closed=True, open_should_succeed=True)


@pytest.mark.parametrize("case", CLOSED, ids=lambda case: case["name"])
def test_every_golden_stream_has_its_digest(case):
    with kakehi.Multifile(GOLDEN / case["file"]) as multifile:
        assert len(multifile) == len(case["tasks"]) == len(multifile.tasks)
        assert multifile.info["keyval"] == case["keyval"]
        for wanted, task in zip(case["tasks"], multifile.tasks):
            assert (task.file, task.local_rank) == (wanted["file"], wanted["lrank"])
            assert task.global_rank == wanted["globalrank"]
            # Formats before 4 stored what was asked for, not what was reserved.
            if multifile.info["format_version"] >= 4:
                assert task.chunk_size == wanted["chunksize"]
            data = multifile[task.index]
            assert len(data) == task.size == multifile.size(task.index)
            if "sha256" in wanted and not case["keyval"]:
                assert sha256(data) == wanted["sha256"]
            assert b"".join(multifile.views(task.index)) == data
            with multifile.open(task.index) as stream:
                assert stream.read() == data


def test_golden_files_were_found():
    assert len(CLOSED) > 25


@pytest.mark.parametrize("case", cases(closed=False), ids=lambda case: case["name"])
def test_unclosed_file_is_told_from_a_damaged_one(case, tmp_path):
    with pytest.raises(kakehi.UnclosedError, match="never closed|not closed"):
        kakehi.Multifile(GOLDEN / case["file"])
    (tmp_path / "text").write_text("no multifile, whatever its length " * 100)
    with pytest.raises(kakehi.DamagedError):
        kakehi.Multifile(tmp_path / "text")


def test_missing_file_raises_what_open_does(tmp_path):
    with pytest.raises(FileNotFoundError) as raised:
        kakehi.Multifile(tmp_path / "nothing.sion")
    assert raised.value.filename == str(tmp_path / "nothing.sion")
    with pytest.raises(ValueError, match="neither"):
        kakehi.Multifile(tmp_path / "x", "a")


def test_parts_of_a_task_are_read_by_position():
    multifile = kakehi.Multifile(GOLDEN / "mpi_n3_250blocks.sion")
    data, length = multifile[1], multifile.size(1)
    for at, size in [(0, 10), (length // 2, 100), (length - 3, 100), (length, 5), (length + 9, 5)]:
        assert multifile.read(1, size, at) == data[at : at + size]
    buffer = bytearray(50)
    assert multifile.readinto(1, buffer, 7) == 50 and buffer == data[7:57]
    with multifile.open(1) as stream:
        stream.seek(20)
        assert stream.read(5) == data[20:25] and stream.tell() == 25
        stream.seek(-4, 2)
        assert stream.read() == data[-4:]
    with pytest.raises(ValueError, match="negative"):
        multifile.read(1, 1, -1)
    with pytest.raises(IndexError):
        multifile[3]
    with pytest.raises(ValueError, match="pieces"):
        multifile.view(1)


def test_view_outlives_the_multifile_and_is_read_only():
    multifile = kakehi.Multifile(GOLDEN / "ser_n1_tiny.sion")
    view, data = multifile.view(0), multifile[0]
    multifile.close()
    assert view == data and view.readonly and multifile.closed
    with pytest.raises(ValueError, match="closed"):
        multifile.read(0)


def test_array_is_a_view_of_the_file():
    numpy = pytest.importorskip("numpy")
    multifile = kakehi.Multifile(GOLDEN / "ser_n1_tiny.sion")
    array = numpy.frombuffer(multifile.view(0), dtype="u1")
    assert array.tobytes() == multifile[0] and not array.flags.owndata


@pytest.mark.parametrize("case", cases(closed=True, keyval=True), ids=lambda case: case["name"])
def test_records_are_found_by_key(case):
    multifile = kakehi.Multifile(GOLDEN / case["file"])
    for task in multifile.tasks:
        records = multifile.records(task.index)
        for key in {key for key, _ in records}:
            data = multifile.read_key(task.index, key)
            assert [len(one) for one in data] == [size for of, size in records if of == key]
    assert any(multifile.records(task.index) for task in multifile.tasks)


def test_samples_are_tasks_that_workers_open_again():
    data = kakehi.MapDataset([GOLDEN / "mpi_n7_f3.sion", GOLDEN / "ser_n1_tiny.sion"], len)
    assert len(data) == 8 and data.key(7) == (str(GOLDEN / "ser_n1_tiny.sion"), 0)
    sizes = [kakehi.Multifile(GOLDEN / "mpi_n7_f3.sion").size(task) for task in range(7)]
    assert [data[index] for index in range(7)] == sizes and data[-1] == 57
    assert data.__getitems__([6, 0, -1]) == [sizes[6], sizes[0], 57]
    assert pickle.loads(pickle.dumps(data))[3] == sizes[3]
    with pytest.raises(IndexError):
        data[8]
    odd = kakehi.MapDataset(GOLDEN / "mpi_n7_f3.sion", select=lambda task: task % 2 == 1)
    assert len(odd) == 3 and sha256(odd[2]) == sha256(kakehi.Multifile(odd.paths[0])[5])


def test_import_is_short_and_brings_no_large_module():
    program = (
        "import sys, time; began = time.process_time(); import kakehi;"
        "print(time.process_time() - began);"
        "print([name for name in ('numpy', 'torch', 'fsspec', 'mpi4py', 'mmap', 'asyncio')"
        " if name in sys.modules])"
    )
    times = []
    for _ in range(5):
        said = subprocess.run(
            [sys.executable, "-c", program], check=True, capture_output=True, text=True
        )
        seconds, loaded = said.stdout.splitlines()
        assert loaded == "[]"
        times.append(float(seconds))
    assert min(times) < 0.030, times


def test_damaged_names_are_shown_with_a_warning(container, tmp_path):
    path = tmp_path / "a" / container.name
    shutil.copytree(container.parent, path.parent)
    data = path.read_bytes()
    assert b"a.txt" in data
    path.write_bytes(data.replace(b"a.txt", b"a.tyt", 1))
    with pytest.warns(RuntimeWarning, match="names are damaged"):
        names = kakehi.Multifile(path).names
    assert "out/a.txt" not in names
