# Flags of our own targets; they do not travel to who links cephalo.
add_library(cephalo_flags INTERFACE)
target_compile_options(cephalo_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion
  -fno-math-errno
  # a * b + c is rounded twice unless we write fma: the same bits from every compiler.
  -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 warns of overlapping copies inside std::string that cannot happen (GCC bug 105329).
  target_compile_options(cephalo_flags INTERFACE -Wno-restrict)
endif()
if(CMAKE_SIZEOF_VOID_P EQUAL 4)
  # Sizes are 64 bits; what memory holds was checked against it when it was allocated.
  target_compile_options(cephalo_flags INTERFACE -Wno-shorten-64-to-32)
endif()
if(CEPHALO_WARNINGS_AS_ERRORS)
  target_compile_options(cephalo_flags INTERFACE -Werror)
endif()
if(CEPHALO_SANITIZE)
  target_compile_options(cephalo_flags INTERFACE
    -fsanitize=${CEPHALO_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(cephalo_flags INTERFACE -fsanitize=${CEPHALO_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # With sanitizers it finds what is not there, says GCC's manual; std::optional is enough.
    target_compile_options(cephalo_flags INTERFACE -Wno-maybe-uninitialized)
  endif()
endif()
