# Toolchain: the page's engine, a module of WebAssembly with no JavaScript of Emscripten's. Exceptions
# are WebAssembly's own, in every object; what is left to import is WASI's, answered by web/src/wasi.ts.
include(/usr/share/emscripten/cmake/Modules/Platform/Emscripten.cmake)
set(CMAKE_CXX_FLAGS_INIT "-msimd128 -fwasm-exceptions -isystem ${CMAKE_CURRENT_LIST_DIR}/wasm")
# Debian puts acorn where only its own Node looks.
set(CMAKE_CXX_LINKER_LAUNCHER ${CMAKE_COMMAND} -E env NODE_PATH=/usr/share/nodejs)
