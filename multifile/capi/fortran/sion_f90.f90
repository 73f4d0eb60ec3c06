! Multifiles for Fortran 2008: what works on every handle, and what one process opens.
!
! This module holds interfaces only; the procedures are those of Fortran 77. `data` is of any type
! and shape. Counts are items: an item is as many bytes as `size` says.
module sion_f90
  use, intrinsic :: iso_c_binding, only: c_int, c_int32_t, c_int64_t, c_ptr, c_size_t
  implicit none
  private

  integer(c_int), parameter, public :: SION_SUCCESS = 1, SION_NOT_SUCCESS = 0
  integer(c_int), parameter, public :: SION_MAIN_VERSION = 1, SION_SUB_VERSION = 7
  integer(c_int), parameter, public :: SION_VERSION_PATCHLEVEL = 6, SION_FILEFORMAT_VERSION = 5

  ! Places for fsion_seek and sion_seek_key.
  integer(c_int), parameter, public :: SION_CURRENT_RANK = -101
  integer(c_int), parameter, public :: SION_CURRENT_BLK = -102, SION_CURRENT_CHUNK = -102
  integer(c_int64_t), parameter, public :: SION_CURRENT_POS = -103
  integer(c_int), parameter, public :: SION_ABSOLUTE_POS = -104, SION_END_POS = -105

  public :: fsion_open, fsion_open_rank, fsion_close
  public :: fsion_write, fsion_fwrite, fsion_read, fsion_fread
  public :: fsion_feof, fsion_seek, fsion_ensure_free_space, fsion_flush
  public :: fsion_bytes_avail_in_block, fsion_get_position
  public :: fsion_get_chunksizes, fsion_get_globalranks, fsion_get_fileno
  public :: fsion_get_mapping_spec, fsion_get_mapping
  public :: fsion_get_locations, fsion_get_current_locations
  public :: fsion_get_file_endianness, fsion_get_endianness, fsion_endianness_swap_needed
  public :: fsion_get_file_endianess, fsion_get_endianess
  public :: fsion_swap
  public :: sion_fwrite_key, sion_fread_key, sion_seek_key, sion_key_full_scan
  public :: sion_fread_key_iterator_reset, sion_fread_key_iterator_next
  public :: sion_last_error, sion_last_errno, sion_last_error_rank

  ! `sid` is -1 if the file could not be opened, here and below; sion_last_error says why. Chunk
  ! sizes and ranks are arrays, or scalars for one task.
  interface fsion_open
    subroutine fsion_open(fname, mode, ntasks, nfiles, chunksizes, fsblksize, globalranks, sid)
      import :: c_int, c_int32_t, c_int64_t
      character(len=*), intent(in) :: fname, mode
      integer(c_int), intent(inout) :: ntasks, nfiles
      integer(c_int64_t), intent(inout) :: chunksizes(*)
      integer(c_int32_t), intent(inout) :: fsblksize
      integer(c_int), intent(inout) :: globalranks(*)
      integer(c_int), intent(out) :: sid
    end subroutine

    subroutine fsion_open_one(fname, mode, ntasks, nfiles, chunksizes, fsblksize, globalranks, sid)
      import :: c_int, c_int32_t, c_int64_t
      character(len=*), intent(in) :: fname, mode
      integer(c_int), intent(inout) :: ntasks, nfiles
      integer(c_int64_t), intent(inout) :: chunksizes
      integer(c_int32_t), intent(inout) :: fsblksize
      integer(c_int), intent(inout) :: globalranks
      integer(c_int), intent(out) :: sid
    end subroutine
  end interface

  interface
    subroutine fsion_open_rank(fname, mode, chunksize, fsblksize, rank, sid)
      import :: c_int, c_int32_t, c_int64_t
      character(len=*), intent(in) :: fname, mode
      integer(c_int64_t), intent(inout) :: chunksize
      integer(c_int32_t), intent(inout) :: fsblksize
      integer(c_int), intent(inout) :: rank
      integer(c_int), intent(out) :: sid
    end subroutine

    subroutine fsion_close(sid, ierr)
      import :: c_int
      integer(c_int), intent(in) :: sid
      integer(c_int), intent(out) :: ierr
    end subroutine

    subroutine fsion_feof(sid, eof)
      import :: c_int
      integer(c_int), intent(in) :: sid
      integer(c_int), intent(out) :: eof
    end subroutine

    subroutine fsion_seek(sid, rank, block, pos, ierr)
      import :: c_int, c_int64_t
      integer(c_int), intent(in) :: sid, rank, block
      integer(c_int64_t), intent(in) :: pos
      integer(c_int), intent(out) :: ierr
    end subroutine

    subroutine fsion_ensure_free_space(sid, bytes, ierr)
      import :: c_int, c_int64_t
      integer(c_int), intent(in) :: sid
      integer(c_int64_t), intent(in) :: bytes
      integer(c_int), intent(out) :: ierr
    end subroutine

    subroutine fsion_flush(sid, ierr)
      import :: c_int
      integer(c_int), intent(in) :: sid
      integer(c_int), intent(out) :: ierr
    end subroutine

    function fsion_bytes_avail_in_block(sid) result(bytes)
      import :: c_int, c_int64_t
      integer(c_int), intent(in) :: sid
      integer(c_int64_t) :: bytes
    end function

    function fsion_get_position(sid) result(at)
      import :: c_int, c_int64_t
      integer(c_int), intent(in) :: sid
      integer(c_int64_t) :: at
    end function

    subroutine fsion_get_chunksizes(sid, chunksizes, ierr)
      import :: c_int, c_int64_t
      integer(c_int), intent(in) :: sid
      integer(c_int64_t), intent(inout) :: chunksizes(*)
      integer(c_int), intent(out) :: ierr
    end subroutine

    subroutine fsion_get_globalranks(sid, globalranks, ierr)
      import :: c_int, c_int64_t
      integer(c_int), intent(in) :: sid
      integer(c_int64_t), intent(inout) :: globalranks(*)
      integer(c_int), intent(out) :: ierr
    end subroutine

    subroutine fsion_get_fileno(sid, filenumber)
      import :: c_int
      integer(c_int), intent(in) :: sid
      integer(c_int), intent(out) :: filenumber
    end subroutine

    subroutine fsion_get_mapping_spec(sid, mapping_size, numfiles, ierr)
      import :: c_int
      integer(c_int), intent(in) :: sid
      integer(c_int), intent(out) :: mapping_size, numfiles, ierr
    end subroutine

    subroutine fsion_get_mapping(sid, mapping_size, mapping, numfiles, ierr)
      import :: c_int, c_int32_t
      integer(c_int), intent(in) :: sid
      integer(c_int), intent(out) :: mapping_size
      integer(c_int32_t), intent(inout) :: mapping(2, *)
      integer(c_int), intent(out) :: numfiles, ierr
    end subroutine

    subroutine fsion_get_file_endianness(sid, endianness)
      import :: c_int
      integer(c_int), intent(in) :: sid
      integer(c_int), intent(out) :: endianness
    end subroutine

    subroutine fsion_get_file_endianess(sid, endianness)
      import :: c_int
      integer(c_int), intent(in) :: sid
      integer(c_int), intent(out) :: endianness
    end subroutine

    subroutine fsion_get_endianess(endianness)
      import :: c_int
      integer(c_int), intent(out) :: endianness
    end subroutine

    subroutine fsion_get_endianness(endianness)
      import :: c_int
      integer(c_int), intent(out) :: endianness
    end subroutine

    subroutine fsion_endianness_swap_needed(sid, needed)
      import :: c_int
      integer(c_int), intent(in) :: sid
      integer(c_int), intent(out) :: needed
    end subroutine
  end interface

  ! Addresses of arrays that belong to the handle: of type c_ptr, for c_f_pointer, or as integers,
  ! for Cray pointers.
  interface fsion_get_locations
    subroutine fsion_get_locations(sid, ntasks, maxblocks, globalskip, start_of_varheader, &
        chunksizes, globalranks, blockcount, blocksizes, ierr)
      import :: c_int, c_int64_t
      integer(c_int), intent(in) :: sid
      integer(c_int), intent(out) :: ntasks, maxblocks
      integer(c_int64_t), intent(out) :: globalskip, start_of_varheader
      integer(c_int64_t), intent(out) :: chunksizes, globalranks, blockcount, blocksizes
      integer(c_int), intent(out) :: ierr
    end subroutine

    subroutine fsion_get_locations_ptr(sid, ntasks, maxblocks, globalskip, start_of_varheader, &
        chunksizes, globalranks, blockcount, blocksizes, ierr)
      import :: c_int, c_int64_t, c_ptr
      integer(c_int), intent(in) :: sid
      integer(c_int), intent(out) :: ntasks, maxblocks
      integer(c_int64_t), intent(out) :: globalskip, start_of_varheader
      type(c_ptr), intent(out) :: chunksizes, globalranks, blockcount, blocksizes
      integer(c_int), intent(out) :: ierr
    end subroutine
  end interface

  interface fsion_get_current_locations
    subroutine fsion_get_current_locations(sid, ntasks, positions, blocks, ierr)
      import :: c_int, c_int64_t
      integer(c_int), intent(in) :: sid
      integer(c_int), intent(out) :: ntasks
      integer(c_int64_t), intent(out) :: positions, blocks
      integer(c_int), intent(out) :: ierr
    end subroutine

    subroutine fsion_get_current_locations_ptr(sid, ntasks, positions, blocks, ierr)
      import :: c_int, c_ptr
      integer(c_int), intent(in) :: sid
      integer(c_int), intent(out) :: ntasks
      type(c_ptr), intent(out) :: positions, blocks
      integer(c_int), intent(out) :: ierr
    end subroutine
  end interface

  ! Data: the directives let any type and shape match.
  interface
    subroutine fsion_write(data, size, nitems, sid, rc)
      import :: c_int, c_int64_t
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: data
      !DIR$ IGNORE_TKR data
      type(*), dimension(*), intent(in) :: data
      integer(c_int64_t), intent(in) :: size, nitems
      integer(c_int), intent(in) :: sid
      integer(c_int64_t), intent(out) :: rc
    end subroutine

    subroutine fsion_fwrite(data, size, nitems, sid, rc)
      import :: c_int, c_int64_t
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: data
      !DIR$ IGNORE_TKR data
      type(*), dimension(*), intent(in) :: data
      integer(c_int64_t), intent(in) :: size, nitems
      integer(c_int), intent(in) :: sid
      integer(c_int64_t), intent(out) :: rc
    end subroutine

    subroutine fsion_read(data, size, nitems, sid, rc)
      import :: c_int, c_int64_t
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: data
      !DIR$ IGNORE_TKR data
      type(*), dimension(*), intent(inout) :: data
      integer(c_int64_t), intent(in) :: size, nitems
      integer(c_int), intent(in) :: sid
      integer(c_int64_t), intent(out) :: rc
    end subroutine

    subroutine fsion_fread(data, size, nitems, sid, rc)
      import :: c_int, c_int64_t
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: data
      !DIR$ IGNORE_TKR data
      type(*), dimension(*), intent(inout) :: data
      integer(c_int64_t), intent(in) :: size, nitems
      integer(c_int), intent(in) :: sid
      integer(c_int64_t), intent(out) :: rc
    end subroutine

  end interface

  ! `rc` is SION_SUCCESS, because nothing can fail.
  interface fsion_swap
    subroutine fsion_swap_rc(target, source, size, n, do_swap, rc)
      import :: c_int
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: target, source
      !DIR$ IGNORE_TKR target, source
      type(*), dimension(*), intent(inout) :: target
      type(*), dimension(*), intent(in) :: source
      integer(c_int), intent(in) :: size, n, do_swap
      integer(c_int), intent(out), optional :: rc
    end subroutine
  end interface

  ! Key-value records, which Fortran 77 never had: the C functions themselves.
  interface
    function sion_fwrite_key(data, key, size, nitems, sid) bind(c) result(written)
      import :: c_int, c_int64_t, c_size_t
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: data
      !DIR$ IGNORE_TKR data
      type(*), dimension(*), intent(in) :: data
      integer(c_int64_t), value :: key
      integer(c_size_t), value :: size, nitems
      integer(c_int), value :: sid
      integer(c_size_t) :: written
    end function

    function sion_fread_key(data, key, size, nitems, sid) bind(c) result(read)
      import :: c_int, c_int64_t, c_size_t
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: data
      !DIR$ IGNORE_TKR data
      type(*), dimension(*), intent(inout) :: data
      integer(c_int64_t), value :: key
      integer(c_size_t), value :: size, nitems
      integer(c_int), value :: sid
      integer(c_size_t) :: read
    end function

    function sion_seek_key(sid, key, entrynum, posinentry) bind(c) result(success)
      import :: c_int, c_int64_t
      integer(c_int), value :: sid, entrynum
      integer(c_int64_t), value :: key, posinentry
      integer(c_int) :: success
    end function

    function sion_key_full_scan(sid) bind(c) result(success)
      import :: c_int
      integer(c_int), value :: sid
      integer(c_int) :: success
    end function

    function sion_fread_key_iterator_reset(sid) bind(c) result(success)
      import :: c_int
      integer(c_int), value :: sid
      integer(c_int) :: success
    end function

    function sion_fread_key_iterator_next(sid, key, size) bind(c) result(success)
      import :: c_int, c_int64_t, c_size_t
      integer(c_int), value :: sid
      integer(c_int64_t), intent(out) :: key
      integer(c_size_t), intent(out) :: size
      integer(c_int) :: success
    end function
  end interface

  ! Why the last call of this thread failed, as sion_error.h has it.
  interface
    function sion_last_error() bind(c) result(code)
      import :: c_int
      integer(c_int) :: code
    end function

    function sion_last_errno() bind(c) result(code)
      import :: c_int
      integer(c_int) :: code
    end function

    function sion_last_error_rank() bind(c) result(rank)
      import :: c_int
      integer(c_int) :: rank
    end function
  end interface
end module
