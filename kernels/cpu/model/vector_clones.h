// Compiles a function of plain loops once per instruction set; the processor chooses when the
// program is loaded. Everything that the function calls is inlined. No products are contracted, so
// that the bits are the same.
#pragma once

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__) && !defined(__clang__)
#define FASA_VECTOR_CLONES [[gnu::flatten, gnu::target_clones("avx2", "default")]]
#else
#define FASA_VECTOR_CLONES
#endif
