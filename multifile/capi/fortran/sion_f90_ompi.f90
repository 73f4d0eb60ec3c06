! The threads of MPI processes open a multifile together; sion_ompi.h says how.
module sion_f90_ompi
  use, intrinsic :: iso_c_binding, only: c_int, c_int32_t, c_int64_t
  use sion_f90
  implicit none
  private :: c_int, c_int32_t, c_int64_t

  interface
    subroutine fsion_paropen_ompi(fname, mode, nfiles, gcomm, lcomm, chunksize, fsblksize, &
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

    subroutine fsion_parclose_ompi(sid, ierr)
      import :: c_int
      integer(c_int), intent(in) :: sid
      integer(c_int), intent(out) :: ierr
    end subroutine
  end interface
end module
