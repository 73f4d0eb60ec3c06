// A shared mapping shows what is in the file, whoever of the process writes it, and the file what is
// stored through the mapping, also when the descriptor it was made by is closed.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static char *map(int fd, int protection, int flags) {
    char *bytes = mmap(NULL, 4096, protection, flags, fd, 0);
    return bytes == MAP_FAILED ? "failed" : bytes;
}

static int made(const char *name) {
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    write(fd, "0123456789", 10);
    return fd;
}

static void written(const char *name, int fd, const char *bytes) {
    char got[16] = "";
    pwrite(fd, "AB", 2, 0);
    printf("%s: %.10s\n", name, bytes);
    write(fd, "CD", 2);
    printf("%s: %.10s\n", name, bytes);
    pread(fd, got, 10, 0);
    printf("%s\n", got);
    close(fd);
}

// The descriptor is closed, then the file is opened anew.
static void closed(const char *name, int protection, int flags) {
    int fd = made(name);
    const char *bytes = map(fd, protection, flags);
    close(fd);
    written(name, open(name, O_RDWR), bytes);
}

// One that was open before and has written nothing yet.
static void open_before(void) {
    close(made("before"));
    int writer = open("before", O_RDWR), reader = open("before", O_RDONLY);
    const char *bytes = map(reader, PROT_READ, MAP_SHARED);
    close(reader);
    written("before", writer, bytes);
}

// One that had written before.
static void written_before(void) {
    int writer = made("writer"), reader = open("writer", O_RDONLY);
    const char *bytes = map(reader, PROT_READ, MAP_SHARED);
    close(reader);
    written("writer", writer, bytes);
}

static void stored(void) {
    char got[8] = "";
    int fd = made("stored");
    char *bytes = map(fd, PROT_READ | PROT_WRITE, MAP_SHARED);
    close(fd);
    fd = open("stored", O_RDWR);
    read(fd, got, 4);
    memcpy(bytes, "abcdefgh", 8);
    read(fd, got + 4, 3);
    printf("%s\n", got);
    pread(fd, got, 7, 0);
    printf("%s\n", got);
    close(fd);
}

int main(void) {
    closed("shared", PROT_READ | PROT_WRITE, MAP_SHARED);
    closed("read", PROT_READ, MAP_SHARED);
    closed("private", PROT_READ, MAP_PRIVATE);
    open_before();
    written_before();
    stored();
    return 0;
}
