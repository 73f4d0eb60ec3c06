/* A file past the page cache: what may be staged, what may not, and what is read back.
 *   direct FILE [libaio]
 * Prints what each call comes to. With `libaio` one write in the middle is by io_submit. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LEN 4096
#define COUNT 200

/* As libaio has them: the system call, and its error as a negative number. */
extern int io_submit(aio_context_t context, long count, struct iocb **list) __attribute__((weak));

static void say(const char *what, long value) {
    printf("%s: %ld %s\n", what, value, value < 0 ? strerror(errno) : "");
}

static void submit(int file, unsigned char *bytes, long at) {
    aio_context_t context = 0;
    if (syscall(SYS_io_setup, 1, &context) != 0) exit(3);
    struct iocb request = {.aio_fildes = file, .aio_lio_opcode = IOCB_CMD_PWRITE,
        .aio_buf = (unsigned long)bytes, .aio_nbytes = LEN, .aio_offset = at};
    struct iocb *list = &request;
    struct io_event event;
    int count = io_submit ? io_submit(context, 1, &list) : syscall(SYS_io_submit, context, 1, &list);
    say("submitted", count);
    say("events", syscall(SYS_io_getevents, context, 1, 1, &event, 0));
    say("result", event.res);
    syscall(SYS_io_destroy, context);
}

int main(int argc, char **argv) {
    unsigned char *bytes = aligned_alloc(LEN, 2 * LEN), *found = aligned_alloc(LEN, LEN);
    int file = open(argv[1], O_CREAT | O_TRUNC | O_RDWR | O_DIRECT, 0600);
    if (file < 0) return 77;
    for (int i = 0; i < COUNT; i++) {
        memset(bytes, i, LEN);
        if (write(file, bytes, LEN) != LEN) return 1;
    }
    say("written back", pread(file, found, LEN, (COUNT - 1) * LEN) == LEN && found[7] == COUNT - 1);
    say("odd length", write(file, bytes, 100));
    say("odd memory", write(file, bytes + 1, LEN));
    say("odd place", pwrite(file, bytes, LEN, 77));
    memset(bytes, 'x', LEN);
    say("pwrite", pwrite(file, bytes, LEN, 3 * LEN));
    if (argc > 2) {
        memset(bytes, 'y', LEN);
        submit(file, bytes, 3 * LEN);
    }
    say("read", pread(file, found, LEN, 3 * LEN) == LEN ? found[9] : -1);
    say("position", lseek(file, 0, SEEK_CUR));
    say("fdatasync", fdatasync(file));
    say("length", lseek(file, 0, SEEK_END));
    memset(bytes, 'z', LEN);
    say("behind", write(file, bytes, LEN));
    say("close", close(file));
    return 0;
}
