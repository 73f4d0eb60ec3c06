"""Writing, and what the command says about it."""

import array
import subprocess

import pytest

import kakehi


def verify(path):
    try:
        command = kakehi.command()
    except FileNotFoundError as missing:
        pytest.skip(str(missing))
    subprocess.run([command, "multifile", "verify", str(path)], check=True, timeout=60)


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "a.sion"
    parts = [bytes([task]) * 3000 * task for task in range(5)]
    with kakehi.Multifile(path, "w", tasks=5, chunk_size=1000, checksums=True) as multifile:
        assert len(multifile) == 5
        for task, part in enumerate(parts):
            assert multifile.write(task, part[:1500]) + multifile.write(task, part[1500:]) == len(
                part
            )
            assert multifile.size(task) == len(part)
        multifile.flush(durable=True)
        with pytest.raises(ValueError, match="being written"):
            multifile.read(0)
    with kakehi.Multifile(path) as multifile:
        assert [multifile[task] for task in range(5)] == parts
        assert all(multifile.verify(task) for task in range(5))
        with pytest.raises(ValueError, match="open for reading"):
            multifile.write(0, b"x")
    verify(path)


def test_buffers_of_any_kind_are_written(tmp_path):
    data = array.array("d", range(100))
    with kakehi.Multifile(tmp_path / "a", "w", chunk_size=[800, 10]) as multifile:
        assert multifile.write(0, data) == 800
        assert multifile.write(1, memoryview(b"0123456789")[::2]) == 5
        assert multifile.write(1, bytearray(b"xy")) == 2
    with kakehi.Multifile(tmp_path / "a") as multifile:
        assert multifile[0] == data.tobytes() and multifile[1] == b"02468xy"


def test_set_of_several_files_is_one_multifile(tmp_path):
    with kakehi.Multifile(tmp_path / "a", "w", tasks=5, files=2, chunk_size=10) as multifile:
        for task in range(5):
            multifile.write(task, b"%d" % task)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "a.000001"]
    with kakehi.Multifile(tmp_path / "a") as multifile:
        assert [task.file for task in multifile.tasks] == [0, 0, 1, 1, 1]
        assert [multifile[task] for task in range(5)] == [b"%d" % task for task in range(5)]


def test_records_keep_their_keys(tmp_path):
    with kakehi.Multifile(tmp_path / "a", "w", tasks=1, keyval=True) as multifile:
        multifile.write_key(0, 7, b"seven")
        multifile.write_key(0, 2**64 - 1, b"")
        multifile.write_key(0, 7, b"again")
    with kakehi.Multifile(tmp_path / "a") as multifile:
        assert multifile.records(0) == [(7, 5), (2**64 - 1, 0), (7, 5)]
        assert multifile.read_key(0, 7) == [b"seven", b"again"]
        assert multifile.read_key(0, 2**64 - 1) == [b""] and multifile.read_key(0, 1) == []


def test_failed_block_leaves_the_multifile_unclosed(tmp_path):
    with pytest.raises(ZeroDivisionError):
        with kakehi.Multifile(tmp_path / "a", "w", tasks=1) as multifile:
            multifile.write(0, b"half")
            multifile.flush()
            1 / 0
    with pytest.raises(kakehi.UnclosedError):
        kakehi.Multifile(tmp_path / "a")


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({}, "number of tasks"),
        ({"tasks": 2, "chunk_size": [1]}, "chunk sizes"),
        ({"tasks": 1, "fs_block_size": 0}, "block size"),
    ],
)
def test_wrong_arguments_are_refused_before_a_file_is_made(tmp_path, options, why):
    with pytest.raises(ValueError, match=why):
        kakehi.Multifile(tmp_path / "a", "w", **options)
    assert not (tmp_path / "a").exists()


def test_task_that_is_not_there_is_refused(tmp_path):
    with kakehi.Multifile(tmp_path / "a", "w", tasks=1) as multifile:
        with pytest.raises(ValueError, match="task"):
            multifile.write(1, b"x")


def test_streams_take_what_they_are_opened_for(tmp_path):
    with kakehi.Multifile(tmp_path / "plain", "w", tasks=1, chunk_size=100) as multifile:
        multifile.write(0, b"hello")
        with pytest.raises(ValueError, match="keyval=True"):
            multifile.write_key(0, 1, b"x")
    assert kakehi.Multifile(tmp_path / "plain")[0] == b"hello"
    keyed = tmp_path / "keyed"
    with kakehi.Multifile(keyed, "w", tasks=1, chunk_size=100, keyval=True) as multifile:
        multifile.write_key(0, 1, b"x")
        with pytest.raises(ValueError, match="write_key"):
            multifile.write(0, b"hello")
    assert kakehi.Multifile(keyed).read_key(0, 1) == [b"x"]
    verify(keyed)


@pytest.mark.parametrize("tasks", [-1, 10**7, 2**31, 2**70])
def test_numbers_of_tasks_that_cannot_be_are_refused(tmp_path, tasks):
    with pytest.raises(ValueError, match="tasks"):
        kakehi.Multifile(tmp_path / "a", "w", tasks=tasks)
    assert list(tmp_path.iterdir()) == []
