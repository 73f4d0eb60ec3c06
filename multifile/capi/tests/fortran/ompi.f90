! Threads of MPI processes write and read a multifile with the module.
program ompi
  use, intrinsic :: iso_c_binding
  use mpi
  use omp_lib
  use sion_f90_ompi
  implicit none
  integer :: process, provided, ierr

  call MPI_Init_thread(MPI_THREAD_FUNNELED, provided, ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, process, ierr)
  call omp_set_dynamic(.false.)
  !$omp parallel num_threads(2)
  call write_and_read()
  !$omp end parallel
  call MPI_Finalize(ierr)

contains
  subroutine write_and_read()
    integer(c_int) :: sid, code, globalrank, nfiles, number, back
    integer(c_int32_t) :: fsblksize
    integer(c_int64_t) :: chunk, done
    character(len=20) :: name
    number = 2 * process + omp_get_thread_num()
    chunk = 100
    fsblksize = 64
    nfiles = 1
    call fsion_paropen_ompi('ompi.sion', 'bw', nfiles, MPI_COMM_WORLD, MPI_COMM_WORLD, chunk, &
      fsblksize, globalrank, name, sid)
    if (sid < 0 .or. globalrank /= number .or. name /= 'ompi.sion') error stop 1
    call fsion_write(number, 4_c_int64_t, 1_c_int64_t, sid, done)
    call fsion_parclose_ompi(sid, code)
    if (code /= SION_SUCCESS) error stop 2
    nfiles = -1
    call fsion_paropen_ompi('ompi.sion', 'br', nfiles, MPI_COMM_WORLD, MPI_COMM_WORLD, chunk, &
      fsblksize, globalrank, name, sid)
    call fsion_read(back, 4_c_int64_t, 1_c_int64_t, sid, done)
    if (back /= number .or. nfiles /= 1) error stop 3
    call fsion_parclose_ompi(sid, code)
  end subroutine
end program
