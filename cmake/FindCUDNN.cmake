# Finds cuDNN in the CUDA toolkit's folders, where NVIDIA's apt packages install it, or in the pip packages
# nvidia-cudnn-cu12 and -cu13 of the python3 on PATH. The pip packages have only the versioned libcudnn.so.9.
# CUDNN_ROOT overrides the location. Defines CUDNN::cudnn and CUDNN_VERSION.
find_package(Python3 QUIET COMPONENTS Interpreter)
set(cudnn_pip)
if(Python3_Interpreter_FOUND)
  execute_process(
    COMMAND ${Python3_EXECUTABLE} -c "import sysconfig; print(sysconfig.get_path('purelib'))"
    OUTPUT_VARIABLE cudnn_site OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  set(cudnn_pip ${cudnn_site}/nvidia/cudnn ${cudnn_site}/nvidia/cu13)
endif()

find_path(CUDNN_INCLUDE_DIR cudnn_version.h
  HINTS ${CUDAToolkit_INCLUDE_DIRS} ${CUDAToolkit_TARGET_DIR} ${cudnn_pip} PATH_SUFFIXES include)
find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9
  HINTS ${CUDAToolkit_LIBRARY_DIR} ${CUDAToolkit_TARGET_DIR} ${cudnn_pip} PATH_SUFFIXES lib lib64)

if(CUDNN_INCLUDE_DIR)
  file(STRINGS ${CUDNN_INCLUDE_DIR}/cudnn_version.h cudnn_lines REGEX "^#define (CUDNN_MAJOR|CUDNN_MINOR|CUDNN_PATCHLEVEL) ")
  set(CUDNN_VERSION)
  foreach(part CUDNN_MAJOR CUDNN_MINOR CUDNN_PATCHLEVEL)
    string(REGEX MATCH "#define ${part} +([0-9]+)" cudnn_match "${cudnn_lines}")
    list(APPEND CUDNN_VERSION ${CMAKE_MATCH_1})
  endforeach()
  list(JOIN CUDNN_VERSION . CUDNN_VERSION)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CUDNN REQUIRED_VARS CUDNN_LIBRARY CUDNN_INCLUDE_DIR VERSION_VAR CUDNN_VERSION)
mark_as_advanced(CUDNN_INCLUDE_DIR CUDNN_LIBRARY)

if(CUDNN_FOUND AND NOT TARGET CUDNN::cudnn)
  add_library(CUDNN::cudnn UNKNOWN IMPORTED)
  set_target_properties(CUDNN::cudnn PROPERTIES
    IMPORTED_LOCATION ${CUDNN_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${CUDNN_INCLUDE_DIR})
endif()
