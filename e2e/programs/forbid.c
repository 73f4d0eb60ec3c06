/* Runs a program that may not use io_uring, as in many containers, or has no fallocate, as on many
 * file systems, or no SO_PEERPIDFD, as before Linux 6.5.
 *
 *   forbid ERROR PROGRAM [ARGUMENT...]      ERROR: EPERM or ENOSYS, what io_uring_setup says,
 *                                           EOPNOTSUPP, what fallocate says, or ENOPROTOOPT, what
 *                                           getsockopt says of that option
 */
#define _GNU_SOURCE
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PEER_PIDFD = 77 }; /* SO_PEERPIDFD, which older headers do not have. */

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: forbid ERROR PROGRAM [ARGUMENT...]\n");
        return 2;
    }
    unsigned call = SYS_io_uring_setup;
    unsigned error = strcmp(argv[1], "ENOSYS") == 0 ? ENOSYS : EPERM;
    if (strcmp(argv[1], "EOPNOTSUPP") == 0) {
        call = SYS_fallocate;
        error = EOPNOTSUPP;
    }
    unsigned option = 0;
    if (strcmp(argv[1], "ENOPROTOOPT") == 0) {
        call = SYS_getsockopt;
        error = ENOPROTOOPT;
        option = PEER_PIDFD;
    }
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, option, 0, option == 0 ? 0 : 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        perror("forbid: prctl");
        return 2;
    }
    execvp(argv[2], argv + 2);
    perror("forbid: exec");
    return 2;
}
