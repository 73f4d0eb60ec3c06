"""SIONlib multifiles, and what the I/O delegation stack Kakehi keeps in them.

A multifile holds the streams of many tasks in a few physical files::

    with kakehi.Multifile("ckpt.sion") as ckpt:
        for task in ckpt.tasks:
            print(task.index, task.global_rank, task.size)
        field = numpy.frombuffer(ckpt.view(0))      # mapped, not copied

The command ``kakehi`` comes with this package; :func:`command` is its path.
"""

from __future__ import annotations

from ._kakehi import (
    DamagedError,
    MultifileError,
    RankError,
    UnclosedError,
    __version__,
)
from ._multifile import Entry, Multifile, Task

__all__ = [
    "DamagedError",
    "Entry",
    "MapDataset",
    "Multifile",
    "MultifileError",
    "RankError",
    "Task",
    "UnclosedError",
    "__version__",
    "command",
]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from ._dataset import MapDataset
    from ._tools import command


# What few programs use is imported when they do: `import kakehi` stays short.
def __getattr__(name: str) -> object:
    if name == "MapDataset":
        from ._dataset import MapDataset

        return MapDataset
    if name == "command":
        from ._tools import command

        return command
    raise AttributeError(f"module 'kakehi' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
