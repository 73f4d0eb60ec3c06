// Two handlers, of which the second calls the first as the library `chain.c` remembers it.
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

struct sigaction *chained(int signal);

static void first(int signal) {
    printf("first %d\n", signal);
}

static void second(int signal, siginfo_t *info, void *context) {
    static int depth;
    struct sigaction *older = chained(signal);
    if (depth++ > 3) exit(1);
    printf("second\n");
    if (older->sa_flags & SA_SIGINFO) older->sa_sigaction(signal, info, context);
    else older->sa_handler(signal);
}

int main(void) {
    struct sigaction action = {.sa_handler = first};
    sigaction(SIGUSR1, &action, NULL);
    struct sigaction newer = {.sa_sigaction = second, .sa_flags = SA_SIGINFO};
    sigaction(SIGUSR1, &newer, NULL);
    raise(SIGUSR1);
    return 0;
}
