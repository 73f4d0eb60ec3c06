/* Numbers and counts that the kernel refuses: it looks at nothing that they seem to name. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void say(const char *what, int failed)
{
    printf("%s: %s\n", what, failed < 0 ? strerror(errno) : "done");
}

int main(void)
{
    struct stat found;
    char link[16];
    mkdir("folder", 0755);
    close(open("folder/precious", O_CREAT | O_WRONLY, 0644));
    dup2(open("folder", O_RDONLY | O_DIRECTORY), 9);
    say("fstatat", fstatat(-9, "precious", &found, 0));
    say("openat", openat(-9, "precious", O_RDWR));
    say("create", openat(-9, "made", O_RDWR | O_CREAT, 0644));
    say("mkdirat", mkdirat(-9, "made", 0755));
    say("renameat", renameat(-9, "precious", 9, "other"));
    say("renameat to", renameat(9, "precious", -9, "other"));
    say("linkat", linkat(-9, "precious", 9, "other", 0));
    say("symlinkat", symlinkat("precious", -9, "other"));
    say("readlinkat", readlinkat(-9, "precious", link, sizeof link));
    say("fchmodat", fchmodat(-9, "precious", 0600, 0));
    say("utimensat", utimensat(-9, "precious", NULL, 0));
    say("faccessat", faccessat(-9, "precious", F_OK, 0));
    say("unlinkat", unlinkat(-9, "precious", 0));

    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page + 4096, 4096);
    struct file_dedupe_range *range = (void *)(page + 4096 - sizeof *range);
    memset(range, 0, sizeof *range);
    range->src_length = 4096;
    range->dest_count = 65535;
    say("more ranges than a page", ioctl(open("x", O_RDWR | O_CREAT, 0644), FIDEDUPERANGE, range));
    return 0;
}
