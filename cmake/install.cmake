# find_package(cephalo) and pkg-config cephalo from an installed prefix.
include(CMakePackageConfigHelpers)

install(TARGETS cephalo EXPORT cephalo-targets)
# The flags library appears in the link line of a static cephalo, so it is exported, empty.
install(TARGETS cephalo_flags EXPORT cephalo-targets)
install(EXPORT cephalo-targets NAMESPACE cephalo:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/cephalo)
install(DIRECTORY cephalo/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cephalo
        FILES_MATCHING PATTERN "*.h"
        # Parts of the library, not of its interface.
        PATTERN "allocator.h" EXCLUDE PATTERN "common_device.h" EXCLUDE
        PATTERN "fail.h" EXCLUDE PATTERN "visit.h" EXCLUDE PATTERN "matmul.h" EXCLUDE
        PATTERN "trace_recorder.h" EXCLUDE PATTERN "safetensors_header.h" EXCLUDE
        PATTERN "safetensors_index.h" EXCLUDE PATTERN "stored_bytes.h" EXCLUDE
        PATTERN "json.h" EXCLUDE PATTERN "json_value.h" EXCLUDE PATTERN "printable.h" EXCLUDE
        PATTERN "elementwise.h" EXCLUDE PATTERN "file_calls.h" EXCLUDE
        PATTERN "json.h" EXCLUDE PATTERN "printable.h" EXCLUDE
        PATTERN "for_runs.h" EXCLUDE PATTERN "step_checks.h" EXCLUDE
        PATTERN "ops_host.h" EXCLUDE PATTERN "file_calls.h" EXCLUDE
        PATTERN "config_keys.h" EXCLUDE PATTERN "layer_config.h" EXCLUDE
        PATTERN "families.h" EXCLUDE PATTERN "file_names.h" EXCLUDE
        PATTERN "gpt_options_json.h" EXCLUDE
        PATTERN "trainer_json.h" EXCLUDE PATTERN "trainer_state.h" EXCLUDE
        PATTERN "c_api_support.h" EXCLUDE
        PATTERN "blocks.h" EXCLUDE PATTERN "bpe_merge.h" EXCLUDE PATTERN "bpe_tables.h" EXCLUDE
        PATTERN "byte_alphabet.h" EXCLUDE PATTERN "pre_split.h" EXCLUDE
        PATTERN "unicode_classes.h" EXCLUDE
        PATTERN "builtin_files.h" EXCLUDE PATTERN "font.h" EXCLUDE
        PATTERN "split_shapes.h" EXCLUDE PATTERN "row_blocks.h" EXCLUDE
        PATTERN "font_file.h" EXCLUDE PATTERN "hatch.h" EXCLUDE PATTERN "pixels.h" EXCLUDE
        PATTERN "embedded_bytes.h" EXCLUDE)
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
