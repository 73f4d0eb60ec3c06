! MPI processes write and read a multifile with the module, communicators of mpi_f08.
program mpi_program
  use, intrinsic :: iso_c_binding
  use mpi_f08
  use sion_f90_mpi
  implicit none
  integer(c_int) :: nfiles, sid, ierr, globalrank, me
  integer(c_int32_t) :: fsblksize
  integer(c_int64_t) :: chunk, done
  integer(c_int) :: numbers(1000), back(1000)
  integer(c_int) :: tasks, pairs, files, ranks(3)
  integer(c_int32_t) :: mapping(2, 3)
  integer(c_int64_t) :: chunks(3)
  character(len=30) :: name
  type(MPI_Comm) :: local
  integer :: i

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, me)
  call MPI_Comm_split(MPI_COMM_WORLD, mod(me, 2), 0, local)
  numbers = [(me * 1000 + i, i = 1, 1000)]
  nfiles = -1
  chunk = 4000
  fsblksize = -1
  call fsion_paropen_mpi('mpi.sion', 'bw,collective', nfiles, MPI_COMM_WORLD%mpi_val, &
    local%mpi_val, chunk, fsblksize, globalrank, name, sid)
  if (sid < 0 .or. nfiles /= 2 .or. globalrank /= me) error stop 1
  if (name /= merge('mpi.sion       ', 'mpi.sion.000001', mod(me, 2) == 0)) error stop 2
  call fsion_coll_fwrite_mpi(numbers, 4_c_int64_t, 1000_c_int64_t, sid, done)
  if (done /= 1000) error stop 3
  call fsion_parclose_mpi(sid, ierr)
  if (ierr /= SION_SUCCESS) error stop 4
  call fsion_paropen_mpi('mpi.sion', 'br', nfiles, MPI_COMM_WORLD%mpi_val, local%mpi_val, chunk, &
    fsblksize, globalrank, name, sid)
  if (sid < 0 .or. globalrank /= me) error stop 5
  call fsion_coll_fread_mpi(back, 4_c_int64_t, 1000_c_int64_t, sid, done)
  if (done /= 1000 .or. any(back /= numbers)) error stop 6
  call fsion_parclose_mpi(sid, ierr)
  if (ierr /= SION_SUCCESS) error stop 7
  ! Ranks 0 and 2 share the first file.
  call fsion_open('mpi.sion', 'br', tasks, nfiles, chunks, fsblksize, ranks, sid)
  if (sid < 0 .or. tasks /= 3 .or. nfiles /= 2) error stop 9
  call fsion_get_mapping_spec(sid, pairs, files, ierr)
  if (ierr /= SION_SUCCESS .or. pairs /= 3 .or. files /= 2) error stop 10
  call fsion_get_mapping(sid, pairs, mapping, files, ierr)
  if (ierr /= SION_SUCCESS .or. pairs /= 3 .or. files /= 2) error stop 11
  if (any(mapping /= reshape([0, 0, 1, 0, 0, 1], [2, 3]))) error stop 12
  call fsion_close(sid, ierr)
  call fsion_paropen_mpi('none/mpi.sion', 'bw', nfiles, MPI_COMM_WORLD%mpi_val, local%mpi_val, &
    chunk, fsblksize, globalrank, name, sid)
  if (sid /= -1 .or. sion_last_error() /= 6 .or. sion_last_error_rank() < 0) error stop 8
  call MPI_Comm_free(local)
  call MPI_Finalize()
end program
