/* A library for LD_PRELOAD that interposes opendir, as tools do that count calls. It looks up the
 * one behind it by RTLD_NEXT in its first call, by a handle of libc in later ones. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>

struct folder;
static int calls;

struct folder *opendir(const char *path)
{
    void *from = calls++ ? dlopen("libc.so.6", RTLD_NOW) : RTLD_NEXT;
    struct folder *(*behind)(const char *) = (struct folder * (*)(const char *)) dlsym(from, "opendir");
    if (behind == opendir || calls > 100) return NULL;
    return behind(path);
}

__attribute__((destructor)) static void say(void)
{
    printf("opendir %d\n", calls);
    fflush(stdout);
}
