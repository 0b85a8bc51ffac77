/* Loops that compilers turn into vector instructions, with one version for each width of vectors, chosen for the
 * processor when elvi is loaded, where compiler and loader can (gcc and glibc). */
#ifndef ELVI_VECTORS_H
#define ELVI_VECTORS_H

#if defined(_OPENMP) && defined(__GNUC__) && !defined(__clang__) && defined(__x86_64__) && defined(__GLIBC__)
#define ELVI_VECTORS
#define FOR_EACH_WIDTH __attribute__((target_clones("avx512f", "avx2", "default")))
#define AS_PRAGMA(text) _Pragma(#text)
#define SIMD AS_PRAGMA(omp simd)
/* clang-format off */
#define SIMD_SUM_OF(...) AS_PRAGMA(omp simd reduction(+: __VA_ARGS__))
/* clang-format on */
#else
#define FOR_EACH_WIDTH
#define SIMD
#define SIMD_SUM_OF(...)
#endif

#endif
