# Toolchain: the clang and libc++ of ziglang from PyPI, which are newer than Debian's. For any x86-64 machine:
# without a CPU by name, zig would use every instruction that this one has.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_CXX_COMPILER ${CMAKE_CURRENT_LIST_DIR}/../.venv/bin/python -m ziglang c++)
set(CMAKE_CXX_FLAGS_INIT -mcpu=x86_64)
# What __builtin_cpu_supports asks is in libgcc; zig's own runtime lacks it.
execute_process(COMMAND g++ -print-libgcc-file-name OUTPUT_VARIABLE libgcc OUTPUT_STRIP_TRAILING_WHITESPACE)
set(CMAKE_CXX_STANDARD_LIBRARIES_INIT ${libgcc})
