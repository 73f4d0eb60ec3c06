C     Fortran 77, as PEPC and its like do it: no module, names in both flavours.
      program f77
      implicit none
      include 'mpif.h'
      include 'sion_f77.h'
      integer ierr, me, nfiles, fsblks, grank, sid, eof, i
      integer ntasks, pairs, files, sizes(3), mapp(2,3)
      integer word(2), back(2)
      integer*8 chunks(3)
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
      call fsion_get_fileno(sid, files)
      if (files .ne. min(me, 1)) stop 16
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
C     The first file has rank 0, the second the others.
      ntasks = 0
      call fsion_open('f77.sion', 'br', ntasks, nfiles, chunks, fsblks,
     &     sizes, sid)
      if (sid .lt. 0 .or. ntasks .ne. 3 .or. nfiles .ne. 2) stop 17
      call fsion_get_mapping_spec(sid, pairs, files, ierr)
      if (ierr .ne. SION_SUCCESS .or. pairs .ne. 3) stop 18
      if (files .ne. 2) stop 19
      call lfsion_get_mapping(sid, pairs, mapp, files, ierr)
      if (ierr .ne. SION_SUCCESS .or. pairs .ne. 3) stop 20
      if (files .ne. 2 .or. mapp(1,1) .ne. 0) stop 21
      if (mapp(2,1) .ne. 0 .or. mapp(1,2) .ne. 1) stop 22
      if (mapp(2,2) .ne. 0 .or. mapp(1,3) .ne. 1) stop 23
      if (mapp(2,3) .ne. 1) stop 24
      call fsion_close(sid, ierr)
      if (ierr .ne. SION_SUCCESS) stop 25
C     Bytes of each element reversed, or copied.
      word(1) = 1
      word(2) = 258
      call fsion_swap(back, word, 4, 2, 1)
      if (back(1) .ne. 16777216 .or. back(2) .ne. 33619968) stop 26
      call lfsion_swap(word, back, 4, 2, 0)
      if (word(1) .ne. 16777216 .or. word(2) .ne. 33619968) stop 27
      call fsion_swap(word, word, 4, 1, 1)
      if (word(1) .ne. 1 .or. word(2) .ne. 33619968) stop 28
      call MPI_FINALIZE(ierr)
      end
