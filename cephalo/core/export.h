#ifndef CEPHALO_CORE_EXPORT_H
#define CEPHALO_CORE_EXPORT_H

// What a shared library shows. The library is compiled with hidden symbols, and each public header
// opens `namespace CEPHALO_API cephalo {`: functions, and the type information by which exceptions
// are caught, are then the same in a program and in the library. Read from C too.
#if !defined(__GNUC__)
#define CEPHALO_API
#elif defined(__cplusplus)
#define CEPHALO_API [[gnu::visibility("default")]]
#else
#define CEPHALO_API __attribute__((visibility("default")))
#endif

#endif  // CEPHALO_CORE_EXPORT_H
