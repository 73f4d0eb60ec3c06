/* The debug interface of SIONlib. This library has nothing to print there; calls do nothing. */
#ifndef SION_DEBUG_H
#define SION_DEBUG_H

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define DPRINTF(args)
#define DPRINTFP(args)
#define DPRINTFTS(rank, text)
#define DPRINTFTS2(rank, text)
#define ONLY_DEBUG(statement)

int sion_isdebug(void);
void sion_debug_on(int mask, const char *filename);
void sion_debug_off(void);
FILE *sion_get_dfile(void);
void sion_dclose(void);

#ifdef __cplusplus
}
#endif

#endif
