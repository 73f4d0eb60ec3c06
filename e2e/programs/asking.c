// One thread writes records, another asks something by ioctl of the same descriptor, which tells the
// kernel the position. Each record is in its place.
#include <fcntl.h>
#include <linux/fs.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <unistd.h>

enum { WORDS = 128, BEFORE = 3000, COUNT = 40000 };

static int fd;
static volatile int is_over;

static void *ask(void *none) {
    for (int flags; !is_over; usleep(100)) ioctl(fd, FS_IOC_GETFLAGS, &flags);
    return none;
}

int main(int argc, char **argv) {
    long record[WORDS], wrong = 0;
    pthread_t thread;
    fd = open(argv[argc - 1], O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (long number = 0; number < COUNT; number++) {
        if (number == BEFORE) pthread_create(&thread, NULL, ask, NULL);
        for (int i = 0; i < WORDS; i++) record[i] = number;
        wrong += write(fd, record, sizeof record) != sizeof record;
    }
    is_over = 1;
    pthread_join(thread, NULL);
    for (long number = 0; number < COUNT; number++) {
        int len = pread(fd, record, sizeof record, number * (off_t)sizeof record);
        wrong += len != sizeof record || record[0] != number || record[WORDS - 1] != number;
    }
    printf("%ld wrong, at %ld\n", wrong, (long)lseek(fd, 0, SEEK_CUR));
    close(fd);
    return 0;
}
