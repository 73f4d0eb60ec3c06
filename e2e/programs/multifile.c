/* Writes a multifile of several tasks through libsion, or reads one back and compares.
 *
 *   multifile write|check PATH
 *
 * Task 0 has a large chunk, for which space is reserved; the others fill many small ones.
 *
 * Exit status: 0; 1 after an error or a wrong byte, which standard error names.
 */
#include <sion.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TASKS = 8, RECORDS = 2200, RECORD_LEN = 1000 };

static void fail(const char *what)
{
    fprintf(stderr, "multifile: %s\n", what);
    exit(1);
}

static void fill(char *record, int task, int number)
{
    for (int i = 0; i < RECORD_LEN; i++)
        record[i] = (char)(task * 31 + number * 7 + i);
}

static void write_all(char *path)
{
    int tasks = TASKS, files = 1, ranks[TASKS];
    sion_int64 chunks[TASKS], *chunk = chunks;
    sion_int32 block = 4096;
    int *rank = ranks;
    for (int task = 0; task < TASKS; task++) {
        chunks[task] = task == 0 ? 8 << 20 : 64 << 10;
        ranks[task] = task;
    }
    int sid = sion_open(path, "bw", &tasks, &files, &chunk, &block, &rank, NULL);
    if (sid < 0)
        fail("sion_open to write");
    for (int task = 0; task < TASKS; task++) {
        if (!sion_seek(sid, task, SION_CURRENT_BLK, SION_CURRENT_POS))
            fail("sion_seek");
        for (int number = 0; number < RECORDS; number++) {
            char record[RECORD_LEN];
            fill(record, task, number);
            if (sion_fwrite(record, 1, RECORD_LEN, sid) != RECORD_LEN)
                fail("sion_fwrite");
        }
    }
    if (!sion_close(sid))
        fail("sion_close");
}

static void check_all(char *path)
{
    int tasks = 0, files = 0;
    sion_int64 *chunks = NULL;
    sion_int32 block = 0;
    int *ranks = NULL;
    int sid = sion_open(path, "br", &tasks, &files, &chunks, &block, &ranks, NULL);
    if (sid < 0 || tasks != TASKS)
        fail("sion_open to read");
    for (int task = 0; task < TASKS; task++) {
        if (!sion_seek(sid, task, 0, 0))
            fail("sion_seek");
        for (int number = 0; number < RECORDS; number++) {
            char record[RECORD_LEN], found[RECORD_LEN];
            fill(record, task, number);
            if (sion_fread(found, 1, RECORD_LEN, sid) != RECORD_LEN)
                fail("sion_fread");
            if (memcmp(found, record, RECORD_LEN) != 0)
                fail("wrong bytes");
        }
        if (!sion_feof(sid))
            fail("more than was written");
    }
    sion_close(sid);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        fail("write|check PATH");
    if (strcmp(argv[1], "write") == 0)
        write_all(argv[2]);
    else
        check_all(argv[2]);
    return 0;
}
