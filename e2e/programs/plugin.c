// A library that a program loads.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>

void put(int fd) {
    (void)!write(fd, "plugin, ", 8);
}

void *load(const char *name) {
    return dlopen(name, RTLD_NOW);
}
