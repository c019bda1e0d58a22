#pragma once

// Inside the library only.
#include <cstddef>

// CEPHALO_EMBED(symbol, "path", size): the bytes of a file as `const std::byte symbol[size]`. The
// assembler puts the file where it stands: as a list of numbers megabytes would take minutes.
#if defined(__wasm__)
#define CEPHALO_EMBED_BEGIN(name) ".section .rodata." name ",\"\",@\n.type " name ",@object\n"
#define CEPHALO_EMBED_END ""
#elif defined(__APPLE__)
#define CEPHALO_EMBED_BEGIN(name) ".const_data\n"
#define CEPHALO_EMBED_END ".text\n"
#else
#define CEPHALO_EMBED_BEGIN(name) ".pushsection .rodata\n.type " name ",%object\n"
#define CEPHALO_EMBED_END ".popsection\n"
#endif
#if defined(__APPLE__)
#define CEPHALO_EMBED_HIDE(name) ".private_extern " name "\n"
#define CEPHALO_EMBED_SIZE(name, size)
#else
#define CEPHALO_EMBED_HIDE(name) ".hidden " name "\n"
#define CEPHALO_EMBED_SIZE(name, size) ".size " name "," size "\n"
#endif

#define CEPHALO_EMBED(symbol, path, size)               \
  extern "C" const std::byte symbol[] __asm__(#symbol); \
  asm(CEPHALO_EMBED_BEGIN(#symbol) ".balign 64\n"              \
      ".globl " #symbol "\n" CEPHALO_EMBED_HIDE(#symbol) #symbol ":\n" \
      ".incbin \"" path "\"\n" CEPHALO_EMBED_SIZE(#symbol, #size) CEPHALO_EMBED_END)
