"""File systems for fsspec: ``sion://`` has tasks by number, ``kakehi://`` files by name.

Both are read-only and stand in front of a multifile on a local file system, as ``zip://`` does in
front of an archive::

    fsspec.open("sion://3::/scratch/ckpt.sion")
    fsspec.open("kakehi://out/a.h5::/scratch/run.kakehi")
    fsspec.filesystem("kakehi", fo="/scratch/run.kakehi").ls("out")
"""

from __future__ import annotations

import stat
from typing import Any, Optional

from fsspec.archive import AbstractArchiveFileSystem

from ._multifile import Multifile


class _MultifileSystem(AbstractArchiveFileSystem):  # type: ignore[misc]
    root_marker = ""
    cachable = False

    def __init__(
        self,
        fo: str = "",
        target_protocol: Optional[str] = None,
        target_options: Optional[dict[str, Any]] = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(self, **kwargs)
        if target_protocol not in (None, "file", "local"):
            raise ValueError(
                f"{self.protocol}://: {target_protocol}:// is not local; copy the multifile first"
            )
        self.fo = fo[len("file://") :] if str(fo).startswith("file://") else str(fo)
        self.multifile = Multifile(self.fo)
        self.dir_cache: dict[str, dict[str, Any]] = {}

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(super()._strip_protocol(path)).lstrip("/")

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: Optional[int] = None,
        autocommit: bool = True,
        cache_options: Optional[dict[str, Any]] = None,
        **kwargs: Any,
    ) -> Any:
        if mode != "rb":
            raise ValueError(f"{self.protocol}://: mode {mode!r}: files are read-only")
        return self.multifile.open(self._key(self._strip_protocol(path)))

    def cat_file(
        self, path: str, start: Optional[int] = None, end: Optional[int] = None, **kwargs: Any
    ) -> bytes:
        key = self._key(self._strip_protocol(path))
        size = self.multifile.size(key)
        first, last, _ = slice(start, end).indices(size)
        return self.multifile.read(key, max(0, last - first), first)

    def _key(self, path: str) -> Any:
        raise NotImplementedError


class TaskFileSystem(_MultifileSystem):
    """Tasks of a multifile, each a file named by its number."""

    protocol = "sion"

    def _key(self, path: str) -> int:
        if not path.isdigit() or int(path) >= len(self.multifile):
            raise FileNotFoundError(2, "No such task", f"{self.fo}:{path}")
        return int(path)

    def _get_dirs(self) -> None:
        for task in self.multifile.tasks if not self.dir_cache else ():
            self.dir_cache[str(task.index)] = {
                "name": str(task.index),
                "size": task.size,
                "type": "file",
                "global_rank": task.global_rank,
                "physical_file": task.file,
            }


class NameFileSystem(_MultifileSystem):
    """Files, folders, and symbolic links that a run with ``--coalesce`` keeps in a multifile."""

    protocol = "kakehi"

    def __init__(self, fo: str = "", **kwargs: Any) -> None:
        super().__init__(fo, **kwargs)
        if not self.multifile.entries:
            raise ValueError(f"{self.fo}: the multifile keeps no names; use sion://")

    def _key(self, path: str) -> str:
        return path

    def _get_dirs(self) -> None:
        if self.dir_cache:
            return
        for entry in self.multifile.entries.values():
            kind = "directory" if entry.is_folder else "file" if entry.is_file else "link"
            self.dir_cache[entry.name] = {
                "name": entry.name,
                "size": self.multifile.size(entry.name) if entry.is_file else 0,
                "type": kind,
                "islink": kind == "link",
                "mode": stat.S_IMODE(entry.mode),
                "mtime": entry.modified,
                "destination": entry.target,
            }
