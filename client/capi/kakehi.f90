! What POSIX lacks, for Fortran programs: the calls of kakehi.h, where each is explained. Compile
! this file with the program's compiler, and link with -lkakehi.
!
!     gfortran -c $(pkg-config --variable=pcfiledir kakehi)/../../include/kakehi.f90
!     gfortran app.f90 kakehi.o $(pkg-config --libs kakehi)
!
! Descriptors are the system's: what POSIX's open returns, by an interface of the program's own.
module kakehi
  use, intrinsic :: iso_c_binding
  implicit none
  private :: c_int, c_size_t, c_int64_t, c_ptr

  integer(c_int), parameter :: KAKEHI_DEPTH_MAX = 64

  ! What came of a request: its tag, and bytes or a negative error number.
  type, bind(c) :: kakehi_completion
    integer(c_int64_t) :: tag
    integer(c_int64_t) :: result
  end type

  interface
    ! A C string: see c_f_pointer.
    function kakehi_version() bind(c)
      import
      type(c_ptr) :: kakehi_version
    end function

    ! c_null_ptr: no memory.
    function kakehi_alloc(bytes) bind(c)
      import
      integer(c_size_t), value :: bytes
      type(c_ptr) :: kakehi_alloc
    end function

    subroutine kakehi_free(memory) bind(c)
      import
      type(c_ptr), value :: memory
    end subroutine

    function kakehi_is_delegated(fd) bind(c)
      import
      integer(c_int), value :: fd
      integer(c_int) :: kakehi_is_delegated
    end function

    function kakehi_flush(fd) bind(c)
      import
      integer(c_int), value :: fd
      integer(c_int) :: kakehi_flush
    end function

    function kakehi_queue_create(depth) bind(c)
      import
      integer(c_int), value :: depth
      type(c_ptr) :: kakehi_queue_create
    end function

    function kakehi_queue_read(queue, fd, buffer, bytes, offset, tag) bind(c)
      import
      type(c_ptr), value :: queue, buffer
      integer(c_int), value :: fd
      integer(c_size_t), value :: bytes
      integer(c_int64_t), value :: offset, tag
      integer(c_int) :: kakehi_queue_read
    end function

    function kakehi_queue_write(queue, fd, buffer, bytes, offset, tag) bind(c)
      import
      type(c_ptr), value :: queue, buffer
      integer(c_int), value :: fd
      integer(c_size_t), value :: bytes
      integer(c_int64_t), value :: offset, tag
      integer(c_int) :: kakehi_queue_write
    end function

    ! Completions, the first of which are filled in; at most maximum of them.
    function kakehi_queue_wait(queue, at_least, completions, maximum) bind(c)
      import
      type(c_ptr), value :: queue
      integer(c_int), value :: at_least, maximum
      type(kakehi_completion), intent(inout) :: completions(*)
      integer(c_int) :: kakehi_queue_wait
    end function

    function kakehi_queue_destroy(queue) bind(c)
      import
      type(c_ptr), value :: queue
      integer(c_int) :: kakehi_queue_destroy
    end function
  end interface
end module
