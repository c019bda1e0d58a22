# Toolchain: the clang and libc++ of ziglang from PyPI, which are newer than Debian's. For any x86-64 machine:
# without a CPU by name, zig would use every instruction that this one has.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR x86_64)
set(CMAKE_CXX_COMPILER ${CMAKE_CURRENT_LIST_DIR}/../.venv/bin/python -m ziglang c++)
set(CMAKE_CXX_FLAGS_INIT -mcpu=x86_64)
