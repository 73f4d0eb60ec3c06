"""A task as a file object."""

from __future__ import annotations

import io
from typing import Any, Union

from ._multifile import Multifile


class Stream(io.RawIOBase):
    """A task of a multifile, read from a position of its own."""

    def __init__(self, multifile: Multifile, task: Union[int, str]) -> None:
        super().__init__()
        self._multifile = multifile
        self._task = task
        self._size = multifile.size(task)
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError(f"negative position {base + offset}")
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        count = self._multifile.readinto(self._task, buffer, self._at)
        self._at += count
        return count
