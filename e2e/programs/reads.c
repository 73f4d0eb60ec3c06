/* Reads one file in ways that a machine with other work, or other threads, may disturb.
 *
 *   reads stopped FILE SECONDS: from its start to its end, again and again, while the reader is
 *                               stopped now and then for longer than bytes read ahead count
 *   reads threads FILE:         four threads read records at the one position of a cold file
 *
 * Prints what was wrong, and succeeds where nothing was.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SIZE = 20000, RECORD = 5000, WORDS = RECORD / sizeof(int), COUNT = 1500, READERS = 4 };

static int read_again_and_again(const char *name, int seconds)
{
    static char buffer[SIZE];
    long files = 0, cut = 0;
    for (time_t end = time(NULL) + seconds; time(NULL) < end; files++) {
        int fd = open(name, O_RDONLY);
        ssize_t len;
        long all = 0;
        while ((len = read(fd, buffer, 8192)) > 0)
            all += len;
        cut += len < 0 || all != SIZE;
        close(fd);
    }
    printf("%ld of %ld files cut short\n", cut, files);
    fflush(stdout);
    return cut != 0 || files == 0;
}

static int stopped(const char *name, int seconds)
{
    static char bytes[SIZE];
    int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644), status;
    if (write(fd, bytes, SIZE) != SIZE || close(fd) < 0)
        return 2;
    pid_t reader = fork();
    if (reader == 0)
        _exit(read_again_and_again(name, seconds));
    unsigned chance = 1;
    while (waitpid(reader, &status, WNOHANG) == 0) {
        usleep(200 + (unsigned)rand_r(&chance) % 600);
        kill(reader, SIGSTOP);
        usleep(16000);
        kill(reader, SIGCONT);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}

static int shared;
static atomic_int seen[COUNT], mixed, torn;

static void *read_records(void *unused)
{
    int words[WORDS];
    ssize_t len;
    while ((len = read(shared, words, RECORD)) > 0) {
        size_t same = 1;
        while (same < WORDS && words[same] == words[0])
            same++;
        if (len != RECORD)
            torn++;
        else if (same < WORDS || words[0] < 0 || words[0] >= COUNT)
            mixed++;
        else
            seen[words[0]]++;
    }
    return unused;
}

static int threads(const char *name)
{
    pthread_t readers[READERS];
    int words[WORDS], lost = 0, twice = 0;
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    for (int record = 0; record < COUNT; record++) {
        for (size_t i = 0; i < WORDS; i++)
            words[i] = record;
        if (write(fd, words, RECORD) != RECORD)
            return 2;
    }
    fsync(fd);
    close(fd);
    shared = open(name, O_RDONLY);
    posix_fadvise(shared, 0, 0, POSIX_FADV_DONTNEED);
    posix_fadvise(shared, 0, 0, POSIX_FADV_RANDOM);
    for (int i = 0; i < READERS; i++)
        pthread_create(&readers[i], NULL, read_records, NULL);
    for (int i = 0; i < READERS; i++)
        pthread_join(readers[i], NULL);
    for (int record = 0; record < COUNT; record++) {
        lost += seen[record] == 0;
        twice += seen[record] > 1;
    }
    printf("mixed %d, torn %d, lost %d, twice %d\n", mixed, torn, lost, twice);
    return mixed + torn + lost + twice != 0;
}

int main(int count, char **words)
{
    if (count == 4 && strcmp(words[1], "stopped") == 0)
        return stopped(words[2], atoi(words[3]));
    return count == 3 ? threads(words[2]) : 2;
}
