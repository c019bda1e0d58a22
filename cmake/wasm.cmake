# Toolchain: WebAssembly with 128-bit SIMD by Debian's Emscripten; programs run under Node.
include(/usr/share/emscripten/cmake/Modules/Platform/Emscripten.cmake)
set(CMAKE_CXX_FLAGS_INIT "-msimd128 -fexceptions -isystem ${CMAKE_CURRENT_LIST_DIR}/wasm")
# Emscripten 3.1.6 loads a module by fetch where there is one, and Node's fetches no files: so the
# module is compiled at once. NODERAWFS: the files of this machine.
set(CMAKE_EXE_LINKER_FLAGS_INIT "-sWASM_ASYNC_COMPILATION=0 -sNODERAWFS=1 -sEXIT_RUNTIME=1 \
-sALLOW_MEMORY_GROWTH=1 -sMAXIMUM_MEMORY=4GB -sTOTAL_STACK=8MB")
# Debian puts acorn where only its own Node looks.
set(CMAKE_CXX_LINKER_LAUNCHER ${CMAKE_COMMAND} -E env NODE_PATH=/usr/share/nodejs)
