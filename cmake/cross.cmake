# Header-only packages of the build machine, for a compiler that must not see all of /usr/include;
# GoogleTest from its sources.
set(host_headers ${PROJECT_BINARY_DIR}/host-include)
file(MAKE_DIRECTORY ${host_headers})
foreach(package fmt nlohmann hwy xxhash.h stb eigen3)
  file(CREATE_LINK /usr/include/${package} ${host_headers}/${package} SYMBOLIC)
endforeach()

# The names that find_package would give.
foreach(target fmt::fmt-header-only nlohmann_json::nlohmann_json hwy::hwy xxhash::xxhash stb::stb)
  add_library(${target} INTERFACE IMPORTED)
  target_include_directories(${target} INTERFACE ${host_headers})
endforeach()
add_library(Eigen3::Eigen INTERFACE IMPORTED)
target_include_directories(Eigen3::Eigen INTERFACE ${host_headers}/eigen3)
target_compile_definitions(fmt::fmt-header-only INTERFACE FMT_HEADER_ONLY=1)

if(CEPHALO_BUILD_TESTS)
  set(googletest /usr/src/googletest/googletest)
  add_library(gtest STATIC EXCLUDE_FROM_ALL ${googletest}/src/gtest-all.cc)
  target_include_directories(gtest SYSTEM PUBLIC ${googletest}/include PRIVATE ${googletest})
  add_library(gtest_main STATIC EXCLUDE_FROM_ALL ${googletest}/src/gtest_main.cc)
  target_link_libraries(gtest_main PUBLIC gtest)
  add_library(GTest::gtest ALIAS gtest)
  add_library(GTest::gtest_main ALIAS gtest_main)
endif()
