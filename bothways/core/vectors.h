// Vectors of W floats by the compiler's vector extension, so that one text serves AVX-512, AVX2 and NEON.
//
// Only maxima, sums over a vector and the products of narrow numbers have a spelling per processor. Each instruction set
// is a compilation of its own; ISA, a macro of the build, is its name and ends the names of its functions.

#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

// W: floats of a vector. A tile of a product has at most ROWS rows of NV vectors, which fill the registers.
#if defined(__AVX512F__)
enum { W = 16, NV = 3, ROWS = 8 };
#elif defined(__AVX2__)
enum { W = 8, NV = 2, ROWS = 6 };
#else
enum { W = 4, NV = 3, ROWS = 6 };
#endif

typedef float vf __attribute__((vector_size(4 * W)));
typedef int32_t vi __attribute__((vector_size(4 * W)));
typedef uint32_t vu __attribute__((vector_size(4 * W)));
typedef int16_t vs __attribute__((vector_size(4 * W)));
typedef uint16_t vus __attribute__((vector_size(4 * W)));
typedef uint16_t vh __attribute__((vector_size(2 * W)));
typedef uint8_t vb __attribute__((vector_size(W)));

// The same at any address.
typedef float vf_any __attribute__((vector_size(4 * W), aligned(4), may_alias));
typedef int32_t vi_any __attribute__((vector_size(4 * W), aligned(4), may_alias));
typedef uint32_t vu_any __attribute__((vector_size(4 * W), aligned(4), may_alias));
typedef uint16_t vh_any __attribute__((vector_size(2 * W), aligned(2), may_alias));
typedef uint8_t vb_any __attribute__((vector_size(W), aligned(1), may_alias));

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 16")

#define JOINED(name, isa) name##_##isa
#define NAMED(name, isa) JOINED(name, isa)
// A function that Python calls, such as encode_batch_avx2.
#define EXPORT(type, name) __attribute__((visibility("default"))) type NAMED(name, ISA)

// Number formats of weights, and of what enters a product. Weights of INT8 have a sign, inputs have none.
enum { FLOAT32 = 0, BFLOAT16 = 1, INT8 = 2 };

INLINE size_t bytes_of(int kind) { return kind == FLOAT32 ? 4 : kind == BFLOAT16 ? 2 : 1; }
INLINE size_t round_up(size_t n, size_t step) { return (n + step - 1) / step * step; }

INLINE vf load(const float *p) { return *(const vf_any *)p; }
INLINE void store(float *p, vf x) { *(vf_any *)p = x; }
INLINE vf splat(float x) { return x - (vf){0}; }

#if defined(__AVX512F__)

INLINE vf larger(vf a, vf b) { return (vf)_mm512_max_ps((__m512)a, (__m512)b); }
INLINE vf smaller(vf a, vf b) { return (vf)_mm512_min_ps((__m512)a, (__m512)b); }
INLINE float sum_of(vf x) { return _mm512_reduce_add_ps((__m512)x); }
INLINE float largest_of(vf x) { return _mm512_reduce_max_ps((__m512)x); }

#else

#if defined(__AVX2__)
INLINE vf larger(vf a, vf b) { return (vf)_mm256_max_ps((__m256)a, (__m256)b); }
INLINE vf smaller(vf a, vf b) { return (vf)_mm256_min_ps((__m256)a, (__m256)b); }
#elif defined(__aarch64__)
INLINE vf larger(vf a, vf b) { return (vf)vmaxq_f32((float32x4_t)a, (float32x4_t)b); }
INLINE vf smaller(vf a, vf b) { return (vf)vminq_f32((float32x4_t)a, (float32x4_t)b); }
#endif

INLINE float sum_of(vf x) {
    float sum = 0;
    for (int i = 0; i < W; i++) sum += x[i];
    return sum;
}

INLINE float largest_of(vf x) {
    float most = x[0];
    for (int i = 1; i < W; i++) most = x[i] > most ? x[i] : most;
    return most;
}

#endif

// A bfloat16 is the upper half of a float: rounded to the nearest, and to the even one of two.
INLINE void store_bf16(uint16_t *p, vf x) {
#if defined(__AVX512BF16__)
    *(__m256i_u *)p = (__m256i)_mm512_cvtneps_pbh((__m512)x);
#else
    vu bits = (vu)x;
    *(vh_any *)p = __builtin_convertvector((bits + 0x7fff + (bits >> 16 & 1)) >> 16, vh);
#endif
}

// How a product reads its inputs. Of INT8, an input is round(x * factor + zero), at least 0 and at most 255.
typedef struct {
    int64_t kind;
    const float *factor;  // [K], of INT8
    const float *zero;    // likewise
} Format;

// Numbers as inputs of INT8, of which `column` is the first. What is no number becomes some integer.
INLINE void store_int8(Format format, uint8_t *p, size_t column, vf x) {
    // They are clamped before they are integers: the conversion of a large number would be the least integer.
    vf scaled = x * load(format.factor + column) + *format.zero;
    vf clamped = larger(smaller(scaled, splat(255.f)), splat(0.f));
#if defined(__AVX512F__)
    __m512i integers = _mm512_cvt_roundps_epi32((__m512)clamped, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    _mm_storeu_si128((__m128i_u *)p, _mm512_cvtepi32_epi8(integers));
#else
    // To add it rounds to an integer, which is then the lowest byte.
    const float magic = 12582912.f;  // 1.5 * 2^23
    vu integers = (vu)(clamped + magic) & 0xff;
    *(vb_any *)p = __builtin_convertvector(integers, vb);
#endif
}

// Numbers to index i on of p, as inputs of which `column` is the first.
INLINE void store_as(Format format, void *p, size_t i, size_t column, vf x) {
    if (format.kind == FLOAT32) store((float *)p + i, x);
    else if (format.kind == BFLOAT16) store_bf16((uint16_t *)p + i, x);
    else store_int8(format, (uint8_t *)p + i, column, x);
}

// e^x to one or two units in the last place: 2^n times a polynomial of the rest, |rest| <= ln 2 / 2. Beyond float32's
// range it is the least or largest normal number.
INLINE vf exp_of(vf x) {
    const float magic = 12582912.f;  // 1.5 * 2^23: to add it rounds to an integer
    x = larger(smaller(x, splat(88.f)), splat(-87.f));

    vf shifted = x * 1.44269504f + magic;
    vf n = shifted - magic;
    vf rest = x - n * 0.693359375f + n * 2.12194440e-4f;

    vf p = rest * 1.38888889e-3f + 8.33333333e-3f;
    p = p * rest + 4.16666667e-2f;
    p = p * rest + 1.66666667e-1f;
    p = p * rest + 0.5f;
    p = p * rest * rest + rest + 1.f;
    return (vf)((vi)p + ((vi)shifted << 23));
}

// x / (1 + e^-z), where e^-z stays finite.
INLINE vf gated(vf x, vf z) {
    z = larger(smaller(z, splat(80.f)), splat(-80.f));
    return x / (1.f + exp_of(-z));
}

// x times the probability that a normal variable is less than x: forward.py has the same polynomial.
INLINE vf gelu_of(vf x) {
    vf square = x * x;
    vf p = square * 3.5123475e-09f - 2.6452688e-07f;
    p = p * square + 7.9294914e-06f;
    p = p * square - 1.1061239e-04f;
    p = p * square - 6.518993e-05f;
    p = p * square + 0.07266617f;
    p = p * square + 1.5957699f;
    return gated(x, x * p);
}

// The same to 5e-5, for a result that is rounded to bfloat16: a polynomial for the probability between -4 and 4.
INLINE vf gelu_rounded(vf x) {
    vf near = larger(smaller(x, splat(4.f)), splat(-4.f));
    vf square = near * near;
    vf p = square * -1.30119566e-09f + 1.04189842e-07f;
    p = p * square - 3.65697525e-06f;
    p = p * square + 7.4852971e-05f;
    p = p * square - 1.00647539e-03f;
    p = p * square + 9.50534012e-03f;
    p = p * square - 6.58877356e-02f;
    p = p * square + 3.98673326e-01f;
    return x * (near * p + 0.5f);
}

enum { NONE = 0, GELU = 1, GELU_TANH = 2, RELU = 3, SILU = 4 };

// kind: of the numbers that the result is stored as.
INLINE vf activated(int activation, int kind, vf x) {
    switch (activation) {
        case GELU: return kind == FLOAT32 ? gelu_of(x) : gelu_rounded(x);
        case GELU_TANH: return gated(x, 1.5957691f * (x + 0.044715f * x * x * x));
        case RELU: return larger(x, splat(0.f));
        case SILU: return gated(x, x);
        default: return x;
    }
}
