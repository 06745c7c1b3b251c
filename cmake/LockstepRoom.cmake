# The house rules of the build: what every target is compiled with, and which room may know which.

add_library(lockstep_rules INTERFACE)
target_compile_features(lockstep_rules INTERFACE cxx_std_20)
# (CMake 3.25 knows no C++20 of nvcc.)
target_compile_options(lockstep_rules INTERFACE
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;$<$<BOOL:${LOCKSTEP_WERROR}>:-Werror>>"
  "$<$<COMPILE_LANGUAGE:CUDA>:-std=c++20;-Xcompiler=-Wall,-Wextra;--expt-relaxed-constexpr>")
# g++ 12 takes `"text" + std::string` for overlapping copies (its bug 105329).
target_compile_options(lockstep_rules INTERFACE
  $<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>)
target_include_directories(lockstep_rules INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>)
target_compile_definitions(lockstep_rules INTERFACE LOCKSTEP_VERSION="${PROJECT_VERSION}")
if(LOCKSTEP_SANITIZE)
  target_compile_options(lockstep_rules INTERFACE -fsanitize=${LOCKSTEP_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(lockstep_rules INTERFACE -fsanitize=${LOCKSTEP_SANITIZE})
endif()

# lockstep_room(NAME [ROOMS ...] [LIBRARIES ...])
# Every .cpp of the folder is the room's. Folders cuda/ and .cu files are so only where CUDA is built; a without_cuda.cpp
# stands for them where it is not.
# ROOMS are those it may look into; LIBRARIES are foreign ones that stay inside.
function(lockstep_room name)
  cmake_parse_arguments(room "" "" "ROOMS;LIBRARIES" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  if(LOCKSTEP_HAS_CUDA)
    file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cu)
    list(APPEND sources ${kernels})
    list(FILTER sources EXCLUDE REGEX "/without_cuda.cpp$")
  else()
    list(FILTER sources EXCLUDE REGEX "/cuda/")
  endif()
  if(NOT sources)
    add_library(lockstep_${name} INTERFACE)
    return()
  endif()
  add_library(lockstep_${name} STATIC ${sources})
  target_link_libraries(lockstep_${name} PUBLIC lockstep_rules PRIVATE ${room_LIBRARIES})
  foreach(other IN LISTS room_ROOMS)
    target_link_libraries(lockstep_${name} PUBLIC lockstep_${other})
  endforeach()
endfunction()
