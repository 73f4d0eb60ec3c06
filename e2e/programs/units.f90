! Units of every access: gfortran's library uses the descriptor itself.
program units
  implicit none
  integer :: i, found
  character(len=40) :: line
  open (10, file='formatted', status='replace')
  do i = 1, 20000
    write (10, '(i8, f12.4)') i, i * 0.5
  end do
  rewind (10)
  read (10, '(a)') line
  print *, trim(line)
  close (10)
  open (11, file='direct', access='direct', recl=16, status='replace')
  do i = 100, 1, -1
    write (11, rec=i) i, i, i, i
  end do
  read (11, rec=50) found
  print *, found
  close (11)
  open (12, file='stream', access='stream', status='replace')
  write (12) 'streamed', 1.5d0
  flush (12)
  inquire (12, size=found)
  print *, found
  write (12, pos=3) 'X'
  close (12)
  open (13, file='formatted', position='append')
  write (13, *) 'appended'
  close (13)
  open (14, file='unformatted', form='unformatted', status='replace')
  write (14) (i, i = 1, 10000)
  backspace (14)
  close (14)
end program units
