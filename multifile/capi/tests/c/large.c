/* A record of more than 2 GiB, which no int can count: read at once, and by positions in it. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

#define LEN ((sion_int64)(1L << 31) + 12345)

/* Room for the record that takes no more memory than a small part of it. */
static char *window(void) {
    const size_t part = 1 << 24;
    int fd = memfd_create("window", 0);
    CHECK(fd >= 0 && ftruncate(fd, (off_t)part) == 0);
    size_t parts = (size_t)LEN / part + 1;
    char *all = (char *)mmap(NULL, parts * part, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(all != MAP_FAILED);
    for (size_t i = 0; i < parts; i++)
        CHECK(mmap(all + i * part, part, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) !=
              MAP_FAILED);
    close(fd);
    return all;
}

int main(void) {
    FILE *fp;
    int ntasks, sid = create_tasks("large.sion", "bw,keyval=inline", 1, LEN + 100, 512, &fp);
    uint64_t header[2] = {7, (uint64_t)LEN}, key;
    size_t size;
    sion_key_stat_t stat;
    /* Through the stream, because a file of 2 GiB is nearly all hole. */
    CHECK(sid >= 0 && fwrite(header, sizeof header, 1, fp) == 1);
    CHECK(fseeko(fp, LEN - 4, SEEK_CUR) == 0 && fwrite("tail", 4, 1, fp) == 1);
    CHECK(sion_close(sid));
    sid = open_tasks("large.sion", "br,keyval=inline", &ntasks, NULL);
    CHECK(sid >= 0 && sion_fread_key_iterator_next(sid, &key, &size));
    CHECK(key == 7 && size == (size_t)LEN && sion_key_get_stat(sid, 7, &stat));
    CHECK(stat.num_blocks == 1 && stat.total_size == LEN);
    char *bytes = window();
    CHECK(sion_fread_key(bytes, 7, 1, (size_t)LEN + 5, sid) == (size_t)LEN);
    CHECK(memcmp(bytes + LEN - 4, "tail", 4) == 0);
    CHECK(sion_seek_key(sid, 7, 0, LEN - 4) && sion_fread_key(bytes, 7, 2, 5, sid) == 2);
    CHECK(memcmp(bytes, "tail", 4) == 0 && sion_close(sid));
    return 0;
}
