/* The debug interface of SIONlib. This library has nothing to print there; calls do nothing. */
#ifndef SION_DEBUG_H
#define SION_DEBUG_H

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Statements that vanish with their arguments, whether these stand in one pair of parentheses or
 * in two: DPRINTFP((mask, function, rank, format, ...)). */
#define DPRINTF(...) ((void)0)
#define DPRINTFP(...) ((void)0)
#define DPRINTFTS(...) ((void)0)
#define DPRINTFTS2(...) ((void)0)
#define sion_dprintf(...) ((void)0)
#define sion_dprintfp(...) ((void)0)
#define lsion_dprintf(...) ((void)0)
#define lsion_dprintfp(...) ((void)0)
#define ONLY_DEBUG(...)

int sion_isdebug(void);
void sion_debug_on(int mask, const char *filename);
void sion_debug_off(void);
FILE *sion_get_dfile(void);
void sion_dclose(void);

void _sion_debug_init(void);
void _sion_debug_set_query_thread_num_function(int (*query)(void));
/* Callbacks of any type: they are not called. */
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
void _sion_debug_set_lock_cb(...);
#else
void _sion_debug_set_lock_cb();
#endif

#ifdef __cplusplus
}
#endif

#endif
