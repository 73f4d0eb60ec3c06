// While a write copies its buffer, another process maps the file: once the write has returned, the
// mapping has its bytes. The buffer cannot be read at first, so that the write waits in its middle.
//   overtaken FILE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SIZE = 4096, WRITES = 20000 };
static int to_other[2], to_this[2], times;
static char *bytes;

// The other process takes a step, and is waited for.
static void have_other_go_on(void) {
    char step;
    if (write(to_other[1], "x", 1) != 1 || read(to_this[0], &step, 1) != 1) _exit(2);
}

static void fault(int signal) {
    (void)signal;
    if (times++ == 0) have_other_go_on();
    if (mprotect(bytes, SIZE, PROT_READ | PROT_WRITE)) _exit(2);
}

static int look(const char *path) {
    char step;
    if (read(to_other[0], &step, 1) != 1) return 2;
    int fd = open(path, O_RDONLY);
    size_t len = (size_t)SIZE * (WRITES + 1);
    volatile char *file = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, 0);
    if ((void *)file == MAP_FAILED || write(to_this[1], "x", 1) != 1) return 2;
    if (read(to_other[0], &step, 1) != 1) return 2;
    puts(file[len - 1] == 'w' ? "seen" : "not seen");
    return 0;
}

int main(int argc, char **argv) {
    if (argc != 2 || pipe(to_other) || pipe(to_this)) return 2;
    pid_t child = fork();
    if (child == 0) return look(argv[1]);
    int status, fd = open(argv[1], O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, (off_t)SIZE * (WRITES + 1))) return 2;
    bytes = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < SIZE; i++) bytes[i] = 'w';
    for (int i = 0; i < WRITES; i++)
        if (write(fd, bytes, SIZE) != SIZE) return 2;
    signal(SIGSEGV, fault);
    if (mprotect(bytes, SIZE, PROT_NONE) || write(fd, bytes, SIZE) != SIZE || times == 0) return 2;
    if (write(to_other[1], "x", 1) != 1) return 2;
    return waitpid(child, &status, 0) != child || status != 0;
}
