/* Every function has two names, sion_x and lsion_x: SIONlib is built in two flavours. */
#ifndef ALIAS_H
#define ALIAS_H

#define SION_FLAVOURS(name) extern __typeof__(name) l##name __attribute__((alias(#name)))

#endif
