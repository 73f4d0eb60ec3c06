/* Constants of the interface. Their values are fixed for ever. */
#ifndef SION_CONST_H
#define SION_CONST_H

/* Version of SIONlib that this library stands in for, and of the files it writes. */
#define SION_MAIN_VERSION 1
#define SION_SUB_VERSION 7
#define SION_VERSION_PATCHLEVEL 6
#define SION_FILEFORMAT_VERSION 5

/* What functions return ... */
#define SION_SUCCESS 1
#define SION_NOT_SUCCESS 0
/* ... and what callbacks return: the other way round. */
#define SION_STD_SUCCESS 0
#define SION_STD_NOT_SUCCESS 1

#define SION_SMALLEST_VALID_ID 0
#define SION_ID_UNDEF (-1)
#define SION_ID_NOT_VALID (-1)
#define SION_UNKNOWN (-1)
#define SION_AUTOMATIC (-1)
#define SION_SIZE_NOT_VALID (-1)
#define SION_ANSI_SIZE_NOT_VALID 0

/* Places for sion_seek and sion_seek_key. */
#define SION_CURRENT_RANK (-101)
#define SION_CURRENT_BLK (-102)
#define SION_CURRENT_CHUNK SION_CURRENT_BLK
#define SION_CURRENT_BLOCK SION_CURRENT_BLK
#define SION_CURRENT_POS (-103)
#define SION_ABSOLUTE_POS (-104)
#define SION_END_POS (-105)

/* Modes of sion_dup. */
#define SION_DUP_ALL (-201)
#define SION_DUP_RANK (-202)
#define SION_DUP_RANK_KEY (-203)

/* How a task's stream is organised. */
#define SION_KEYVAL_NONE 50
#define SION_KEYVAL_INLINE 51
#define SION_KEYVAL_META 52
#define SION_KEYVAL_HASH 53
#define SION_KEYVAL_UNKNOWN 54
#define SION_KEYVAL_NOTSET 55

/* Element types that generic callbacks are given. */
#define _SION_INT32 10
#define _SION_INT64 11
#define _SION_CHAR 12

/* What a process did with a file, in sion_io_stat_t. */
#define SION_ROLE_NONE 0
#define SION_ROLE_COLLECTOR 1
#define SION_ROLE_SENDER 2
#define SION_ROLE_WRITER 4
#define SION_ROLE_NOWRITER 8
#define SION_ROLE_READER 16
#define SION_ROLE_NOREADER 32
#define SION_ROLE_COLLECTOR_READER 64
#define SION_GET_IO_INFO_FLAG_NONE 0

/* What a get_capability callback returns. */
#define SION_CAPABILITY_FULL 50
#define SION_CAPABILITY_ONLY_SENDER 51
#define SION_CAPABILITY_NONE 52

#define SION_MAX_FSBLOCKSIZE 33554432
#define SION_DEFAULT_FSBLOCKSIZE 2097152
#define SION_FILENAME_LENGTH 1024
#define MAXCHUNKS 100

#endif
