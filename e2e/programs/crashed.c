/* Dies with text in the buffers of streams, of which libc has written what did not fit. */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

int main(void)
{
    if (fork() != 0) return wait(NULL) < 0;
    FILE *made = fopen("made", "w"), *added = fopen("added", "a"), *again = fopen("again", "w");
    again = freopen("reopened", "w+", again);
    for (int i = 0; i < 1200; i++) {
        fprintf(made, "%09d\n", i);
        fprintf(added, "%09d\n", i);
        fprintf(again, "%09d\n", i);
    }
    raise(SIGKILL);
}
