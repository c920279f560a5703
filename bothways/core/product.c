// Products of rows with the weights of a linear layer, which are packed once in the order in which they are read.
//
// Letters: T rows, K inputs, N outputs. A panel holds the weights of PANEL neighbouring outputs, input after input; a
// word of 32 bits is one float, or two bfloat16 or four integers of consecutive inputs. Each output is a sum over K in one
// order, whatever the number of rows and threads, so that neither changes a bit.
//
// INT8 (Jacob 2018): weights are integers with a scale for each output, inputs integers from 0 to 255, of which `zero`
// stands for 0. model/int8.py is the specification.

#include "vectors.h"

#if defined(__AMX_BF16__)
#define HAS_BFLOAT16 1
#define HAS_TILES 1
enum { PANEL_BFLOAT16 = 32, PANEL_INT8 = 32 };
enum { INT8_STEP = 64 };  // inputs of a tile's row
#elif defined(__AVX512BF16__)
#define HAS_BFLOAT16 1
enum { PANEL_BFLOAT16 = W * NV, PANEL_INT8 = W * NV, INT8_STEP = 4 };
#else
enum { PANEL_BFLOAT16 = W * NV, PANEL_INT8 = W * NV, INT8_STEP = 4 };
#endif

enum { PANEL_FLOAT32 = W * NV };

// The number of outputs of a panel.
INLINE size_t panel_of(int kind) {
    return kind == FLOAT32 ? PANEL_FLOAT32 : kind == BFLOAT16 ? PANEL_BFLOAT16 : PANEL_INT8;
}

// x W + b
typedef struct {
    const uint32_t *panels;  // [N / PANEL, packed K / numbers of a word, PANEL], after the last output zeros
    const float *bias;       // [N]
    int64_t inputs, outputs; // K and N, multiples of 32
    Format format;           // of the inputs, and its kind is that of the weights
    const float *scale;      // [N] of INT8: x W is scale (sum - offset)
    const int32_t *offset;   // [N] of INT8: zero times the sum of an output's weights
} Linear;

INLINE size_t panels_of(int kind, size_t outputs) { return (outputs + panel_of(kind) - 1) / panel_of(kind); }

// Inputs of a panel. Those beyond K have weights of zero, so that it does not matter what is read after a row.
INLINE size_t packed_inputs(int kind, size_t inputs) { return kind == INT8 ? round_up(inputs, INT8_STEP) : inputs; }

// Bytes of the packed weights of a layer.
EXPORT(int64_t, packed_size)(int kind, int64_t outputs, int64_t inputs) {
    return panels_of(kind, outputs) * panel_of(kind) * packed_inputs(kind, inputs) * bytes_of(kind);
}

static uint16_t to_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if ((bits & 0x7fffffff) > 0x7f800000) return bits >> 16 | 0x40;  // not a number, and stays so
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

// Rows `first` to `last` of weight [N, K] into panels [..]; the caller has zeroed these. rows: the first one's address, of
// float32; of INT8, integers.
EXPORT(void, pack)(int kind, const void *rows, int64_t first, int64_t last, int64_t inputs, void *panels) {
    size_t panel = panel_of(kind);
    size_t per_word = 4 / bytes_of(kind);

    for (int64_t output = first; output < last; output++) {
        size_t row = (output - first) * inputs;
        size_t start = output / panel * panel * packed_inputs(kind, inputs) + output % panel * per_word;
        for (int64_t k = 0; k < inputs; k++) {
            size_t place = start + k / per_word * per_word * panel + k % per_word;
            if (kind == FLOAT32) ((float *)panels)[place] = ((const float *)rows)[row + k];
            else if (kind == BFLOAT16) ((uint16_t *)panels)[place] = to_bf16(((const float *)rows)[row + k]);
            else ((int8_t *)panels)[place] = ((const int8_t *)rows)[row + k];
        }
    }
}

// Where the outputs of a product go: y = act(x W + b + addends), as inputs of what reads them.
typedef struct {
    void *rows;
    size_t stride;   // numbers from one row to the next
    Format format;
    int activation;
    const float *addends;  // [T, stride] of the rows, or none: zeros
} Target;

// x W + b from the sums of a vector of outputs, which are integers for weights of INT8.
INLINE vf outputs_of(const Linear *l, int kind, size_t column, vf sums) {
    vf bias = load(l->bias + column);
    if (kind != INT8) return sums + bias;
    vi integers = (vi)sums - *(const vi_any *)(l->offset + column);
    return __builtin_convertvector(integers, vf) * load(l->scale + column) + bias;
}

// Rows of a panel's sums [rows, panel], of which `columns` are outputs, to the target.
// kind: of the weights. out_kind and activation are those of the target.
INLINE void finish_rows_as(
    const Linear *l, const Target *to, int kind, int out_kind, int activation,
    const float *sums, size_t panel, size_t row, size_t rows, size_t column, size_t columns) {
    Format format = {out_kind, to->format.factor, to->format.zero};
    for (size_t m = 0; m < rows; m++)
        for (size_t c = 0; c < columns; c += W) {
            size_t place = (row + m) * to->stride + column + c;
            vf y = outputs_of(l, kind, column + c, load(sums + m * panel + c));
            if (to->addends) y += load(to->addends + place);
            store_as(format, to->rows, place, column + c, activated(activation, out_kind, y));
        }
}

// The same, compiled for each number format and activation that is common.
INLINE void finish_rows_of(
    const Linear *l, const Target *to, int kind,
    const float *sums, size_t panel, size_t row, size_t rows, size_t column, size_t columns) {
    int out_kind = to->format.kind;
    if (to->activation == NONE && out_kind == FLOAT32)
        finish_rows_as(l, to, kind, FLOAT32, NONE, sums, panel, row, rows, column, columns);
    else if (to->activation == NONE && out_kind == BFLOAT16)
        finish_rows_as(l, to, kind, BFLOAT16, NONE, sums, panel, row, rows, column, columns);
    else if (to->activation == GELU && out_kind == FLOAT32)
        finish_rows_as(l, to, kind, FLOAT32, GELU, sums, panel, row, rows, column, columns);
    else if (to->activation == GELU && out_kind == BFLOAT16)
        finish_rows_as(l, to, kind, BFLOAT16, GELU, sums, panel, row, rows, column, columns);
    else if (to->activation == GELU)
        finish_rows_as(l, to, kind, INT8, GELU, sums, panel, row, rows, column, columns);
    else
        finish_rows_as(l, to, kind, out_kind, to->activation, sums, panel, row, rows, column, columns);
}

static void finish_rows(
    const Linear *l, const Target *to,
    const float *sums, size_t panel, size_t row, size_t rows, size_t column, size_t columns) {
    if (l->format.kind == INT8) finish_rows_of(l, to, INT8, sums, panel, row, rows, column, columns);
    else finish_rows_of(l, to, FLOAT32, sums, panel, row, rows, column, columns);
}

// --- by vectors -------------------------------------------------------------------------------------------------------

INLINE vf add_float32(vf sums, uint32_t x, vu weights) {
    float number;
    memcpy(&number, &x, 4);
    return sums + number * (vf)weights;
}

#if defined(__AVX512BF16__)
INLINE vf add_bfloat16(vf sums, uint32_t x, vu weights) {
    return (vf)_mm512_dpbf16_ps((__m512)sums, (__m512bh)_mm512_set1_epi32(x), (__m512bh)weights);
}
#else
INLINE vf add_bfloat16(vf sums, uint32_t x, vu weights) {
    sums = add_float32(sums, x << 16, weights << 16);
    return add_float32(sums, x & 0xffff0000, weights & 0xffff0000);
}
#endif

// Four products of integers are added exactly. Sums are bits of integers.
#if defined(__AVX512VNNI__)

enum { ROWS_INT8 = ROWS };

INLINE vf add_int8(vf sums, uint32_t x, vu weights) {
    return (vf)_mm512_dpbusd_epi32((__m512i)sums, _mm512_set1_epi32(x), (__m512i)weights);
}

#else

enum { ROWS_INT8 = 4 };  // weights take twice as many registers

// The sum of the two products in each word, of integers of 16 bits.
INLINE vi add_pairs(vs a, vs b) {
#if defined(__AVX512BW__)
    return (vi)_mm512_madd_epi16((__m512i)a, (__m512i)b);
#elif defined(__AVX2__)
    return (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#else
    return ((vi)a << 16 >> 16) * ((vi)b << 16 >> 16) + ((vi)a >> 16) * ((vi)b >> 16);
#endif
}

// In integers of 16 bits: instructions that multiply those of 8 saturate.
INLINE vf add_int8(vf sums, uint32_t x, vu weights) {
    vu inputs = x - (vu){0};
#if defined(__x86_64__)
    __asm__("" : "+v"(inputs));  // GCC would mask and shift before it fills the vector, which takes longer
#endif
    vi even = add_pairs((vs)(inputs & 0xff00ff), (vs)weights << 8 >> 8);
    vi odd = add_pairs((vs)((vus)inputs >> 8), (vs)weights >> 8);
    return (vf)((vi)sums + even + odd);
}

#endif

INLINE vf add_products(int kind, vf sums, uint32_t x, vu weights) {
    if (kind == FLOAT32) return add_float32(sums, x, weights);
    if (kind == BFLOAT16) return add_bfloat16(sums, x, weights);
    return add_int8(sums, x, weights);
}

// Weights to fetch into the caches while a tile is computed: from an address on, `step` bytes for each word of a row.
// Behind the last weights nothing is fetched.
typedef struct {
    const char *from;
    size_t step;
} Ahead;

// The sums of a tile: x [rows, words] with a panel [words, NV * W] to sums [rows, NV * W].
INLINE void tile_as(
    int kind, const uint32_t *x, size_t stride, const uint32_t *panel, size_t words, Ahead ahead, float *sums,
    int rows) {
    vf tile[ROWS][NV] = {0};
    for (size_t k = 0; k < words; k++, panel += NV * W) {
        __builtin_prefetch(ahead.from + k * ahead.step);
        vu weights[NV];
        UNROLL for (int v = 0; v < NV; v++) weights[v] = ((const vu_any *)panel)[v];
        UNROLL for (int m = 0; m < rows; m++)
            UNROLL for (int v = 0; v < NV; v++)
                tile[m][v] = add_products(kind, tile[m][v], x[m * stride + k], weights[v]);
    }

    UNROLL for (int m = 0; m < rows; m++)
        UNROLL for (int v = 0; v < NV; v++) store(sums + (m * NV + v) * W, tile[m][v]);
}

INLINE void tile_of(
    int kind, const uint32_t *x, size_t stride, const uint32_t *panel, size_t words, Ahead ahead, float *sums,
    int rows) {
    switch (rows) {
        case 1: tile_as(kind, x, stride, panel, words, ahead, sums, 1); break;
        case 2: tile_as(kind, x, stride, panel, words, ahead, sums, 2); break;
        case 3: tile_as(kind, x, stride, panel, words, ahead, sums, 3); break;
        case 4: tile_as(kind, x, stride, panel, words, ahead, sums, 4); break;
        case 5: tile_as(kind, x, stride, panel, words, ahead, sums, 5); break;
        case 6: tile_as(kind, x, stride, panel, words, ahead, sums, 6); break;
#if defined(__AVX512F__)
        case 7: tile_as(kind, x, stride, panel, words, ahead, sums, 7); break;
        case 8: tile_as(kind, x, stride, panel, words, ahead, sums, 8); break;
#endif
    }
}

static void vector_product(const void *x, size_t T, const Linear *l, size_t first, size_t last, const Target *to) {
    enum { PANEL = NV * W };
    float sums[ROWS * PANEL] __attribute__((aligned(64)));
    int kind = l->format.kind;
    size_t words = l->inputs * bytes_of(kind) / 4;
    size_t most_rows = kind == INT8 ? ROWS_INT8 : ROWS;
    size_t tiles = (T + most_rows - 1) / most_rows;
    size_t step = 4 * PANEL / tiles;  // few rows wait for weights from memory: those of the next panel, evenly

    for (size_t panel = first; panel < last; panel++) {
        size_t column = panel * PANEL;
        size_t columns = l->outputs - column < PANEL ? l->outputs - column : PANEL;

        // Rows are shared out evenly: a tile of a single row would take as long as one of three.
        for (size_t tile = 0, row = 0; tile < tiles; tile++) {
            size_t rows = T * (tile + 1) / tiles - row;
            const uint32_t *from = (const uint32_t *)x + row * words;
            const uint32_t *weights = l->panels + panel * PANEL * words;
            Ahead ahead = {(const char *)(weights + PANEL * words) + tile * words * step, step};
            if (kind == FLOAT32) tile_of(FLOAT32, from, words, weights, words, ahead, sums, rows);
            else if (kind == BFLOAT16) tile_of(BFLOAT16, from, words, weights, words, ahead, sums, rows);
            else tile_of(INT8, from, words, weights, words, ahead, sums, rows);
            finish_rows(l, to, sums, PANEL, row, rows, column, columns);
            row += rows;
        }
    }
}

// --- by tiles of AMX --------------------------------------------------------------------------------------------------

#if HAS_TILES

// Registers of tiles, all of 16 rows of 64 bytes: sums 0 to 3, rows of x 4 and 5, weights 6 and 7. A constant: GCC 12 does
// not know that the instruction reads all of it, and would leave out what a function writes into it.
static const struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} TILES __attribute__((aligned(64))) = {
    .palette = 1,
    .bytes = {64, 64, 64, 64, 64, 64, 64, 64},
    .rows = {16, 16, 16, 16, 16, 16, 16, 16},
};

static void configure_tiles(void) { _tile_loadconfig(&TILES); }

// What has been written is in memory from here on: GCC 12 does not know that tiles are loaded from there.
INLINE void finish_writing(void) { __asm__ volatile("" ::: "memory"); }

// A tile of sums += a tile of x times a tile of weights, by the instruction for their kind.
#define ADD_TILES(sums, x, weights) \
    do { \
        if (kind == INT8) _tile_dpbusd(sums, x, weights); \
        else _tile_dpbf16ps(sums, x, weights); \
    } while (0)

// Sums of 32 rows, or of 16 with is_half, and a panel of 32 outputs, [32, 32]: of BFLOAT16 floats, of INT8 integers.
// stride: bytes from one row of x to the next. bytes: of a row, a multiple of 64. x may have fewer rows, if there is
// memory to read after them.
INLINE void tiles_of(
    int kind, const void *x, size_t stride, size_t bytes, const uint32_t *panel, float *sums, size_t sums_stride,
    int is_half) {
    finish_writing();
    _tile_zero(0);
    _tile_zero(1);
    if (!is_half) {
        _tile_zero(2);
        _tile_zero(3);
    }
    size_t sums_bytes = 4 * sums_stride;
    const char *first = x, *second = first + 16 * stride;
    for (size_t k = 0; k < bytes; k += 64, panel += 16 * 32) {
        _tile_loadd(6, panel, 128);
        _tile_loadd(4, first + k, stride);
        _tile_loadd(7, panel + 16, 128);
        ADD_TILES(0, 4, 6);
        ADD_TILES(1, 4, 7);
        if (!is_half) {
            _tile_loadd(5, second + k, stride);
            ADD_TILES(2, 5, 6);
            ADD_TILES(3, 5, 7);
        }
    }
    _tile_stored(0, sums, sums_bytes);
    _tile_stored(1, sums + 16, sums_bytes);
    if (!is_half) {
        _tile_stored(2, sums + 16 * sums_stride, sums_bytes);
        _tile_stored(3, sums + 16 * sums_stride + 16, sums_bytes);
    }
}

INLINE void tile_product_as(
    int kind, const void *x, size_t T, const Linear *l, size_t first, size_t last, const Target *to) {
    enum { PANEL = 32 };
    float sums[32 * PANEL] __attribute__((aligned(64)));
    size_t stride = l->inputs * bytes_of(kind);
    size_t bytes = packed_inputs(kind, l->inputs) * bytes_of(kind);

    for (size_t panel = first; panel < last; panel++) {
        const uint32_t *weights = l->panels + panel * PANEL * bytes / 4;
        for (size_t row = 0; row < T; row += 32) {
            size_t rows = T - row < 32 ? T - row : 32;
            const char *from = (const char *)x + row * stride;
            if (rows <= 16) tiles_of(kind, from, stride, bytes, weights, sums, PANEL, 1);
            else tiles_of(kind, from, stride, bytes, weights, sums, PANEL, 0);
            finish_rows(l, to, sums, PANEL, row, rows, panel * PANEL, PANEL);
        }
    }
}

static void tile_product(const void *x, size_t T, const Linear *l, size_t first, size_t last, const Target *to) {
    if (l->format.kind == INT8) tile_product_as(INT8, x, T, l, first, last, to);
    else tile_product_as(BFLOAT16, x, T, l, first, last, to);
}

#endif

// The outputs of panels `first` to `last` for x [T, K], which is in the format of the layer's inputs.
static void product(const void *x, size_t T, const Linear *l, size_t first, size_t last, const Target *to) {
#if HAS_TILES
    if (l->format.kind != FLOAT32) {
        tile_product(x, T, l, first, last, to);
        return;
    }
#endif
    vector_product(x, T, l, first, last, to);
}
