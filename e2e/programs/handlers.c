// Signals come while a file is written to, from another thread and from a timer. Says of what a
// handler is promised whether it holds: the same natively.
//   handlers FILE
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { TIMES = 200, RECORD = 6000 };

typedef void (*handler)(int);

static int file;
static pthread_t writer;
static sigjmp_buf out;
static char stack[65536];
static volatile sig_atomic_t count, wrong, inner, is_over;
static sigset_t mask_before;

static void every(int microseconds) {
    struct itimerval interval = {{0, microseconds}, {0, microseconds}};
    setitimer(ITIMER_REAL, &interval, NULL);
}

static void soon(void) {
    struct itimerval interval = {{0, 0}, {0, 150}};
    setitimer(ITIMER_REAL, &interval, NULL);
}

// Writes until enough has come, or for far too long.
static void write_until(int enough) {
    static char record[RECORD];
    for (int i = 0; count < enough && i < 2000000; i++) {
        if (write(file, record, RECORD) != RECORD) wrong++;
        if (i % 1000 == 999) lseek(file, 0, SEEK_SET);
    }
    every(0);
}

static void say(const char *what, int holds) {
    sigset_t mask;
    pthread_sigmask(SIG_SETMASK, &mask_before, &mask);
    for (int i = 1; i < NSIG; i++) {
        if (sigismember(&mask, i) != sigismember(&mask_before, i)) printf("%d is blocked\n", i);
    }
    printf("%s: %s\n", what, holds && !wrong ? "holds" : "does not hold");
    fflush(stdout);
    count = wrong = inner = 0;
}

static void set(int signal, void *function, int flags) {
    struct sigaction action = {.sa_flags = flags};
    action.sa_handler = (handler)function;
    if (sigaction(signal, &action, NULL)) exit(2);
}

static void counts(int signal) { (void)signal, count++; }

// Signals with values, from another thread to the process; only the writer takes them.
static void *sends_values(void *signal) {
    struct timespec while_ = {0, 50000};
    for (int i = 0; i < TIMES; i++) {
        union sigval value = {.sival_int = i};
        while (sigqueue(getpid(), *(int *)signal, value)) nanosleep(&while_, NULL);
        if (i % 4 == 3) nanosleep(&while_, NULL);
    }
    return NULL;
}

static void *sends_others(void *unused) {
    struct timespec while_ = {0, 100000};
    (void)unused;
    while (!is_over) {
        pthread_kill(writer, SIGUSR1);
        pthread_kill(writer, SIGUSR2);
        nanosleep(&while_, NULL);
    }
    return NULL;
}

// `body` sends what the calling thread gets and the new one does not.
static pthread_t beside(void *(*body)(void *), void *argument) {
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    if (pthread_create(&thread, NULL, body, argument)) exit(2);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return thread;
}

static void in_order(int signal, siginfo_t *info, void *context) {
    if (!context || info->si_signo != signal || info->si_code != SI_QUEUE) wrong++;
    if (info->si_pid != getpid() || info->si_value.sival_int != count) wrong++;
    count++;
}

static void values_keep_their_order(void) {
    int signal = SIGRTMIN + 3;
    set(signal, in_order, SA_SIGINFO | SA_RESTART);
    pthread_t sender = beside(sends_values, &signal);
    write_until(TIMES);
    pthread_join(sender, NULL);
    say("count, order, and values of real-time signals", count == TIMES);
}

static void others(int signal, siginfo_t *info, void *context) {
    (void)context;
    if (info->si_code != SI_TKILL || !pthread_equal(pthread_self(), writer)) wrong++;
    if (signal == SIGUSR1) {
        inner++;
        for (volatile int i = 0; i < 2000; i++) continue;
        inner--;
    } else if (inner) {
        wrong++;
    }
    count++;
}

static void masks_are_kept(void) {
    struct sigaction action = {.sa_sigaction = others, .sa_flags = SA_SIGINFO};
    set(SIGUSR2, others, SA_SIGINFO);
    sigaddset(&action.sa_mask, SIGUSR2);
    sigaction(SIGUSR1, &action, NULL);
    is_over = 0;
    pthread_t sender = beside(sends_others, NULL);
    write_until(TIMES);
    is_over = 1;
    pthread_join(sender, NULL);
    say("masks of handlers, and signals to a thread", count >= TIMES);
}

static void once(int signal) {
    struct sigaction now;
    sigaction(signal, NULL, &now);
    if (now.sa_handler != SIG_DFL || !(now.sa_flags & (int)SA_RESETHAND)) wrong++;
    if (now.sa_flags & SA_SIGINFO) wrong++;
    set(signal, once, SA_RESETHAND);
    soon();
    count++;
}

static void handlers_come_once(void) {
    set(SIGALRM, once, SA_RESETHAND);
    soon();
    write_until(TIMES);
    pid_t child = fork();
    if (child == 0) {
        count = 0;
        set(SIGALRM, counts, SA_RESETHAND);
        every(150);
        write_until(2);
        _exit(1);
    }
    int status;
    waitpid(child, &status, 0);
    say("a handler that comes once", WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM);
}

static void jumps(int signal) {
    (void)signal;
    count++;
    siglongjmp(out, 1);
}

static void *writes(void *unused) {
    if (write(file, "abc", 3) != 3) wrong++;
    return unused;
}

static void jumps_leave_nothing_behind(void) {
    set(SIGALRM, jumps, 0);
    sigsetjmp(out, 1);
    if (count < TIMES) {
        every(150);
        write_until(TIMES);
    }
    every(0);
    pthread_join(beside(writes, NULL), NULL);
    say("jumps out of a handler", count >= TIMES);
}

static void on_stack(int signal) {
    char here;
    (void)signal;
    if (&here < stack || &here >= stack + sizeof stack) wrong++;
    count++;
}

static void stacks_are_used(void) {
    stack_t other = {.ss_sp = stack, .ss_size = sizeof stack}, none = {.ss_flags = SS_DISABLE};
    sigaltstack(&other, NULL);
    set(SIGALRM, on_stack, SA_ONSTACK | SA_NODEFER);
    every(150);
    write_until(TIMES);
    sigaltstack(&none, NULL);
    say("a stack for handlers", 1);
}

static void ends(int signal) { (void)signal, _exit(7); }

static void forks(int signal) {
    (void)signal;
    pid_t child = fork();
    int status;
    if (child == 0) _exit(write(file, "child", 5) == 5 ? 5 : 6);
    if (waitpid(child, &status, 0) != child || WEXITSTATUS(status) != 5) wrong++;
    count++;
}

static void processes_end_and_begin(void) {
    int status;
    pid_t child = fork();
    if (child == 0) {
        set(SIGALRM, ends, 0);
        every(150);
        write_until(1);
    }
    waitpid(child, &status, 0);
    say("a handler that ends its process", WIFEXITED(status) && WEXITSTATUS(status) == 7);
    set(SIGALRM, forks, 0);
    every(10000);
    write_until(20);
    say("a handler that forks", count >= 20);
}

// Installs a handler as `install` does; says whether everybody is told of it alone.
static int is_told(handler (*install)(int, handler), int flags) {
    struct sigaction action = {.sa_handler = SIG_DFL}, told;
    sigaction(SIGUSR1, &action, NULL);
    int is_right = install(SIGUSR1, counts) == SIG_DFL && install(SIGUSR1, jumps) == counts;
    sigaction(SIGUSR1, NULL, &told);
    is_right &= told.sa_handler == jumps;
    int known = SA_SIGINFO | SA_RESTART | SA_NODEFER | SA_ONSTACK | (int)SA_RESETHAND;
    is_right &= (told.sa_flags & known) == flags;
    is_right &= sigismember(&told.sa_mask, SIGUSR1) == (install == signal);
    return is_right && install(SIGUSR1, SIG_IGN) == jumps && install(SIGUSR1, SIG_DFL) == SIG_IGN;
}

static void programs_are_told_of_their_own(void) {
    struct sigaction action = {.sa_sigaction = others, .sa_flags = SA_SIGINFO | SA_ONSTACK}, told;
    int is_right = is_told(signal, SA_RESTART);
    is_right &= is_told(sysv_signal, SA_NODEFER | (int)SA_RESETHAND);
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    is_right &= is_told(sigset, 0);
    is_right &= sigset(SIGUSR1, SIG_HOLD) == SIG_DFL && sigset(SIGUSR1, counts) == SIG_HOLD;
    siginterrupt(SIGUSR1, 1);
    is_right &= is_told(signal, 0);
    siginterrupt(SIGUSR1, 0);
#pragma GCC diagnostic warning "-Wdeprecated-declarations"
    is_right &= is_told(signal, SA_RESTART);
    sigaction(SIGUSR2, &action, NULL);
    is_right &= sigaction(SIGUSR2, NULL, &told) == 0 && told.sa_sigaction == others;
    is_right &= (told.sa_flags & (SA_SIGINFO | SA_ONSTACK)) == (SA_SIGINFO | SA_ONSTACK);
    // By instruction it finds another function, which it may give back.
    struct { void *function; unsigned long flags, restorer, mask; } found;
    is_right &= syscall(SYS_rt_sigaction, SIGUSR2, NULL, &found, sizeof found.mask) == 0;
    struct sigaction back = {.sa_flags = SA_SIGINFO | SA_ONSTACK};
    memcpy(&back.sa_sigaction, &found.function, sizeof found.function);
    is_right &= sigaction(SIGUSR2, &back, NULL) == 0 && sigaction(SIGUSR2, NULL, &told) == 0;
    is_right &= told.sa_sigaction == others && raise(SIGUSR2) == 0 && count == 1;
    for (int i = 0; i < 3; i++) {
        int number = (int[]){0, SIGKILL, NSIG}[i];
        is_right &= signal(number, counts) == SIG_ERR && errno == EINVAL;
        errno = 0;
        is_right &= sigaction(number, &action, NULL) == -1 && errno == EINVAL;
    }
    say("what a program is told of its handlers", is_right);
}

int main(int argc, char **argv) {
    if (argc != 2 || (file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC, 0600)) < 0) return 2;
    writer = pthread_self();
    pthread_sigmask(SIG_SETMASK, NULL, &mask_before);
    programs_are_told_of_their_own();
    values_keep_their_order();
    masks_are_kept();
    handlers_come_once();
    jumps_leave_nothing_behind();
    stacks_are_used();
    processes_end_and_begin();
    return 0;
}
