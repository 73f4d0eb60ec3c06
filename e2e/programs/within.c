// A handler does something to the file whose write it interrupts, some times. Says how often what
// is in the file then is not what comes of one call after the other.
//   within FOLDER over|cut|append|read|end|rotate|fork|exec|cross
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 40, LEN = 4000, WORDS = LEN / 8, BEFORE = 600, MOST = 20000, INHERITED = 90 };

static int fd, files[2], round_number;
static const char *what;
static char **arguments;
static volatile sig_atomic_t in_write, is_done, is_child;
static volatile uint64_t record_count, seen, record_count_then;

static int file(int number, int flags) {
    char name[] = "file000";
    name[4] += number / 100, name[5] += number / 10 % 10, name[6] += number % 10;
    return open(name, flags, 0600);
}

static void every(int microseconds) {
    struct itimerval interval = {{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &interval, NULL);
}

static int is(const char *name) { return strcmp(what, name) == 0; }

static void become_another(void) {
    static char digits[24];
    char *first = digits + 22;
    uint64_t rest = record_count;
    do *--first = '0' + rest % 10; while (rest /= 10);
    arguments[2] = "inherited", arguments[3] = first;
    execv("/proc/self/exe", arguments);
    _exit(3);
}

static void fork_within(void) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        is_child = 1;
        return;
    }
    if (waitpid(child, &status, 0) != child || status) _exit(4);
}

static void handler(int signal) {
    struct stat status;
    uint64_t word = 1ull << 63;
    int before = errno;
    (void)signal;
    if (!in_write || is_done) return;
    is_done = 1, record_count_then = record_count;
    if (is("over") && pwrite(fd, &word, 8, 0) != 8) seen = 1;
    if (is("cut") && ftruncate(fd, 0)) seen = 1;
    if (is("append") && write(fd, "handler\n", 8) != 8) seen = 1;
    if (is("read")) pread(fd, &word, 8, (record_count - 1) * LEN), seen = word;
    if (is("end")) seen = fstat(fd, &status) ? 0 : (uint64_t)status.st_size;
    if (is("rotate")) close(fd), fd = file(++round_number, O_RDWR | O_CREAT | O_TRUNC);
    if (is("fork")) fork_within();
    if (is("exec")) become_another();
    errno = before;
}

static void put(uint64_t tag) {
    static uint64_t record[WORDS];
    for (int i = 0; i < WORDS; i++) record[i] = record_count | tag;
    if (is("over") && !is_done && pwrite(fd, record, 8, 0) != 8) exit(5);
    in_write = 1;
    if (write(fd, record, LEN) != LEN) exit(5);
    in_write = 0;
    record_count++;
}

static uint64_t word_at(off_t at) {
    uint64_t word = 0;
    return pread(fd, &word, 8, at) < 0 ? ~0ull : word;
}

// True if the file is as if the handler had come before the write it interrupted, or behind it.
static int is_right(void) {
    uint64_t at = record_count_then * LEN, line;
    struct stat status;
    if (is("over")) return !seen && word_at(0) == 1ull << 63;
    if (is("read")) return seen == record_count_then - 1;
    if (is("end")) return seen == at || seen == at + LEN;
    if (is("cut")) return !seen && word_at(at - LEN) == 0;
    if (is("append")) {
        memcpy(&line, "handler\n", 8);
        return !seen && (word_at(at) == line || word_at(at + LEN) == line);
    }
    if (fstat(fd, &status)) return 0;
    uint64_t children = 0, parents = 0;
    for (off_t here = 0; here < status.st_size; here += LEN) {
        uint64_t word = word_at(here);
        if (word != word_at(here + LEN - 8)) return 0;
        word >> 62 ? children++ : parents++;
    }
    // The child's copy of the interrupted write is one more, or that one was done before.
    return children == 50 && (parents == record_count || parents == record_count + 1);
}

static int wrong_round(int number) {
    fd = file(number, O_RDWR | O_CREAT | O_TRUNC | (is("append") ? O_APPEND : 0));
    record_count = is_done = seen = 0;
    while (record_count < BEFORE) put(0);
    every(200 + number);
    while (!is_done && record_count < MOST) put(0);
    every(0);
    if (is_child) {
        for (int i = 0; i < 50; i++) put(1ull << 62);
        _exit(0);
    }
    if (is("fork")) put(0);
    int is_wrong = !is_right();
    close(fd);
    return is_wrong;
}

static int wrong_exec(int number) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        int opened = file(number, O_RDWR | O_CREAT | O_TRUNC);
        if (dup2(opened, INHERITED) != INHERITED) _exit(2);
        close(opened);
        fd = INHERITED;
        while (record_count < BEFORE) put(0);
        every(200 + number);
        while (record_count < MOST) put(0);
        _exit(2);
    }
    return waitpid(child, &status, 0) != child || status;
}

static int is_inherited(uint64_t count) {
    struct stat status;
    uint64_t at = lseek(INHERITED, 0, SEEK_CUR);
    if (fstat(INHERITED, &status)) return 0;
    return (at == count * LEN || at == (count + 1) * LEN) && (uint64_t)status.st_size == at;
}

// Each file has whole records, and the next has those that follow.
static int wrong_rotations(void) {
    int is_wrong = 0;
    fd = file(0, O_RDWR | O_CREAT | O_TRUNC);
    every(2003);
    for (; round_number < ROUNDS; is_done = 0) put(0);
    every(0);
    close(fd);
    for (uint64_t i = 0, expected = 0; i <= ROUNDS; i++) {
        struct stat status;
        fd = file(i, O_RDONLY);
        if (fstat(fd, &status) || status.st_size % LEN) is_wrong++;
        for (off_t at = 0; at < status.st_size; at += LEN, expected++) {
            if (word_at(at) != expected || word_at(at + LEN - 8) != expected) is_wrong++;
        }
        close(fd);
    }
    return is_wrong;
}

static void both(int signal) {
    int before = errno;
    (void)signal;
    for (int i = 0; i < 2; i++) {
        if (write(files[i], "handler\n", 8) != 8) seen = 1;
    }
    errno = before;
}

static void *writes_one(void *which) {
    char block[8000] = {0};
    while (!is_done) {
        if (write(*(int *)which, block, sizeof block) != sizeof block) seen = 1;
        if (lseek(*(int *)which, 0, SEEK_CUR) > 1 << 24) lseek(*(int *)which, 0, SEEK_SET);
    }
    return NULL;
}

// Two threads write to a file each, and the handler of each to both.
static int wrong_crossing(void) {
    pthread_t threads[2];
    signal(SIGUSR1, both);
    for (int i = 0; i < 2; i++) files[i] = file(i, O_RDWR | O_CREAT | O_TRUNC);
    for (int i = 0; i < 2; i++) pthread_create(&threads[i], NULL, writes_one, &files[i]);
    for (int i = 0; i < 1000; i++) {
        for (int k = 0; k < 2; k++) pthread_kill(threads[k], SIGUSR1);
        usleep(500);
    }
    is_done = 1;
    for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
    return seen != 0;
}

int main(int argc, char **argv) {
    int wrong = 0;
    if (argc < 3) return 2;
    what = argv[2], arguments = argv;
    if (argc > 3) return is("inherited") ? !is_inherited(strtoull(argv[3], NULL, 10)) : 2;
    char *more[] = {argv[0], argv[1], argv[2], NULL, NULL};
    arguments = more;
    if (chdir(argv[1])) return 2;
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    if (is("rotate")) wrong = wrong_rotations();
    else if (is("cross")) wrong = wrong_crossing();
    else for (int i = 0; i < ROUNDS; i++) wrong += is("exec") ? wrong_exec(i) : wrong_round(i);
    printf("%d wrong\n", wrong);
    return 0;
}
