"""fsspec protocols, containers, and zarr."""

import pytest
from conftest import GOLDEN

import kakehi

fsspec = pytest.importorskip("fsspec")


def test_tasks_are_files_of_sion():
    path = GOLDEN / "mpi_n7_f3.sion"
    data = kakehi.Multifile(path)
    files = fsspec.filesystem("sion", fo=str(path))
    assert files.ls("", detail=False) == [str(task) for task in range(7)]
    assert files.info("3")["size"] == data.size(3) and files.info("3")["global_rank"] == 3
    assert files.cat("3") == data[3] and files.cat_file("3", 5, 9) == data[3][5:9]
    with fsspec.open(f"sion://3::{path}") as stream:
        assert stream.read() == data[3]
    with pytest.raises(FileNotFoundError):
        files.cat("7")
    with pytest.raises(ValueError, match="read-only"):
        files.open("3", "wb")


def test_remote_multifiles_are_refused_by_name():
    with pytest.raises(ValueError, match="not local"):
        fsspec.filesystem("sion", fo="x", target_protocol="s3")


def test_names_of_a_container_are_files_of_kakehi(container):
    with kakehi.Multifile(container) as multifile:
        assert sorted(multifile.names) == ["empty", "out/a.txt", "out/deep/b.bin"]
        assert multifile["out/a.txt"] == b"first" and multifile["empty"] == b""
        assert multifile["link"] == b"first" and multifile.entries["link"].target == "out/a.txt"
        assert multifile.read("out/deep/b.bin", 4, 254) == b"\xfe\xff\x00\x01"
        with pytest.raises(FileNotFoundError):
            multifile.read("nothing")
        with pytest.raises(IsADirectoryError):
            multifile.read("out")
    files = fsspec.filesystem("kakehi", fo=str(container))
    assert sorted(files.ls("", detail=False)) == ["empty", "link", "out"]
    assert files.find("") == ["empty", "link", "out/a.txt", "out/deep/b.bin"]
    assert files.isdir("out/deep") and files.info("out/deep/b.bin")["size"] == 256000
    with fsspec.open(f"kakehi://out/deep/b.bin::{container}") as stream:
        stream.seek(256)
        assert stream.read(3) == b"\x00\x01\x02"


def test_samples_are_files_where_there_are_names(container):
    data = kakehi.MapDataset(container)
    assert len(data) == 3 and {data.key(index)[1] for index in range(3)} == {
        "empty",
        "out/a.txt",
        "out/deep/b.bin",
    }
    texts = kakehi.MapDataset(container, bytes.decode, select=lambda name: name.endswith(".txt"))
    assert [texts[index] for index in range(len(texts))] == ["first"]


def test_multifile_without_names_is_none_of_kakehi():
    with pytest.raises(ValueError, match="sion://"):
        fsspec.filesystem("kakehi", fo=str(GOLDEN / "ser_n1_tiny.sion"))
