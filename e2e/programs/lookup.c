/* Calls functions that it has looked up by a handle of libc, as ctypes and P/Invoke do, between
 * calls by name. Prints what is in the files then. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static int (*open_by)(const char *, int, ...);
static ssize_t (*write_by)(int, const void *, size_t);
static int (*truncate_by)(int, off_t);
static int (*dup_by)(int);
static int (*close_by)(int);

static void show(const char *name)
{
    char text[64] = "";
    int file = open(name, O_RDONLY);
    ssize_t len = read(file, text, sizeof text - 1);
    close(file);
    printf("%s: %zd %s\n", name, len, text);
}

static int make(const char *name)
{
    return open(name, O_RDWR | O_CREAT, 0644);
}

static void act(const char *kind)
{
    char names[5][32];
    for (int i = 0; i < 5; i++) snprintf(names[i], sizeof names[i], "%s-%d", kind, i);
    int file = make(names[0]);
    write(file, "A", 1), write_by(file, "B", 1), write(file, "C", 1);
    close(file), show(names[0]);
    file = make(names[1]);
    write(file, "0123456789", 10), truncate_by(file, 4);
    close(file), show(names[1]);
    file = make(names[2]);
    write(file, "0123456789", 10);
    int other = dup_by(file);
    write(other, "Z", 1), close(file), close(other), show(names[2]);
    file = make(names[3]);
    write(file, "old", 3), close_by(file);
    file = open_by(names[4], O_RDWR | O_CREAT, 0644); /* Gets the number of the other. */
    write(file, "new", 3), close(file), show(names[3]), show(names[4]);
}

int main(void)
{
    void *libc = dlopen("libc.so.6", RTLD_NOW);
    open_by = dlsym(libc, "open"), write_by = dlsym(libc, "write"), close_by = dlsym(libc, "close");
    truncate_by = dlsym(libc, "ftruncate"), dup_by = dlsym(libc, "dup");
    act("symbol");
#ifdef __x86_64__
    const char *version = "GLIBC_2.2.5";
#else
    const char *version = "GLIBC_2.17";
#endif
    open_by = dlvsym(libc, "open", version), write_by = dlvsym(libc, "write", version);
    close_by = dlvsym(libc, "close", version), dup_by = dlvsym(libc, "dup", version);
    truncate_by = dlvsym(libc, "ftruncate", version);
    act("version");
    void *program = dlopen(NULL, RTLD_NOW);
    write_by = dlsym(program, "write"), dup_by = dlsym(RTLD_DEFAULT, "dup");
    act("program");
    puts(dlsym(libc, "no such function") ? "found" : "not found");
    puts(dlsym(RTLD_NEXT, "no such function") ? "found" : "not found");
    puts(dlerror() ? "an error" : "no error");
    return 0;
}
