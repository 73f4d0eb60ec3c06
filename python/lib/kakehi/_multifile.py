"""The class :class:`Multifile`."""

from __future__ import annotations

import os
import posixpath
import stat
from typing import Any, NamedTuple, Optional, Sequence, Union

from ._kakehi import Reader, Writer

TYPE_CHECKING = False
if TYPE_CHECKING:
    import io
    from types import TracebackType

    _Path = Union[str, "os.PathLike[str]"]
    #: Whatever has the buffer protocol: bytes, bytearray, memoryview, numpy arrays.
    _Buffer = Any

DEFAULT_CHUNK_SIZE = 1 << 20
#: One process writes so many tasks at most: each takes memory until the multifile is closed.
TASKS_MAX = 1 << 22
LINKS_MAX = 40


class Task(NamedTuple):
    """What a multifile says about one task."""

    index: int
    """Number over the whole set, from 0."""
    file: int
    """Number of the physical file that holds it."""
    local_rank: int
    """Number in that file."""
    global_rank: int
    """The rank that the writer gave it."""
    chunk_size: int
    """Bytes reserved for it in each block."""
    block_sizes: list[int]
    """Bytes used of each block."""

    @property
    def size(self) -> int:
        """Bytes of its stream."""
        return sum(self.block_sizes)


class Entry(NamedTuple):
    """A file, folder, or symbolic link whose name a multifile keeps (``kakehi run --coalesce``)."""

    name: str
    """Path in the multifile, without a leading slash."""
    mode: int
    """Type and permissions, as ``st_mode``."""
    modified: float
    """Time of the last modification, in seconds since 1970."""
    task: Optional[int]
    """The task with its data; ``None`` if it has none."""
    target: str
    """Text of a symbolic link."""

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.mode)

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)


class Multifile:
    """A multifile, open for reading (mode ``"r"``) or being written (mode ``"w"``).

    Without ``comm`` one process reads or writes all tasks. With an mpi4py communicator opening and
    closing are collective: each rank writes one task, its task 0, and reads its share.

    :param path: The multifile, or the first file of a set.
    :param mode: ``"r"`` or ``"w"``. What was there is replaced.
    :param tasks: To write without ``comm``: the number of tasks.
    :param chunk_size: To write: bytes reserved for a task in each block, or one number for each
        task. A task may write more: it gets another block.
    :param files: To write: number of physical files.
    :param fs_block_size: To write: alignment of chunks in bytes; ``None`` asks the file system.
    :param keyval: To write: streams hold key-value records.
    :param checksums: To write: store a CRC32C of every block.
    :param durable: To write: ``close`` returns when everything is on stable storage.
    :param comm: An mpi4py communicator.
    """

    def __init__(
        self,
        path: _Path,
        mode: str = "r",
        *,
        tasks: Optional[int] = None,
        chunk_size: Union[int, Sequence[int]] = DEFAULT_CHUNK_SIZE,
        files: int = 1,
        fs_block_size: Optional[int] = None,
        keyval: bool = False,
        checksums: bool = False,
        durable: bool = False,
        comm: Optional[Any] = None,
    ) -> None:
        self.path = os.fspath(path)
        self.mode = mode
        self._reader: Optional[Reader] = None
        self._writer: Optional[Writer] = None
        self._names: Optional[dict[str, Entry]] = None
        self._maps: dict[int, memoryview] = {}
        if mode == "r":
            self._reader = Reader(self.path, comm)
        elif mode == "w":
            chunks = _chunks(tasks, chunk_size, comm)
            self._writer = Writer(
                self.path,
                chunks,
                files=files,
                fs_block_size=fs_block_size,
                keyval=keyval,
                checksums=checksums,
                durable=durable,
                comm=comm,
            )
        else:
            raise ValueError(f"mode {mode!r} is neither 'r' nor 'w'")

    # What it holds.

    def __len__(self) -> int:
        """Number of tasks; with a communicator, of this rank's."""
        return (self._writer or self._reading()).task_count()

    @property
    def tasks(self) -> list[Task]:
        """All tasks; with a communicator, this rank's."""
        reader = self._reading()
        return [Task(index, *reader.task(index)) for index in range(len(self))]

    @property
    def info(self) -> dict[str, Any]:
        """Byte orders, file-system block size, number of files, and what else is the same for all
        tasks."""
        return dict(self._reading().info())

    @property
    def entries(self) -> dict[str, Entry]:
        """Files, folders, and symbolic links by name; empty if the multifile keeps no names."""
        if self._names is None:
            named = self._reading().names() or []
            found = [
                Entry(os.fsdecode(name), mode, modified, task, os.fsdecode(target))
                for name, mode, modified, task, target in named
            ]
            self._names = {entry.name: entry for entry in found}
        return self._names

    @property
    def names(self) -> list[str]:
        """Names of the files in it, in the order of the tree."""
        return [entry.name for entry in self.entries.values() if entry.is_file]

    def size(self, task: Union[int, str]) -> int:
        """Bytes of a task, or of a file by its name; a symbolic link is followed."""
        if self._writer is not None:
            return self._writer.size(_number(task))
        index = self._index(task)
        return 0 if index is None else self._reading().size(index)

    # Reading.

    def read(self, task: Union[int, str], size: int = -1, offset: int = 0) -> bytes:
        """Returns ``size`` bytes of a task, or of a file by its name, from ``offset`` on: fewer at
        the end, all that is left if ``size`` is negative."""
        reader, index = self._reading(), self._index(task)
        if offset < 0:
            raise ValueError(f"offset {offset} is negative")
        if index is None:
            return b""
        return reader.read(index, offset, None if size < 0 else size)

    def __getitem__(self, task: Union[int, str]) -> bytes:
        if isinstance(task, int) and not 0 <= task < len(self):
            raise IndexError(f"{self.path}: no task {task}, it has {len(self)}")
        return self.read(task)

    def readinto(self, task: Union[int, str], buffer: _Buffer, offset: int = 0) -> int:
        """Fills ``buffer`` from ``offset`` of a task on and returns the bytes read."""
        target = memoryview(buffer).cast("B")
        data = self.read(task, len(target), offset)
        target[: len(data)] = data
        return len(data)

    def view(self, task: Union[int, str]) -> memoryview:
        """Returns a task's bytes without copying them: a read-only view of the mapped file.

        Only a stream that lies in one piece has such a view, which is one that fits one block;
        :meth:`views` has one view for each piece. Raises ``ValueError`` for others.
        """
        views = self.views(task)
        if len(views) > 1:
            raise ValueError(
                f"{self.path}: task {task} lies in {len(views)} pieces; use views() or read()"
            )
        return views[0] if views else memoryview(b"")

    def views(self, task: Union[int, str]) -> list[memoryview]:
        """Returns read-only views of all pieces of a task, in order. They stay valid when the
        multifile is closed."""
        index = self._index(task)
        if index is None:
            return []
        pieces: list[tuple[int, int, int]] = []
        for fd, at, length in self._reading().extents(index):
            # Blocks of a multifile with one task follow each other.
            if pieces and pieces[-1][1] + pieces[-1][2] == at:
                _, at, before = pieces.pop()
                length += before
            pieces.append((fd, at, length))
        return [self._mapped(fd)[at : at + length] for fd, at, length in pieces]

    def open(self, task: Union[int, str]) -> io.BufferedReader:
        """Returns a task, or a file by its name, as a binary file object."""
        import io

        from ._stream import Stream

        return io.BufferedReader(Stream(self, task))

    def records(self, task: int) -> list[tuple[int, int]]:
        """Key and length of every key-value record of a task, in the order of writing."""
        return self._reading().records(task)

    def read_key(self, task: int, key: int) -> list[bytes]:
        """The data of every record of ``key``."""
        return self._reading().read_key(task, key)

    def verify(self, task: int) -> bool:
        """Compares a task's data with its checksums: false if there are none.

        :raises DamagedError: If they differ.
        """
        return self._reading().verify(task)

    # Writing.

    def write(self, task: int, data: _Buffer) -> int:
        """Appends ``data`` to a task and returns its length in bytes."""
        data = _bytes(data)
        self._writing().write(task, data)
        return len(data)

    def write_key(self, task: int, key: int, data: _Buffer) -> int:
        """Appends a key-value record to a task and returns the length of its data."""
        data = _bytes(data)
        self._writing().write_key(task, key, data)
        return len(data)

    def flush(self, *, durable: bool = False) -> None:
        """Hands everything written to the system; with ``durable`` returns when it survives a crash
        of the node."""
        if self._writer is not None:
            self._writer.flush(durable)

    # The end.

    def close(self) -> None:
        """Completes what was written, collectively if opened with ``comm``. Closing again does
        nothing."""
        writer, self._writer, self._reader = self._writer, None, None
        self._maps = {}
        if writer is not None:
            writer.close()

    @property
    def closed(self) -> bool:
        return self._writer is None and self._reader is None

    def __enter__(self) -> Multifile:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        raised: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        # What a failed block wrote stays unclosed: `kakehi multifile repair` has it. The others of
        # a communicator would wait for a rank that does not come.
        if kind is None or self._writer is None:
            self.close()
        else:
            self._writer = None

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"mode {self.mode!r}"
        return f"<kakehi.Multifile {self.path!r} {state}>"

    # Within.

    def _reading(self) -> Reader:
        if self._reader is None:
            what = "closed" if self._writer is None else "being written"
            raise ValueError(f"{self.path}: the multifile is {what}")
        return self._reader

    def _writing(self) -> Writer:
        if self._writer is None:
            what = "closed" if self._reader is None else "open for reading"
            raise ValueError(f"{self.path}: the multifile is {what}")
        return self._writer

    def _index(self, task: Union[int, str]) -> Optional[int]:
        if not isinstance(task, str):
            return task
        name = task.strip("/")
        for _ in range(LINKS_MAX):
            entry = self.entries.get(name)
            if entry is None:
                raise FileNotFoundError(2, "No such file in the multifile", f"{self.path}:{name}")
            if entry.is_folder:
                raise IsADirectoryError(21, "Is a folder", f"{self.path}:{name}")
            if entry.is_file:
                return entry.task
            name = posixpath.normpath(posixpath.join(posixpath.dirname(name), entry.target))
        raise OSError(40, "Too many symbolic links", f"{self.path}:{task}")

    def _mapped(self, fd: int) -> memoryview:
        view = self._maps.get(fd)
        if view is None:
            import mmap

            view = memoryview(mmap.mmap(fd, 0, access=mmap.ACCESS_READ))
            self._maps[fd] = view
        return view


def _chunks(
    tasks: Optional[int], chunk_size: Union[int, Sequence[int]], comm: Optional[Any]
) -> list[int]:
    if comm is not None:
        if tasks not in (None, 1) or not isinstance(chunk_size, int):
            raise ValueError("with a communicator each rank writes one task: pass one chunk_size")
        return [chunk_size]
    if isinstance(chunk_size, int):
        if tasks is None:
            raise ValueError("pass the number of tasks, or a chunk_size for each")
        if not 0 <= tasks <= TASKS_MAX:
            raise ValueError(f"{tasks} tasks: 0 to {TASKS_MAX} are possible")
        return [chunk_size] * tasks
    chunks = list(chunk_size)
    if tasks not in (None, len(chunks)):
        raise ValueError(f"{tasks} tasks, but {len(chunks)} chunk sizes")
    if len(chunks) > TASKS_MAX:
        raise ValueError(f"{len(chunks)} tasks: 0 to {TASKS_MAX} are possible")
    return chunks


def _number(task: Union[int, str]) -> int:
    if isinstance(task, str):
        raise ValueError("tasks being written have numbers, no names")
    return task


def _bytes(data: _Buffer) -> bytes:
    return data if isinstance(data, bytes) else memoryview(data).tobytes()
