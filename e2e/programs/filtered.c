/* Allows itself usual system calls alone, any other of which kills it, as decoders and parsers in a
 * sandbox do; then writes and reads what it has open. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static const int allowed[] = {
    SYS_read, SYS_write, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_lseek, SYS_fstat,
    SYS_newfstatat, SYS_fsync, SYS_ftruncate, SYS_close, SYS_mmap, SYS_munmap, SYS_mprotect,
    SYS_brk, SYS_futex, SYS_rt_sigreturn, SYS_exit, SYS_exit_group,
};
enum { COUNT = sizeof allowed / sizeof *allowed };

static int enter(int by_number)
{
    struct sock_filter filter[2 * COUNT + 2] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    };
    int len = 1;
    for (int i = 0; i < COUNT; i++) {
        filter[len++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, allowed[i], 0, 1);
        filter[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    }
    filter[len++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    struct sock_fprog program = {len, filter};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (by_number) return syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

static void act(int by_number, int writes_before)
{
    char name[16], text[16] = "";
    snprintf(name, sizeof name, "out-%d-%d", by_number, writes_before);
    int file = open(name, O_RDWR | O_CREAT, 0644);
    int failed = syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL); /* EFAULT: none is there. */
    if (writes_before) write(file, "before ", 7);
    FILE *stream = fdopen(dup(file), "r+");
    if (enter(by_number)) _exit(3);
    for (int i = 0; i < 1000; i++) write(file, "0123456789", 10);
    pread(file, text, 10, 0);
    fputs("by a stream", stream);
    fclose(stream);
    close(file);
    _exit(failed == -1 && text[0] ? 0 : 4);
}

int main(void)
{
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    for (int i = 0; i < 4; i++) {
        int status;
        pid_t child = fork();
        if (child == 0) act(i / 2, i % 2);
        waitpid(child, &status, 0);
        printf("status %#x\n", status);
    }
    return 0;
}
