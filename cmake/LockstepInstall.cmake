# What `cmake --install` and CPack install, in two components:
#   programs   the command `lockstep` and the programs of models/
#   library    headers, static libraries and the package config, for projects that call
#              find_package(lockstep) and target_link_libraries(mine lockstep::lockstep)
# `cpack -G DEB` in the build folder makes a .deb file of each component, on Debian 12 and 13.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/lockstep)

# The target that programs outside this tree link. The target `lockstep` is the command.
add_library(lockstep_library INTERFACE)
target_link_libraries(lockstep_library INTERFACE lockstep_training)
set_target_properties(lockstep_library PROPERTIES EXPORT_NAME lockstep)
add_library(lockstep::lockstep ALIAS lockstep_library)

# Returns the library targets in `folder` and its subfolders, except those that only the command links.
function(lockstep_libraries_in folder result)
  get_property(targets DIRECTORY ${folder} PROPERTY BUILDSYSTEM_TARGETS)
  get_property(folders DIRECTORY ${folder} PROPERTY SUBDIRECTORIES)
  set(libraries)
  foreach(target IN LISTS targets)
    get_target_property(type ${target} TYPE)
    if(type MATCHES "^(STATIC|INTERFACE|OBJECT)_LIBRARY$")
      list(APPEND libraries ${target})
    endif()
  endforeach()
  foreach(subfolder IN LISTS folders)
    lockstep_libraries_in(${subfolder} more)
    list(APPEND libraries ${more})
  endforeach()
  list(REMOVE_ITEM libraries lockstep_cli lockstep_serve lockstep_export lockstep_pmix_server)
  set(${result} ${libraries} PARENT_SCOPE)
endfunction()

lockstep_libraries_in(${PROJECT_SOURCE_DIR}/src libraries)
install(TARGETS lockstep_library lockstep_rules ${libraries} EXPORT lockstep COMPONENT library
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/lockstep OBJECTS DESTINATION ${CMAKE_INSTALL_LIBDIR}/lockstep)
install(EXPORT lockstep NAMESPACE lockstep:: FILE lockstepTargets.cmake DESTINATION ${package_dir} COMPONENT library)
install(DIRECTORY include/lockstep DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT library)

configure_package_config_file(cmake/lockstepConfig.cmake.in ${PROJECT_BINARY_DIR}/lockstepConfig.cmake
  INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/lockstepConfig.cmake ${PROJECT_BINARY_DIR}/lockstepConfigVersion.cmake
  cmake/LockstepLibraries.cmake cmake/FindCUDNN.cmake cmake/FindNCCL.cmake
  DESTINATION ${package_dir} COMPONENT library)
foreach(component programs library)
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR}-${component} COMPONENT ${component} RENAME copyright)
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "The Lockstep authors <lockstep@localhost>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL programs library)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)

set(CPACK_DEBIAN_PROGRAMS_PACKAGE_NAME lockstep)
set(CPACK_COMPONENT_PROGRAMS_DESCRIPTION "Trains Keras models on many workers
 The command lockstep, which trains, evaluates and inspects Keras models on MPI worlds, and example programs.")
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PROGRAMS_PACKAGE_RECOMMENDS openmpi-bin) # for mpirun, which `lockstep launch` does not need

# dpkg-shlibdeps finds no dependencies in static libraries. These are the packages that lockstepConfig.cmake needs.
set(CPACK_DEBIAN_LIBRARY_PACKAGE_NAME liblockstep-dev)
set(CPACK_COMPONENT_LIBRARY_DESCRIPTION "Trains Keras models on many workers: library
 Headers, static libraries and a CMake package for C++ programs that define and train models.")
string(JOIN ", " CPACK_DEBIAN_LIBRARY_PACKAGE_DEPENDS libopenmpi-dev libpmix-dev libdnnl-dev libhdf5-dev libssl-dev
  zlib1g-dev libzip-dev libfmt-dev libcli11-dev nlohmann-json3-dev pkg-config ocl-icd-opencl-dev)
set(CPACK_DEBIAN_LIBRARY_PACKAGE_SECTION libdevel)
include(CPack)
