# find_package(cephalo) and pkg-config cephalo from an installed prefix.
include(CMakePackageConfigHelpers)

install(TARGETS cephalo EXPORT cephalo-targets)
# The flags library appears in the link line of a static cephalo, so it is exported, empty.
install(TARGETS cephalo_flags EXPORT cephalo-targets)
install(EXPORT cephalo-targets NAMESPACE cephalo:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/cephalo)
# Public is what these three reach; no other header is installed.
set(public_headers cephalo/cephalo.h cephalo/attention.h cephalo/c_api.h)
set(unread ${public_headers})
while(unread)
  list(POP_FRONT unread header)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${header})
  file(STRINGS ${PROJECT_SOURCE_DIR}/${header} lines REGEX "^#include \"cephalo/")
  foreach(line IN LISTS lines)
    string(REGEX REPLACE "^#include \"([^\"]+)\".*" "\\1" reached "${line}")
    if(NOT reached IN_LIST public_headers AND EXISTS ${PROJECT_SOURCE_DIR}/${reached})
      list(APPEND public_headers ${reached})
      list(APPEND unread ${reached})
    endif()
  endforeach()
endwhile()
foreach(header IN LISTS public_headers)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/${folder})
endforeach()
install(FILES ${PROJECT_BINARY_DIR}/generated/cephalo/core/version.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cephalo/core)

configure_package_config_file(cmake/cephalo-config.cmake.in cephalo-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/cephalo)
write_basic_package_version_file(cephalo-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cephalo-config.cmake
              ${PROJECT_BINARY_DIR}/cephalo-config-version.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/cephalo)

# The prefix as seen from the .pc file, so that an installed tree can be moved.
file(RELATIVE_PATH CEPHALO_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
# What the C++ compiler links by itself and a C compiler is told: pkg-config --static.
foreach(library stdc++ c++ m)
  if(library IN_LIST CMAKE_CXX_IMPLICIT_LINK_LIBRARIES)
    list(APPEND private_libraries -l${library})
  endif()
endforeach()
list(JOIN private_libraries " " CEPHALO_PC_PRIVATE)
configure_file(cmake/cephalo.pc.in cephalo.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/cephalo.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES cephalo/view/fonts/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR}/fonts)
