! Threads write and read a multifile with the module.
program omp
  use, intrinsic :: iso_c_binding
  use omp_lib
  use sion_f90_omp
  implicit none

  call omp_set_dynamic(.false.)
  !$omp parallel num_threads(3)
  call write_and_read()
  !$omp end parallel

contains
  subroutine write_and_read()
    integer(c_int) :: sid, ierr, globalrank, number, back
    integer(c_int32_t) :: fsblksize
    integer(c_int64_t) :: chunk, done
    character(len=20) :: name
    number = omp_get_thread_num()
    chunk = 100
    fsblksize = 64
    call fsion_paropen_omp('omp.sion ', 'bw', chunk, fsblksize, globalrank, name, sid)
    if (sid < 0 .or. globalrank /= number .or. name /= 'omp.sion') error stop 1
    call fsion_write(number, 4_c_int64_t, 1_c_int64_t, sid, done)
    call fsion_parclose_omp(sid, ierr)
    if (ierr /= SION_SUCCESS) error stop 2
    call fsion_paropen_omp('omp.sion', 'br', chunk, fsblksize, globalrank, name, sid)
    call fsion_read(back, 4_c_int64_t, 1_c_int64_t, sid, done)
    if (back /= number .or. chunk /= 128) error stop 3
    call fsion_parclose_omp(sid, ierr)
    if (ierr /= SION_SUCCESS) error stop 4
  end subroutine
end program
