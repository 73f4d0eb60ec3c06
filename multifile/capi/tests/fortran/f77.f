C     Fortran 77, as PEPC and its like do it: no module, names in both flavours.
      program f77
      implicit none
      include 'mpif.h'
      include 'sion_f77.h'
      integer ierr, me, nfiles, fsblks, grank, sid, eof, i
      integer*8 chunk, one, four, eight, n, rc
      integer*8 fsion_bytes_avail_in_block
      external fsion_bytes_avail_in_block
      double precision x(100), y(100)
      character*40 newnam
      call MPI_INIT(ierr)
      call MPI_COMM_RANK(MPI_COMM_WORLD, me, ierr)
      one = 1
      four = 4
      eight = 8
      n = 100
      nfiles = 2
      fsblks = 512
      chunk = 300
      do 10 i = 1, 100
         x(i) = me + i / 100d0
   10 continue
      call fsion_paropen_mpi('f77.sion', 'bw', nfiles, MPI_COMM_WORLD,
     &     MPI_COMM_WORLD, chunk, fsblks, grank, newnam, sid)
      if (sid .lt. 0 .or. grank .ne. me) stop 1
      if (newnam(1:8) .ne. 'f77.sion') stop 2
      call fsion_write_integer(me, four, one, sid, rc)
      if (rc .ne. 1) stop 3
      call fsion_write_double(x, eight, n, sid, rc)
      if (rc .ne. 100) stop 4
      call fsion_write_character('twelve bytes', one, 3 * four, sid, rc)
      if (rc .ne. 12) stop 5
      call fsion_parclose_mpi(sid, ierr)
      if (ierr .ne. SION_SUCCESS) stop 6
      nfiles = 0
      call lfsion_paropen_mpi('f77.sion', 'br', nfiles, MPI_COMM_WORLD,
     &     MPI_COMM_WORLD, chunk, fsblks, grank, newnam, sid)
      if (sid .lt. 0 .or. nfiles .ne. 2 .or. chunk .ne. 512) stop 7
      call lfsion_read(i, four, one, sid, rc)
      if (i .ne. me) stop 8
      if (fsion_bytes_avail_in_block(sid) .ne. 508) stop 9
      call fsion_feof(sid, eof)
      if (eof .ne. 0) stop 10
      call fsion_coll_fread_mpi_double(y, eight, n, sid, rc)
      if (rc .ne. 100) stop 11
      do 20 i = 1, 100
         if (x(i) .ne. y(i)) stop 12
   20 continue
      newnam = ' '
      call fsion_fread_character(newnam, one, 3 * four, sid, rc)
      if (newnam .ne. 'twelve bytes') stop 13
      call fsion_feof(sid, eof)
      if (eof .ne. 1) stop 14
      call lfsion_parclose_mpi(sid, ierr)
      if (ierr .ne. SION_SUCCESS) stop 15
      call MPI_FINALIZE(ierr)
      end
