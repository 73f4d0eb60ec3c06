// A signal handler writes at the very moment in which the kernel is given a file's position: as it
// is set, which a filter of system calls turns into a signal.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

// The first of the file's numbers, by which its position is set.
enum { WATCHED = 50, OTHER };

static volatile sig_atomic_t hits;

static void fail(const char *what) {
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

// Writes, at the first time, and does what was to be done, by the other number of the file.
static void handler(int signal, siginfo_t *info, void *context) {
    (void)signal, (void)info;
    ucontext_t *state = context;
    if (hits++ == 0 && write(WATCHED, "handler ", 8) != 8) _exit(2);
#ifdef __x86_64__
    greg_t *registers = state->uc_mcontext.gregs;
    registers[REG_RAX] = lseek(OTHER, registers[REG_RSI], SEEK_SET);
#else
    unsigned long long *registers = state->uc_mcontext.regs;
    registers[0] = lseek(OTHER, registers[1], SEEK_SET);
#endif
}

static long by_instruction(long number, long a, long b, const void *c) {
#ifdef __x86_64__
    long done;
    __asm__ volatile("syscall"
                     : "=a"(done)
                     : "a"(number), "D"(a), "S"(b), "d"(c)
                     : "rcx", "r11", "memory");
    return done;
#else
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b;
    register const void *x2 __asm__("x2") = c;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
    return x0;
#endif
}

static void watch(void) {
#define WORD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define UNLESS(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, value, 0, skip)
    struct sock_filter code[] = {
        WORD(nr), UNLESS(SYS_lseek, 5),
        WORD(args[0]), UNLESS(WATCHED, 3),
        WORD(args[2]), UNLESS(SEEK_SET, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof *code, code};
    struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO};
    if (sigaction(SIGSYS, &action, NULL)) fail("sigaction");
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)) fail("no new privileges");
    // By instruction: to a process that is seen to install a filter the kernel is given all files.
    if (by_instruction(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program)) fail("filter");
}

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    int fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || dup2(fd, WATCHED) != WATCHED || dup2(fd, OTHER) != OTHER) fail("file");
    close(fd);
    if (write(WATCHED, "before ", 7) != 7) fail("write");
    watch();
    pid_t child = fork();
    if (child == 0) _exit(0);
    waitpid(child, NULL, 0);
    if (write(WATCHED, "after", 5) != 5) fail("write");
    printf("%s\n", hits ? "seen" : "never given");
    return 0;
}
