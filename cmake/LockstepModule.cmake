# Build rules: the flags of every target, and lockstep_module(), which limits the headers that a module can include.

add_library(lockstep_rules INTERFACE)
target_compile_features(lockstep_rules INTERFACE cxx_std_20)
# Warnings apply to this tree only, not to programs that use the installed library.
target_compile_options(lockstep_rules INTERFACE
  "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;$<$<BOOL:${LOCKSTEP_WERROR}>:-Werror>>>"
  "$<BUILD_INTERFACE:$<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=-Wall,-Wextra;--expt-relaxed-constexpr>>")
# g++ 12 warns of overlapping copies in `"text" + std::string` (GCC bug 105329).
target_compile_options(lockstep_rules INTERFACE
  "$<BUILD_INTERFACE:$<$<AND:$<COMPILE_LANG_AND_ID:CXX,GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>>")
if(CMAKE_UNITY_BUILD) # g++ takes the sources that CMake joins for headers, whose anonymous namespaces would be a fault
  target_compile_options(lockstep_rules INTERFACE
    "$<BUILD_INTERFACE:$<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-subobject-linkage>>")
endif()
target_include_directories(lockstep_rules INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_definitions(lockstep_rules INTERFACE $<BUILD_INTERFACE:LOCKSTEP_VERSION="${PROJECT_VERSION}">)
if(LOCKSTEP_SANITIZE)
  target_compile_options(lockstep_rules INTERFACE -fsanitize=${LOCKSTEP_SANITIZE} -fno-sanitize-recover=all
                         -fno-omit-frame-pointer)
  target_compile_definitions(lockstep_rules INTERFACE _GLIBCXX_ASSERTIONS)
  target_link_options(lockstep_rules INTERFACE -fsanitize=${LOCKSTEP_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID MATCHES "Clang" AND LOCKSTEP_SANITIZE MATCHES "address")
    target_compile_definitions(lockstep_rules INTERFACE __SANITIZE_ADDRESS__=1) # as g++ does; clang does from version 21
  endif()
endif()
if(LOCKSTEP_FUZZERS)
  target_compile_options(lockstep_rules INTERFACE -O1 -fsanitize=fuzzer-no-link)
endif()

# lockstep_module(NAME [MODULES ...] [LIBRARIES ...])
# The module is made of all .cpp files in the folder and its subfolders. Subfolders named cuda/ and .cu files belong to
# builds with CUDA; files named without_cuda.cpp replace them in builds without it.
# MODULES are the modules whose headers it may include. LIBRARIES are third-party libraries, linked privately.
#
# Each module has its own include directory, which holds one link to src/NAME: only targets that link lockstep_core find
# "core/log.hpp". MODULES are public, since headers include theirs: a module sees what is below it in
# docs/pictures/modules.svg. An include of anything else in src/ does not compile.
function(lockstep_module name)
  cmake_parse_arguments(module "" "" "MODULES;LIBRARIES" ${ARGN})
  set(headers ${PROJECT_BINARY_DIR}/module_headers/${name})
  file(MAKE_DIRECTORY ${headers})
  file(CREATE_LINK ${CMAKE_CURRENT_SOURCE_DIR} ${headers}/${name} SYMBOLIC)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  if(LOCKSTEP_HAS_CUDA)
    file(GLOB_RECURSE kernels CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cu)
    list(APPEND sources ${kernels})
    list(FILTER sources EXCLUDE REGEX "/without_cuda.cpp$")
  else()
    list(FILTER sources EXCLUDE REGEX "/cuda/")
  endif()
  # Stay by themselves: the tests' fake GPU replaces without_cuda.cpp when it is linked.
  set(device_sources ${sources})
  list(FILTER device_sources INCLUDE REGEX "/cuda/|/without_cuda.cpp$")
  set_source_files_properties(${device_sources} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  if(NOT sources)
    add_library(lockstep_${name} INTERFACE)
    target_include_directories(lockstep_${name} INTERFACE $<BUILD_INTERFACE:${headers}>)
    return()
  endif()
  add_library(lockstep_${name} STATIC ${sources})
  target_link_libraries(lockstep_${name} PUBLIC lockstep_rules PRIVATE ${module_LIBRARIES})
  target_include_directories(lockstep_${name} PUBLIC $<BUILD_INTERFACE:${headers}>)
  foreach(other IN LISTS module_MODULES)
    target_link_libraries(lockstep_${name} PUBLIC lockstep_${other})
  endforeach()
endfunction()
