// Attention within each text of a ragged batch: softmax(Q K^T / sqrt(D)) V, in every head.
//
// Letters: T tokens of all texts, S tokens of one text, R of its tokens that are queries, A heads of size D.

#include "product.c"

#include <math.h>

// One head of one text.
typedef struct {
    const void *queries;       // [R, D]
    const void *keys, *values; // [S, D]
    void *out;                 // [R, D] in a format
    Format format;
    size_t column;             // of the head's first output among those of all heads
    size_t query_stride, stride, out_stride;  // numbers from one row to the next; of keys as of values
    size_t R, S, D;            // D is a multiple of 16
    size_t own, gap;           // keys and values from `own` on stand `gap` rows later: those of a statement itself
    float gate;                // added to the scores of the keys before `own`
} Head;

// The row of a key and value. Other statements may stand between a text and a statement behind it.
INLINE size_t key_row(const Head *head, size_t s) { return s < head->own ? s : s + head->gap; }

// A vector of outputs of a query, from output d on.
INLINE void store_out(const Head *head, size_t row, size_t d, vf x) {
    store_as(head->format, head->out, row * head->out_stride + d, head->column + d, x);
}

// --- in float32 -------------------------------------------------------------------------------------------------------

// Floats of memory that attention over S tokens needs.
static size_t attention_floats(size_t S, size_t D) {
    size_t padded = round_up(S, 32);
    return (D + ROWS) * padded + S * D + ROWS * D + 32 * 32 + 32 * (padded + padded / 2);
}

// Scores of `rows` queries [rows, D] and `columns` vectors of keys, which are transposed: [D, padded].
INLINE void scores_of(const float *q, const float *keys, size_t D, size_t padded, float *scores, int rows, int columns) {
    vf tile[ROWS][2] = {0};
    for (size_t d = 0; d < D; d++) {
        vf k[2];
        UNROLL for (int c = 0; c < columns; c++) k[c] = load(keys + d * padded + c * W);
        UNROLL for (int m = 0; m < rows; m++)
            UNROLL for (int c = 0; c < columns; c++) tile[m][c] += q[m * D + d] * k[c];
    }
    UNROLL for (int m = 0; m < rows; m++)
        UNROLL for (int c = 0; c < columns; c++) store(scores + m * padded + c * W, tile[m][c]);
}

// e^(score - the largest) in place, zero from S on; the sum of the row.
INLINE float soften(float *row, size_t S, size_t padded) {
    for (size_t s = S; s < padded; s++) row[s] = -INFINITY;
    vf most = load(row);
    for (size_t s = W; s < padded; s += W) most = larger(most, load(row + s));

    float largest = largest_of(most);
    vf sums = {0};
    for (size_t s = 0; s < padded; s += W) {
        vf weights = exp_of(load(row + s) - largest);
        store(row + s, weights);
        sums += weights;
    }
    for (size_t s = S; s < padded; s++) row[s] = 0;
    return sum_of(sums);
}

// Weighted sums of `columns` vectors of the values: weights [rows, padded], values [S, D].
INLINE void values_of(
    const float *weights, const float *values, size_t S, size_t padded, size_t D, const float *factors,
    const Head *head, size_t first, size_t column, int rows, int columns) {
    vf tile[ROWS][2] = {0};
    for (size_t s = 0; s < S; s++) {
        vf v[2];
        UNROLL for (int c = 0; c < columns; c++) v[c] = load(values + s * D + c * W);
        UNROLL for (int m = 0; m < rows; m++)
            UNROLL for (int c = 0; c < columns; c++) tile[m][c] += weights[m * padded + s] * v[c];
    }
    UNROLL for (int m = 0; m < rows; m++)
        UNROLL for (int c = 0; c < columns; c++)
            store_out(head, first + m, column + c * W, tile[m][c] * factors[m]);
}

// How much a statement reads its text: `gate` to the scores of the text's keys, one row.
INLINE void open_gate(float *scores, size_t own, float gate) {
    for (size_t s = 0; s < own; s++) scores[s] += gate;
}

INLINE void attend_rows(
    const Head *head, const float *q, const float *keys, const float *values, float *weights, size_t padded,
    size_t first, int rows) {
    size_t S = head->S, D = head->D;
    size_t s = 0;
    for (; s + 2 * W <= padded; s += 2 * W) scores_of(q, keys + s, D, padded, weights + s, rows, 2);
    if (s < padded) scores_of(q, keys + s, D, padded, weights + s, rows, 1);

    if (head->gate != 0)
        for (int m = 0; m < rows; m++) open_gate(weights + m * padded, head->own, head->gate);
    float factors[ROWS];
    for (int m = 0; m < rows; m++) factors[m] = 1 / soften(weights + m * padded, S, padded);

    size_t d = 0;
    for (; d + 2 * W <= D; d += 2 * W)
        values_of(weights, values + d, S, padded, D, factors, head, first, d, rows, 2);
    if (d < D) values_of(weights, values + d, S, padded, D, factors, head, first, d, rows, 1);
}

// Queries, keys and values in float32.
static void attend_float32(const Head *head, float *memory) {
    size_t R = head->R, S = head->S, D = head->D;
    size_t padded = round_up(S, W);
    float *keys = memory;                     // [D, padded]
    float *values = keys + D * padded;        // [S, D]
    float *weights = values + S * D;          // [ROWS, padded]
    float *q = weights + ROWS * padded;       // [ROWS, D]

    for (size_t s = 0; s < S; s++) {
        size_t row = key_row(head, s);
        const float *key = (const float *)head->keys + row * head->stride;
        for (size_t d = 0; d < D; d++) keys[d * padded + s] = key[d];
        memcpy(values + s * D, (const float *)head->values + row * head->stride, 4 * D);
    }
    for (size_t d = 0; d < D; d++)
        for (size_t s = S; s < padded; s++) keys[d * padded + s] = 0;

    float scale = 1 / sqrtf((float)D);
    size_t tiles = (R + ROWS - 1) / ROWS;
    for (size_t tile = 0, first = 0; tile < tiles; tile++) {
        size_t rows = R * (tile + 1) / tiles - first;
        for (size_t m = 0; m < rows; m++) {
            const float *query = (const float *)head->queries + (first + m) * head->query_stride;
            for (size_t d = 0; d < D; d += W) store(q + m * D + d, load(query + d) * scale);
        }
#define CASE(n) case n: attend_rows(head, q, keys, values, weights, padded, first, n); break;
        switch (rows) {
            CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6)
#if defined(__AVX512F__)
            CASE(7) CASE(8)
#endif
        }
#undef CASE
        first += rows;
    }
}

// --- in bfloat16, by tiles of AMX -------------------------------------------------------------------------------------

#if HAS_TILES

// 16 rows of 16 words become columns: in each of four steps, blocks of half the size change places.
INLINE void transpose(__m512i rows[16]) {
    const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    UNROLL for (int step = 8; step; step /= 2) {
        __mmask16 is_high = step == 8 ? 0xff00 : step == 4 ? 0xf0f0 : step == 2 ? 0xcccc : 0xaaaa;
        // Lanes of the second source are numbered from 16 on.
        __m512i low = _mm512_mask_add_epi32(lane, is_high, lane, _mm512_set1_epi32(16 - step));
        __m512i high = _mm512_mask_add_epi32(_mm512_add_epi32(lane, _mm512_set1_epi32(step)), is_high, lane, _mm512_set1_epi32(16));
        UNROLL for (int i = 0; i < 16; i++) {
            if (i & step) continue;
            __m512i a = rows[i], b = rows[i + step];
            rows[i] = _mm512_permutex2var_epi32(a, low, b);
            rows[i + step] = _mm512_permutex2var_epi32(a, high, b);
        }
    }
}

// Keys as weights of a product of queries: panels [padded / 32, D / 2, 32] of words.
static void pack_keys(const Head *head, size_t padded, uint32_t *panels) {
    size_t D = head->D, S = head->S;
    for (size_t s = 0; s < padded; s += 16)
        for (size_t d = 0; d < D; d += 32) {
            __m512i words[16];
            for (size_t i = 0; i < 16; i++) {
                const uint16_t *key = (const uint16_t *)head->keys + key_row(head, s + i) * head->stride + d;
                words[i] = s + i < S ? _mm512_loadu_si512(key) : _mm512_setzero_si512();
            }
            transpose(words);
            uint32_t *panel = panels + s / 32 * 32 * (D / 2) + s % 32;
            for (size_t i = 0; i < 16; i++) _mm512_storeu_si512(panel + (d / 2 + i) * 32, words[i]);
        }
}

// Values as weights of a product of softened scores: panels [D / 32, padded / 2, 32] of words.
static void pack_values(const Head *head, size_t padded, uint32_t *panels) {
    size_t D = head->D, S = head->S;
    for (size_t s = 0; s < padded; s += 2)
        for (size_t d = 0; d < D; d += W) {
            const uint16_t *values = (const uint16_t *)head->values + d;
            const uint16_t *value = values + key_row(head, s) * head->stride;
            const uint16_t *next = values + key_row(head, s + 1) * head->stride;
            vu first = {0}, second = {0};
            if (s < S) first = __builtin_convertvector(*(const vh_any *)value, vu);
            if (s + 1 < S) second = __builtin_convertvector(*(const vh_any *)next, vu);
            *(vu_any *)(panels + d / 32 * padded / 2 * 32 + s / 2 * 32 + d % 32) = first | second << 16;
        }
}

// 2^x, x <= 0, to 1e-4 of its value, which is enough for weights that are rounded to bfloat16: 2^n times a polynomial.
INLINE __m512 power_of_two(__m512 x) {
    __m512 n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 rest = _mm512_sub_ps(x, n);
    __m512 p = _mm512_fmadd_ps(rest, _mm512_set1_ps(0.0550088933f), _mm512_set1_ps(0.242210999f));
    p = _mm512_fmadd_ps(p, rest, _mm512_set1_ps(0.693282938f));
    p = _mm512_fmadd_ps(p, rest, _mm512_set1_ps(1.f));
    return _mm512_scalef_ps(p, n);
}

// e^(factor (score - the largest)) of S scores as bfloat16, then zeros; the sum of the row.
INLINE float soften_bfloat16(const float *row, size_t S, size_t padded, float factor, uint16_t *weights) {
    const __m512 none = _mm512_set1_ps(-INFINITY);
    size_t whole = S / W * W;
    __mmask16 rest = (1u << (S - whole)) - 1;

    __m512 last = _mm512_mask_loadu_ps(none, rest, row + whole);
    __m512 most = last;
    for (size_t s = 0; s < whole; s += W) most = _mm512_max_ps(most, _mm512_loadu_ps(row + s));

    // In powers of two: 2^(score * scale - shift).
    __m512 scale = _mm512_set1_ps(factor * 1.44269504f);
    __m512 shift = _mm512_mul_ps(_mm512_set1_ps(_mm512_reduce_max_ps(most)), scale);
    __m512 sums = _mm512_setzero_ps();
    for (size_t s = 0; s < whole; s += W) {
        __m512 e = power_of_two(_mm512_fmsub_ps(_mm512_loadu_ps(row + s), scale, shift));
        store_bf16(weights + s, (vf)e);
        sums = _mm512_add_ps(sums, e);
    }
    if (whole < padded) {
        __m512 e = power_of_two(_mm512_fmsub_ps(last, scale, shift));
        store_bf16(weights + whole, (vf)e);
        sums = _mm512_add_ps(sums, e);
    }
    if (whole + W < padded) store_bf16(weights + whole + W, (vf){0});
    return _mm512_reduce_add_ps(sums);
}

// Queries, keys and values in bfloat16. D is a multiple of 32. Queries have rows to read after the last one.
static void attend_bfloat16(const Head *head, float *memory) {
    size_t R = head->R, S = head->S, D = head->D;
    size_t padded = round_up(S, 32);
    uint32_t *keys = (uint32_t *)memory;            // [padded / 32, D / 2, 32]
    uint32_t *values = keys + padded * D / 2;       // [D / 32, padded / 2, 32]
    float *scores = (float *)(values + padded * D / 2);       // [32, padded]
    uint16_t *weights = (uint16_t *)(scores + 32 * padded);   // [32, padded]
    float *sums = (float *)(weights + 32 * padded);           // [32, 32]

    pack_keys(head, padded, keys);
    pack_values(head, padded, values);

    float factor = 1 / sqrtf((float)D);
    for (size_t first = 0; first < R; first += 32) {
        size_t rows = R - first < 32 ? R - first : 32;
        const uint16_t *q = (const uint16_t *)head->queries + first * head->query_stride;
        for (size_t s = 0; s < padded; s += 32)
            tiles_of(BFLOAT16, q, 2 * head->query_stride, 2 * D, keys + s * (D / 2), scores + s, padded, rows <= 16);

        if (head->gate != 0)
            for (size_t m = 0; m < rows; m++) open_gate(scores + m * padded, head->own, head->gate / factor);
        float totals[32];
        for (size_t m = 0; m < rows; m++)
            totals[m] = soften_bfloat16(scores + m * padded, S, padded, factor, weights + m * padded);

        for (size_t d = 0; d < D; d += 32) {
            tiles_of(BFLOAT16, weights, 2 * padded, 2 * padded, values + d * padded / 2, sums, 32, rows <= 16);
            for (size_t m = 0; m < rows; m++) {
                float share = 1 / totals[m];
                store_out(head, first + m, d, load(sums + m * 32) * share);
                store_out(head, first + m, d + W, load(sums + m * 32 + W) * share);
            }
        }
    }
}

#endif

// The number format of queries, keys and values in a model of this kind.
INLINE int attention_kind(int kind, size_t D) {
    (void)kind, (void)D;
#if HAS_TILES
    if (kind == BFLOAT16 && D % 32 == 0) return BFLOAT16;
#endif
    return FLOAT32;
}

// kind: of the model. memory: attention_floats of the text's length.
static void attend(int kind, const Head *head, float *memory) {
#if HAS_TILES
    if (attention_kind(kind, head->D) == BFLOAT16) {
        attend_bfloat16(head, memory);
        return;
    }
#endif
    attend_float32(head, memory);
}
