! The ranks of a communicator open a multifile together; sion_mpi.h says how. Communicators are
! integers: with mpi_f08 pass comm%mpi_val.
module sion_f90_mpi
  use, intrinsic :: iso_c_binding, only: c_int, c_int32_t, c_int64_t
  use sion_f90
  implicit none
  private :: c_int, c_int32_t, c_int64_t

  interface
    ! `newfname` is filled with the name of this rank's physical file.
    subroutine fsion_paropen_mpi(fname, mode, nfiles, gcomm, lcomm, chunksize, fsblksize, &
        globalrank, newfname, sid)
      import :: c_int, c_int32_t, c_int64_t
      character(len=*), intent(in) :: fname, mode
      integer(c_int), intent(inout) :: nfiles
      integer, intent(in) :: gcomm, lcomm
      integer(c_int64_t), intent(inout) :: chunksize
      integer(c_int32_t), intent(inout) :: fsblksize
      integer(c_int), intent(out) :: globalrank
      character(len=*), intent(out) :: newfname
      integer(c_int), intent(out) :: sid
    end subroutine

    subroutine fsion_parclose_mpi(sid, ierr)
      import :: c_int
      integer(c_int), intent(in) :: sid
      integer(c_int), intent(out) :: ierr
    end subroutine

    subroutine fsion_parreinit_mpi(sid, chunksize, ierr)
      import :: c_int, c_int64_t
      integer(c_int), intent(in) :: sid
      integer(c_int64_t), intent(in) :: chunksize
      integer(c_int), intent(out) :: ierr
    end subroutine

    subroutine fsion_coll_fwrite_mpi(data, size, nitems, sid, rc)
      import :: c_int, c_int64_t
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: data
      !DIR$ IGNORE_TKR data
      type(*), dimension(*), intent(in) :: data
      integer(c_int64_t), intent(in) :: size, nitems
      integer(c_int), intent(in) :: sid
      integer(c_int64_t), intent(out) :: rc
    end subroutine

    subroutine fsion_coll_fread_mpi(data, size, nitems, sid, rc)
      import :: c_int, c_int64_t
      !GCC$ ATTRIBUTES NO_ARG_CHECK :: data
      !DIR$ IGNORE_TKR data
      type(*), dimension(*), intent(inout) :: data
      integer(c_int64_t), intent(in) :: size, nitems
      integer(c_int), intent(in) :: sid
      integer(c_int64_t), intent(out) :: rc
    end subroutine
  end interface
end module
