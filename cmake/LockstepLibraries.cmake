# Finds the libraries that Lockstep links, in the versions of Debian 12 or 13. It is installed beside
# lockstepConfig.cmake, which includes it for programs outside this tree.
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS CXX)
find_package(MPI REQUIRED COMPONENTS C)
find_package(dnnl REQUIRED CONFIG)
find_package(ZLIB REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(HDF5 REQUIRED COMPONENTS C)
find_package(nlohmann_json REQUIRED CONFIG)
find_package(CLI11 REQUIRED CONFIG)
find_package(fmt REQUIRED CONFIG) # 9 on Debian 12, 10 on Debian 13
find_package(PkgConfig REQUIRED)
pkg_check_modules(libzip REQUIRED IMPORTED_TARGET libzip)
pkg_check_modules(pmix REQUIRED IMPORTED_TARGET pmix) # 4.2 on Debian 12, 5.0 on 13

if(PROJECT_NAME STREQUAL "lockstep" AND LOCKSTEP_TESTS)
  find_package(Catch2 REQUIRED CONFIG) # 2.13 on Debian 12, 3.7 on Debian 13: tests/support/catch.hpp supports both
endif()
if(PROJECT_NAME STREQUAL "lockstep" AND LOCKSTEP_BENCHES)
  find_package(benchmark QUIET CONFIG)
  if(NOT benchmark_FOUND)
    message(STATUS "Google Benchmark not found: micro-benchmarks are not built")
  endif()
endif()
