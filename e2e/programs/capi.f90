! The calls of kakehi.f90: writes from shared memory, and reads back.
program capi
  use kakehi
  use, intrinsic :: iso_c_binding
  implicit none

  interface
    function open_(path, flags, mode) bind(c, name='open')
      import
      character(kind=c_char), intent(in) :: path(*)
      integer(c_int), value :: flags, mode
      integer(c_int) :: open_
    end function
  end interface

  integer(c_int), parameter :: flags = ior(2, 64) ! O_RDWR and O_CREAT, of Linux
  integer(c_size_t), parameter :: n = 8192
  type(c_ptr) :: queue, memory
  type(kakehi_completion) :: found(4)
  real(c_double), pointer :: values(:)
  integer(c_int) :: fd, count
  integer :: i

  fd = open_('fortran.out'//c_null_char, flags, int(o'644', c_int))
  queue = kakehi_queue_create(4_c_int)
  memory = kakehi_alloc(2 * n * 8)
  if (.not. c_associated(queue) .or. .not. c_associated(memory)) stop 1
  call c_f_pointer(memory, values, [2 * n])
  values(:n) = [(i * 0.5d0, i = 1, int(n))]
  values(n + 1:) = 0
  count = kakehi_queue_write(queue, fd, c_loc(values(1)), n * 8, 16_c_int64_t, 7_c_int64_t)
  if (count /= 0) stop 2
  count = kakehi_queue_wait(queue, 1_c_int, found, 4_c_int)
  if (count /= 1 .or. found(1)%tag /= 7 .or. found(1)%result /= n * 8) stop 3
  count = kakehi_queue_read(queue, fd, c_loc(values(n + 1)), n * 8, 16_c_int64_t, 9_c_int64_t)
  if (count /= 0) stop 4
  count = kakehi_queue_wait(queue, 1_c_int, found, 4_c_int)
  if (count /= 1 .or. found(1)%tag /= 9 .or. found(1)%result /= n * 8) stop 5
  if (any(values(:n) /= values(n + 1:))) stop 6
  if (kakehi_flush(fd) /= 0) stop 7
  if (kakehi_queue_destroy(queue) /= 0) stop 8
  call kakehi_free(memory)
  print *, 'good', values_sum()

contains
  real(c_double) function values_sum()
    integer :: unit
    real(c_double) :: value
    values_sum = 0
    open (newunit=unit, file='fortran.out', access='stream', status='old')
    do i = 1, int(n)
      read (unit, pos=17 + 8 * (i - 1)) value
      values_sum = values_sum + value
    end do
    close (unit)
  end function
end program capi
