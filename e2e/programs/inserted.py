"""Inserts numbered rows into a SQLite database, each in a transaction, or says what is in one.

inserted.py PATH COUNT LOG    inserts rows 0, 1, ...: COUNT of them, or without end when it is 0
inserted.py PATH              prints how many rows from 0 on are there, if the database is sound

LOG is mapped as that of writer.c. Exit status: 0; 1 after an error or of an unsound database.
"""

import mmap
import sqlite3
import struct
import sys
import time


def insert(path, count, log):
    with open(log, "r+b") as file:
        accepted = mmap.mmap(file.fileno(), 0)
    database = sqlite3.connect(path, timeout=60)
    database.execute("CREATE TABLE IF NOT EXISTS rows (number INTEGER PRIMARY KEY, text TEXT)")
    number = 0
    while count == 0 or number < count:
        with database:
            database.execute("INSERT INTO rows VALUES (?, ?)", (number, str(number) * 50))
        struct.pack_into("QQ", accepted, 8 + 16 * number, number, time.monotonic_ns())
        number += 1
        struct.pack_into("Q", accepted, 0, number)
    database.close()


def check(path):
    database = sqlite3.connect(path)
    sound = database.execute("PRAGMA integrity_check").fetchall()
    if sound != [("ok",)]:
        sys.exit(f"{path}: {sound}")
    try:
        rows = database.execute("SELECT number, text FROM rows ORDER BY number").fetchall()
    except sqlite3.OperationalError as why:
        if "no such table" not in str(why):
            raise
        rows = []
    if rows != [(number, str(number) * 50) for number in range(len(rows))]:
        sys.exit(f"{path}: a row is missing or wrong")
    print(len(rows))


if len(sys.argv) > 2:
    insert(sys.argv[1], int(sys.argv[2]), sys.argv[3])
else:
    check(sys.argv[1])
