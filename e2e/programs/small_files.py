"""Four processes make COUNT files of LENGTH bytes in FOLDER."""

import os
import sys

RANKS = 4
folder, count, length = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
children = []
for rank in range(RANKS):
    child = os.fork()
    if child == 0:
        for number in range(rank, count, RANKS):
            with open(f"{folder}/{number}", "wb", 0) as file:
                assert file.write(bytes([number % 251]) * length) == length
        os._exit(0)
    children.append(child)
sys.exit(any(os.waitpid(child, 0)[1] for child in children))
