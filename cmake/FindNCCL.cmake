# Finds NCCL in the CUDA toolkit's folders, where NVIDIA's apt packages install it, or in the pip packages
# nvidia-nccl-cu12 and -cu13 of the python3 on PATH. The pip packages have only the versioned libnccl.so.2.
# NCCL_ROOT overrides the location. Defines NCCL::nccl and NCCL_VERSION.
find_package(Python3 QUIET COMPONENTS Interpreter)
set(nccl_pip)
if(Python3_Interpreter_FOUND)
  execute_process(
    COMMAND ${Python3_EXECUTABLE} -c "import sysconfig; print(sysconfig.get_path('purelib'))"
    OUTPUT_VARIABLE nccl_site OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(nccl_pip ${nccl_site}/nvidia/nccl ${nccl_site}/nvidia/cu13)
endif()

find_path(NCCL_INCLUDE_DIR nccl.h
  HINTS ${CUDAToolkit_INCLUDE_DIRS} ${CUDAToolkit_TARGET_DIR} ${nccl_pip} PATH_SUFFIXES include)
find_library(NCCL_LIBRARY NAMES nccl libnccl.so.2
  HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_TARGET_DIR} ${nccl_pip} PATH_SUFFIXES lib lib64)

if(NCCL_INCLUDE_DIR)
  file(STRINGS ${NCCL_INCLUDE_DIR}/nccl.h nccl_lines REGEX "^#define (NCCL_MAJOR|NCCL_MINOR|NCCL_PATCH) ")
  set(NCCL_VERSION)
  foreach(part NCCL_MAJOR NCCL_MINOR NCCL_PATCH)
    string(REGEX MATCH "#define ${part} +([0-9]+)" nccl_match "${nccl_lines}")
    list(APPEND NCCL_VERSION ${CMAKE_MATCH_1})
  endforeach()
  list(JOIN NCCL_VERSION . NCCL_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(NCCL REQUIRED_VARS NCCL_LIBRARY NCCL_INCLUDE_DIR VERSION_VAR NCCL_VERSION)
mark_as_advanced(NCCL_INCLUDE_DIR NCCL_LIBRARY)

if(NCCL_FOUND AND NOT TARGET NCCL::nccl)
  add_library(NCCL::nccl UNKNOWN IMPORTED)
  set_target_properties(NCCL::nccl PROPERTIES
    IMPORTED_LOCATION ${NCCL_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${NCCL_INCLUDE_DIR})
endif()
