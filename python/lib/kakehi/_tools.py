"""The command that this package carries."""

from __future__ import annotations

import os
import sys
import sysconfig


def command() -> str:
    """Returns the path of the command ``kakehi``.

    :raises FileNotFoundError: If the package was installed without it.
    """
    here = os.path.dirname(os.path.abspath(__file__))
    # Beside this module's own site-packages first: `pip install --user` and `--prefix` have others
    # than the interpreter's.
    prefix = here
    for _ in range(6):
        prefix = os.path.dirname(prefix)
        path = os.path.join(prefix, "bin", "kakehi")
        if os.path.isfile(path):
            return path
    path = os.path.join(sysconfig.get_path("scripts"), "kakehi")
    if os.path.isfile(path):
        return path
    raise FileNotFoundError(2, "The command kakehi is not installed with the module", path)


def main() -> None:
    """Becomes the command under the name of one of SIONlib's tools."""
    os.execv(command(), [os.path.basename(sys.argv[0]), *sys.argv[1:]])
