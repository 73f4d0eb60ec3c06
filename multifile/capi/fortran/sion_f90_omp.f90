! The threads of a parallel region open a multifile together, each of them calling these.
module sion_f90_omp
  use, intrinsic :: iso_c_binding, only: c_int, c_int32_t, c_int64_t
  use sion_f90
  implicit none
  private :: c_int, c_int32_t, c_int64_t

  interface
    subroutine fsion_paropen_omp(fname, mode, chunksize, fsblksize, globalrank, newfname, sid)
      import :: c_int, c_int32_t, c_int64_t
      character(len=*), intent(in) :: fname, mode
      integer(c_int64_t), intent(inout) :: chunksize
      integer(c_int32_t), intent(inout) :: fsblksize
      integer(c_int), intent(out) :: globalrank
      character(len=*), intent(out) :: newfname
      integer(c_int), intent(out) :: sid
    end subroutine

    subroutine fsion_parclose_omp(sid, ierr)
      import :: c_int
      integer(c_int), intent(in) :: sid
      integer(c_int), intent(out) :: ierr
    end subroutine
  end interface
end module
