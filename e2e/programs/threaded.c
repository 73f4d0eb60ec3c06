/* A library that begins a thread when it is loaded, as profilers do. */
#include <pthread.h>
#include <unistd.h>

static void *work(void *none)
{
    for (;;)
        pause();
    return none;
}

__attribute__((constructor)) static void begin(void)
{
    pthread_t thread;
    pthread_create(&thread, 0, work, 0);
}
