// Makes the same calls many times, as a whole process.
//   calls write SIZE BYTES PROCESSES FILE    a file for each process
//   calls send SIZE BYTES PROCESSES PORT     a stream of each process to 127.0.0.1
//   calls print COUNT FILE                   fprintf of 100 bytes
//   calls files COUNT FILE                   opens, writes 4 KiB, closes, and removes
//   calls stat|fstat|access|lseek|pread|open COUNT FILE
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char block[16 << 20];

static void check(int is_well) {
    if (is_well) return;
    perror("calls");
    exit(1);
}

static void write_file(const char *path, long size, long bytes) {
    int fd = open(path, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    check(fd >= 0);
    for (long at = 0; at < bytes; at += size) check(write(fd, block, size) == size);
    check(close(fd) == 0);
}

static void send_stream(int port, long size, long bytes) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    check(fd >= 0 && connect(fd, (struct sockaddr *)&to, sizeof to) == 0);
    for (long at = 0; at < bytes; at += size) check(send(fd, block, size, 0) == size);
    check(close(fd) == 0);
}

static void send_streams(int port, long size, long bytes, long processes) {
    for (long i = 0; i < processes; i++) {
        pid_t child = fork();
        check(child >= 0);
        if (child > 0) continue;
        send_stream(port, size, bytes);
        exit(0);
    }
    for (int status; wait(&status) > 0;) check(status == 0);
}

static void write_files(const char *path, long size, long bytes, long processes) {
    if (processes == 1) {
        write_file(path, size, bytes);
        return;
    }
    for (long i = 0; i < processes; i++) {
        pid_t child = fork();
        check(child >= 0);
        if (child > 0) continue;
        char name[4096];
        snprintf(name, sizeof name, "%s.%ld", path, i);
        write_file(name, size, bytes);
        exit(0);
    }
    for (int status; wait(&status) > 0;) check(status == 0);
}

static void print(const char *path, long count) {
    FILE *file = fopen(path, "w");
    check(file != NULL);
    for (long i = 0; i < count; i++) check(fprintf(file, "%98ld\n", i) == 99);
    check(fclose(file) == 0);
}

static void small_files(const char *path, long count) {
    char name[4096];
    for (long i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%s.%ld", path, i);
        write_file(name, 4096, 4096);
    }
    for (long i = 0; i < count; i++) {
        snprintf(name, sizeof name, "%s.%ld", path, i);
        check(unlink(name) == 0);
    }
}

static void look(const char *what, const char *path, long count) {
    struct stat found;
    write_file(path, 8192, 8192);
    int fd = open(path, O_RDWR);
    check(fd >= 0);
    for (long i = 0; i < count; i++) {
        if (!strcmp(what, "stat")) check(stat(path, &found) == 0);
        else if (!strcmp(what, "fstat")) check(fstat(fd, &found) == 0);
        else if (!strcmp(what, "access")) check(access(path, R_OK) == 0);
        else if (!strcmp(what, "lseek")) check(lseek(fd, i % 8192, SEEK_SET) >= 0);
        else if (!strcmp(what, "pread")) check(pread(fd, block, 4096, 0) == 4096);
        else {
            int other = open(path, O_RDONLY);
            check(read(other, block, 4096) == 4096 && close(other) == 0);
        }
    }
    check(close(fd) == 0);
}

int main(int argc, char **argv) {
    if (argc < 4) return 2;
    const char *what = argv[1], *path = argv[argc - 1];
    memset(block, 'k', sizeof block);
    if (!strcmp(what, "write") && argc == 6)
        write_files(path, atol(argv[2]), atol(argv[3]), atol(argv[4]));
    else if (!strcmp(what, "send") && argc == 6)
        send_streams(atoi(path), atol(argv[2]), atol(argv[3]), atol(argv[4]));
    else if (!strcmp(what, "print")) print(path, atol(argv[2]));
    else if (!strcmp(what, "files")) small_files(path, atol(argv[2]));
    else look(what, path, atol(argv[2]));
    return 0;
}
