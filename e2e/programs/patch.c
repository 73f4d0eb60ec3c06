/* A library that puts a jump at the start of libc's mmap, as UCX and libfabric do, and counts what
 * comes there. It is linked to a program, and so is behind what is preloaded. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static int mapped;

static void *count(void *at, size_t len, int protection, int flags, int file, off_t offset)
{
    mapped++;
    return (void *)syscall(SYS_mmap, at, len, protection, flags, file, offset);
}

/* How often libc's mmap has been called since it was patched. */
int mapped_count(void)
{
    return mapped;
}

/* Fails where it cannot be done. */
int patch(void)
{
#ifdef __x86_64__
    unsigned char jump[] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0}; /* mov rax, N; jmp rax */
    void *to = (void *)count;
    memcpy(jump + 2, &to, sizeof to);
    unsigned char *code = dlsym(RTLD_NEXT, "mmap");
    void *page = (void *)((uintptr_t)code & ~(uintptr_t)4095);
    if (mprotect(page, 8192, PROT_READ | PROT_WRITE | PROT_EXEC)) return -1;
    memcpy(code, jump, sizeof jump);
    return mprotect(page, 8192, PROT_READ | PROT_EXEC);
#else
    return -1;
#endif
}
