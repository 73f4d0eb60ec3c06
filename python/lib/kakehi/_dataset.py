"""Samples of multifiles by number, for data loaders."""

from __future__ import annotations

import bisect
import os
from typing import Any, Callable, Generic, Iterable, Optional, Sequence, TypeVar, Union

from ._multifile import Multifile

Sample = TypeVar("Sample")


class MapDataset(Generic[Sample]):
    """A map-style data set, as ``torch.utils.data.DataLoader`` takes it, without importing torch.

    A sample is a file in the multifile if that keeps names, else a task. Several multifiles are one
    data set, one after the other. Copies that go to workers open the multifiles again.

    :param paths: One multifile or several.
    :param transform: Makes a sample of its bytes, such as ``torch.frombuffer``; without one a
        sample is its bytes.
    :param select: Tells by its name, or the number of its task, which samples to have.
    """

    def __init__(
        self,
        paths: Union[str, os.PathLike[str], Sequence[Union[str, os.PathLike[str]]]],
        transform: Optional[Callable[[bytes], Sample]] = None,
        *,
        select: Optional[Callable[[Union[str, int]], bool]] = None,
    ) -> None:
        one = isinstance(paths, (str, os.PathLike))
        self.paths = [os.fspath(path) for path in ([paths] if one else paths)]  # type: ignore[list-item, union-attr]
        self.transform = transform
        self._open: dict[int, Multifile] = {}
        self._process = os.getpid()
        self._keys: list[Sequence[Union[str, int]]] = []
        self._ends: list[int] = []
        for number in range(len(self.paths)):
            multifile = self._multifile(number)
            keys: Sequence[Union[str, int]] = multifile.names or range(len(multifile))
            if select is not None:
                keys = [key for key in keys if select(key)]
            self._keys.append(keys)
            self._ends.append((self._ends[-1] if self._ends else 0) + len(keys))

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def key(self, index: int) -> tuple[str, Union[str, int]]:
        """The multifile of a sample, and its name or task there."""
        number, key = self._place(index)
        return self.paths[number], key

    def __getitem__(self, index: int) -> Union[Sample, bytes]:
        number, key = self._place(index)
        data = self._multifile(number).read(key)
        return data if self.transform is None else self.transform(data)

    def __getitems__(self, indices: Iterable[int]) -> list[Union[Sample, bytes]]:
        """Several samples, as a loader asks for a batch; read in the order of the storage."""
        indices = list(indices)
        read = {index: self[index] for index in sorted(set(indices), key=self._nonnegative)}
        return [read[index] for index in indices]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": {}}

    def _nonnegative(self, index: int) -> int:
        return index + len(self) if index < 0 else index

    def _place(self, index: int) -> tuple[int, Union[str, int]]:
        at = self._nonnegative(index)
        if not 0 <= at < len(self):
            raise IndexError(f"no sample {index}, the data set has {len(self)}")
        number = bisect.bisect_right(self._ends, at)
        before = self._ends[number - 1] if number else 0
        return number, self._keys[number][at - before]

    def _multifile(self, number: int) -> Multifile:
        # A forked worker opens its own.
        if self._process != os.getpid():
            self._open, self._process = {}, os.getpid()
        if number not in self._open:
            self._open[number] = Multifile(self.paths[number])
        return self._open[number]
