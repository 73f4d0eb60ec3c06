# Package for CMake: find_package(sion 1.7 [COMPONENTS omp mpi ompi fortran mpi_fortran])
#
#   sion::sion          serial and generic; sion::static is the same as a static library
#   sion::mpi           MPI processes; sion::ompi: their threads; sion::omp: threads
#   sion::fortran       Fortran with its modules; sion::mpi_fortran: the same of MPI processes
#
# With several MPIs installed, set sion_MPI to "openmpi" or "mpich" before; otherwise the one that
# was installed first is taken. MPI and OpenMP themselves are the project's to find and link.
get_filename_component(_sion_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
set(_sion_lib "${_sion_prefix}/lib")
set(_sion_mpi_lib "${_sion_lib}")
if(sion_MPI)
  set(_sion_mpi_lib "${_sion_lib}/${sion_MPI}")
endif()

# NAME KIND LIBRARY [INTERFACE_LINK...]: an imported target, if the library is there.
function(_sion_target name kind library)
  if(TARGET sion::${name} OR NOT EXISTS "${library}")
    return()
  endif()
  add_library(sion::${name} ${kind} IMPORTED)
  set_target_properties(sion::${name} PROPERTIES
    IMPORTED_LOCATION "${library}"
    INTERFACE_INCLUDE_DIRECTORIES "${_sion_prefix}/include"
    INTERFACE_LINK_LIBRARIES "${ARGN}")
  if(kind STREQUAL "SHARED")
    get_filename_component(soname "${library}" NAME)
    set_target_properties(sion::${name} PROPERTIES IMPORTED_SONAME "${soname}")
  endif()
endfunction()

_sion_target(sion SHARED "${_sion_lib}/libsion.so.1" "")
_sion_target(static STATIC "${_sion_lib}/libsion.a" pthread m dl)
_sion_target(omp SHARED "${_sion_lib}/libsionomp_64.so.1" sion::sion)
_sion_target(mpi SHARED "${_sion_mpi_lib}/libsionmpi_64.so.1" sion::sion)
_sion_target(ompi SHARED "${_sion_mpi_lib}/libsionompi_64.so.1" sion::mpi)
_sion_target(fortran SHARED "${_sion_lib}/libsionser_f77_64.so.1" sion::sion)
_sion_target(mpi_fortran SHARED "${_sion_mpi_lib}/libsionmpi_f77_64.so.1" sion::mpi)

foreach(_sion_part sion static omp mpi ompi)
  if(TARGET sion::${_sion_part})
    set(_sion_defined _SION_LINUX)
    if(_sion_part STREQUAL "omp")
      list(APPEND _sion_defined SION_OMP)
    elseif(_sion_part STREQUAL "mpi")
      list(APPEND _sion_defined SION_MPI)
    elseif(_sion_part STREQUAL "ompi")
      list(APPEND _sion_defined SION_OMPI)
    endif()
    set_target_properties(sion::${_sion_part} PROPERTIES
      INTERFACE_COMPILE_DEFINITIONS "${_sion_defined}")
  endif()
endforeach()
foreach(_sion_part fortran mpi_fortran)
  if(TARGET sion::${_sion_part})
    set_target_properties(sion::${_sion_part} PROPERTIES
      INTERFACE_INCLUDE_DIRECTORIES "${_sion_prefix}/include;${_sion_prefix}/include/mod_64")
  endif()
endforeach()

foreach(_sion_part ${sion_FIND_COMPONENTS})
  if(TARGET sion::${_sion_part})
    set(sion_${_sion_part}_FOUND TRUE)
  elseif(sion_FIND_REQUIRED_${_sion_part})
    set(sion_FOUND FALSE)
    set(sion_NOT_FOUND_MESSAGE
      "libsion in ${_sion_prefix} has no part '${_sion_part}': 'make install-mpi' builds it")
  endif()
endforeach()
