! Constants for Fortran 77, in fixed and free form. Integers of eight bytes are expected for
! sizes, counts, and positions.
      integer SION_MAIN_VERSION, SION_SUB_VERSION
      integer SION_VERSION_PATCHLEVEL, SION_FILEFORMAT_VERSION
      integer SION_SUCCESS, SION_NOT_SUCCESS
      integer SION_CURRENT_RANK, SION_CURRENT_BLK, SION_CURRENT_CHUNK
      integer*8 SION_CURRENT_POS
      integer SION_ABSOLUTE_POS, SION_END_POS
      parameter (SION_MAIN_VERSION = 1, SION_SUB_VERSION = 7)
      parameter (SION_VERSION_PATCHLEVEL = 6)
      parameter (SION_FILEFORMAT_VERSION = 5)
      parameter (SION_SUCCESS = 1, SION_NOT_SUCCESS = 0)
      parameter (SION_CURRENT_RANK = -101, SION_CURRENT_BLK = -102)
      parameter (SION_CURRENT_CHUNK = -102, SION_CURRENT_POS = -103)
      parameter (SION_ABSOLUTE_POS = -104, SION_END_POS = -105)
