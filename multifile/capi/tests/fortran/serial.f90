! One process writes and reads a multifile with the module, data of several types and shapes.
program serial
  use, intrinsic :: iso_c_binding
  use sion_f90
  implicit none
  integer(c_int) :: ntasks = 3, nfiles = 1, ranks(3) = [4, 5, 6], sid, ierr, eof, rank
  integer(c_int) :: files, pairs, number, endianness, rc
  integer(c_int64_t) :: skip, table, chunk, at(4)
  integer(c_int64_t), pointer :: values(:)
  type(c_ptr) :: lens, where, blocks, sizes
  integer(c_int32_t) :: fsblksize = 512
  integer(c_int64_t) :: chunks(3) = 1000, written, found(3), key, counts(3)
  integer(c_int16_t) :: halves(4) = [1_c_int16_t, 258_c_int16_t, 0_c_int16_t, 0_c_int16_t]
  integer(c_size_t) :: length
  real(c_double) :: matrix(4, 5), back(4, 5), part(2, 5)
  complex(c_double_complex) :: z(3)
  character(len=10) :: text, other
  logical :: flags(2)
  integer :: i, task

  matrix = reshape([(real(i, c_double) / 3, i = 1, 20)], shape(matrix))
  ! Names are filled up with blanks in Fortran; "wb,posix" writes.
  call fsion_open('serial.sion   ', 'wb,posix  ', ntasks, nfiles, chunks, fsblksize, ranks, sid)
  call check(sid >= 0, 'open')
  do task = 0, 2
    call fsion_seek(sid, task, SION_CURRENT_BLK, SION_CURRENT_POS, ierr)
    call check(ierr == SION_SUCCESS, 'seek')
    call fsion_ensure_free_space(sid, 500_c_int64_t, ierr)
    call check(ierr == SION_SUCCESS, 'ensure')
    call fsion_write(task, 4_c_int64_t, 1_c_int64_t, sid, written)
    call check(written == 1, 'integer')
    call fsion_fwrite(matrix, 8_c_int64_t, 20_c_int64_t, sid, written)
    call check(written == 20, 'matrix')
    ! A section that is not contiguous is packed by the compiler.
    call fsion_write(matrix(2:3, :), 8_c_int64_t, 10_c_int64_t, sid, written)
    call check(written == 10, 'section')
    call fsion_write('ten bytes!', 1_c_int64_t, 10_c_int64_t, sid, written)
    call check(written == 10, 'text')
    call fsion_write([(1d0, 2d0), (3d0, 4d0), (5d0, 6d0)], 16_c_int64_t, 3_c_int64_t, sid, written)
    call check(written == 3, 'complex')
    call fsion_write([.true., .false.], 4_c_int64_t, 2_c_int64_t, sid, written)
    call check(written == 2, 'logical')
  end do
  call fsion_flush(sid, ierr)
  call check(ierr == SION_SUCCESS, 'flush')
  call fsion_close(sid, ierr)
  call check(ierr == SION_SUCCESS, 'close')

  ntasks = 0
  chunks = 0
  call fsion_open('serial.sion', 'br', ntasks, nfiles, chunks, fsblksize, ranks, sid)
  call check(sid >= 0 .and. ntasks == 3 .and. nfiles == 1 .and. fsblksize == 512, 'open to read')
  call check(all(chunks == 1024) .and. all(ranks == [4, 5, 6]), 'arrays')
  call fsion_get_chunksizes(sid, found, ierr)
  call check(ierr == SION_SUCCESS .and. all(found == 1024), 'chunk sizes')
  call fsion_get_globalranks(sid, counts, ierr)
  call check(ierr == SION_SUCCESS .and. all(counts == [4, 5, 6]), 'global ranks')
  call fsion_get_mapping_spec(sid, pairs, files, ierr)
  call check(ierr == SION_SUCCESS .and. pairs == -1 .and. files == 1, 'no mapping')
  call fsion_swap(halves(3:4), halves(1:2), 2, 2, 1)
  call check(all(halves == [1_c_int16_t, 258_c_int16_t, 256_c_int16_t, 513_c_int16_t]), 'swap')
  call fsion_swap(back, matrix, 8, 20, 1, rc)
  call check(rc == SION_SUCCESS, 'swap says that it is done')
  call check(all(back /= matrix), 'matrix swapped')
  call fsion_swap(part, back(1:2, :), 8, 10, 1)
  call check(all(part == matrix(1:2, :)), 'section swapped back')
  call fsion_swap(back, matrix, 8, 20, 0)
  call check(all(back == matrix), 'matrix copied')
  back = 0
  call fsion_get_locations(sid, ntasks, pairs, skip, table, lens, where, blocks, sizes, ierr)
  call check(ierr == SION_SUCCESS .and. ntasks == 3, 'locations')
  call check(pairs == 1 .and. skip == 3072, 'blocks')
  call c_f_pointer(lens, values, [3])
  call check(all(values == 1024), 'chunk sizes by pointer')
  call c_f_pointer(where, values, [3])
  call check(all(values == [4, 5, 6]), 'global ranks by pointer')
  call fsion_get_locations(sid, ntasks, pairs, skip, table, at(1), at(2), at(3), at(4), ierr)
  call check(ierr == SION_SUCCESS .and. all(at /= 0), 'addresses')
  call fsion_get_current_locations(sid, ntasks, where, blocks, ierr)
  call c_f_pointer(where, values, [3])
  call check(ierr == SION_SUCCESS .and. all(values == table - [3072, 2048, 1024]), 'positions')
  call fsion_get_current_locations(sid, ntasks, at(1), at(2), ierr)
  call check(ierr == SION_SUCCESS .and. all(at(1:2) /= 0), 'addresses of positions')
  call fsion_get_endianess(endianness)
  call fsion_get_file_endianess(sid, number)
  call check(endianness == number, 'endianness by its old name')
  call fsion_get_endianness(endianness)
  call fsion_get_file_endianness(sid, number)
  call fsion_endianness_swap_needed(sid, i)
  call check(endianness == number .and. i == 0, 'endianness')
  do task = 2, 0, -1
    call fsion_seek(sid, task, 0, 0_c_int64_t, ierr)
    call check(fsion_bytes_avail_in_block(sid) == 4 + 160 + 80 + 10 + 48 + 8, 'available')
    call fsion_read(number, 4_c_int64_t, 1_c_int64_t, sid, written)
    call check(written == 1 .and. number == task, 'integer back')
    call fsion_fread(back, 8_c_int64_t, 20_c_int64_t, sid, written)
    call check(all(back == matrix), 'matrix back')
    call fsion_read(part, 8_c_int64_t, 10_c_int64_t, sid, written)
    call check(all(part == matrix(2:3, :)), 'section back')
    call fsion_read(text, 1_c_int64_t, 10_c_int64_t, sid, written)
    call check(text == 'ten bytes!', 'text back')
    call fsion_read(z, 16_c_int64_t, 3_c_int64_t, sid, written)
    call check(z(3) == (5d0, 6d0), 'complex back')
    call fsion_feof(sid, eof)
    call check(eof == 0, 'not the end')
    call fsion_read(flags, 4_c_int64_t, 2_c_int64_t, sid, written)
    call check(flags(1) .and. .not. flags(2), 'logical back')
    call fsion_feof(sid, eof)
    call check(eof == 1, 'the end')
  end do
  call fsion_close(sid, ierr)
  call check(ierr == SION_SUCCESS, 'close again')

  rank = 1
  call fsion_open_rank('serial.sion', 'br', chunks(1), fsblksize, rank, sid)
  call check(sid >= 0 .and. chunks(1) == 1024, 'open a rank')
  call fsion_read(number, 4_c_int64_t, 1_c_int64_t, sid, written)
  call check(number == 1, 'its number')
  call fsion_close(sid, ierr)

  call fsion_open('absent.sion', 'br', ntasks, nfiles, chunks, fsblksize, ranks, sid)
  call check(sid == -1 .and. sion_last_error() == 6 .and. sion_last_errno() == 2, 'absent')

  ntasks = 1
  chunk = 100
  fsblksize = 64
  rank = 9
  call fsion_open('one.sion', 'bw', ntasks, nfiles, chunk, fsblksize, rank, sid)
  call check(sid >= 0, 'open with scalars')
  call fsion_close(sid, ierr)
  chunk = 0
  rank = 0
  call fsion_open('one.sion', 'br', ntasks, nfiles, chunk, fsblksize, rank, sid)
  call check(sid >= 0 .and. chunk == 128 .and. rank == 9, 'scalars back')
  call fsion_close(sid, ierr)

  ntasks = 1
  chunks(1) = 16
  fsblksize = 16
  call fsion_open('keys.sion', 'bw,keyval=inline', ntasks, nfiles, chunks, fsblksize, ranks, sid)
  call check(sion_fwrite_key('records', 7_c_int64_t, 1_c_size_t, 7_c_size_t, sid) == 7, 'record')
  call fsion_close(sid, ierr)
  call fsion_open('keys.sion', 'br,keyval=inline', ntasks, nfiles, chunks, fsblksize, ranks, sid)
  call check(sion_fread_key_iterator_next(sid, key, length) == SION_SUCCESS, 'iterator')
  call check(key == 7 .and. length == 7, 'key')
  other = ' '
  call check(sion_fread_key(other, 7_c_int64_t, 1_c_size_t, 9_c_size_t, sid) == 7, 'short')
  call check(other == 'records', 'value')
  call fsion_close(sid, ierr)

contains
  subroutine check(holds, what)
    logical, intent(in) :: holds
    character(len=*), intent(in) :: what
    if (holds) return
    print '(3a, i0)', 'failed: ', what, ', error ', sion_last_error()
    error stop 1
  end subroutine
end program
