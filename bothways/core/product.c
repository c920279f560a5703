// Products of rows with the weights of a linear layer, which are packed once in the order in which they are read.
//
// Letters: T rows, K inputs, N outputs. A panel holds the weights of PANEL neighbouring outputs, input after input; a
// word of 32 bits is one float, or two bfloat16 of consecutive inputs. Each output is a sum over K in one order, whatever
// the number of rows and threads, so that neither changes a bit.

#include "vectors.h"

#if defined(__AMX_BF16__)
#define HAS_BFLOAT16 1
#define HAS_TILES 1
enum { PANEL_BFLOAT16 = 32 };
#elif defined(__AVX512BF16__)
#define HAS_BFLOAT16 1
enum { PANEL_BFLOAT16 = W * NV };
#else
enum { PANEL_BFLOAT16 = W * NV };
#endif

enum { PANEL_FLOAT32 = W * NV };

INLINE size_t panel_of(int kind) { return kind == FLOAT32 ? PANEL_FLOAT32 : PANEL_BFLOAT16; }

// x W + b
typedef struct {
    const uint32_t *panels;  // [N / PANEL, K / numbers of a word, PANEL], after the last output zeros
    const float *bias;       // [N]
    int64_t inputs, outputs; // K and N, multiples of 32
} Linear;

INLINE size_t panels_of(int kind, size_t outputs) { return (outputs + panel_of(kind) - 1) / panel_of(kind); }

// Bytes of the packed weights of a layer.
EXPORT(int64_t, packed_size)(int kind, int64_t outputs, int64_t inputs) {
    return panels_of(kind, outputs) * panel_of(kind) * inputs * bytes_of(kind);
}

static uint16_t to_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if ((bits & 0x7fffffff) > 0x7f800000) return bits >> 16 | 0x40;  // not a number, and stays so
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

// Rows `first` to `last` of weight [N, K] into panels [..]; the caller has zeroed these. rows: the first one's address.
EXPORT(void, pack)(int kind, const float *rows, int64_t first, int64_t last, int64_t inputs, void *panels) {
    size_t panel = panel_of(kind);
    size_t per_word = 4 / bytes_of(kind);

    for (int64_t output = first; output < last; output++) {
        const float *row = rows + (output - first) * inputs;
        size_t start = output / panel * panel * inputs + output % panel * per_word;
        for (int64_t k = 0; k < inputs; k++) {
            size_t place = start + k / per_word * per_word * panel + k % per_word;
            if (kind == FLOAT32) ((float *)panels)[place] = row[k];
            else ((uint16_t *)panels)[place] = to_bf16(row[k]);
        }
    }
}

// Where the outputs of a product go: y = act(x W + b), in a number format.
typedef struct {
    void *rows;
    size_t stride;   // numbers from one row to the next
    int kind;
    int activation;
} Target;

// A vector of outputs from its sums, to row and column of the target.
INLINE void finish(const Linear *l, const Target *to, int kind, int activation, size_t row, size_t column, vf sums) {
    vf y = activated(activation, kind, sums + load(l->bias + column));
    store_as(kind, to->rows, row * to->stride + column, y);
}

// Rows of a panel's sums [rows, panel], of which `columns` are outputs, to the target.
INLINE void finish_rows_as(
    const Linear *l, const Target *to, int kind, int activation,
    const float *sums, size_t panel, size_t row, size_t rows, size_t column, size_t columns) {
    for (size_t m = 0; m < rows; m++)
        for (size_t c = 0; c < columns; c += W)
            finish(l, to, kind, activation, row + m, column + c, load(sums + m * panel + c));
}

// The same, compiled for each number format and activation that is common.
static void finish_rows(
    const Linear *l, const Target *to,
    const float *sums, size_t panel, size_t row, size_t rows, size_t column, size_t columns) {
    if (to->activation == NONE && to->kind == FLOAT32)
        finish_rows_as(l, to, FLOAT32, NONE, sums, panel, row, rows, column, columns);
    else if (to->activation == NONE)
        finish_rows_as(l, to, BFLOAT16, NONE, sums, panel, row, rows, column, columns);
    else if (to->activation == GELU && to->kind == FLOAT32)
        finish_rows_as(l, to, FLOAT32, GELU, sums, panel, row, rows, column, columns);
    else if (to->activation == GELU)
        finish_rows_as(l, to, BFLOAT16, GELU, sums, panel, row, rows, column, columns);
    else
        finish_rows_as(l, to, to->kind, to->activation, sums, panel, row, rows, column, columns);
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

// The sums of a tile: x [rows, words] with a panel [words, NV * W] to sums [rows, NV * W].
INLINE void tile_as(int kind, const uint32_t *x, size_t stride, const uint32_t *panel, size_t words, float *sums, int rows) {
    vf tile[ROWS][NV] = {0};
    for (size_t k = 0; k < words; k++, panel += NV * W) {
        vu weights[NV];
        UNROLL for (int v = 0; v < NV; v++) weights[v] = ((const vu_any *)panel)[v];
        UNROLL for (int m = 0; m < rows; m++)
            UNROLL for (int v = 0; v < NV; v++)
                tile[m][v] = kind == FLOAT32 ? add_float32(tile[m][v], x[m * stride + k], weights[v])
                                             : add_bfloat16(tile[m][v], x[m * stride + k], weights[v]);
    }

    UNROLL for (int m = 0; m < rows; m++)
        UNROLL for (int v = 0; v < NV; v++) store(sums + (m * NV + v) * W, tile[m][v]);
}

INLINE void tile_of(int kind, const uint32_t *x, size_t stride, const uint32_t *panel, size_t words, float *sums, int rows) {
    switch (rows) {
        case 1: tile_as(kind, x, stride, panel, words, sums, 1); break;
        case 2: tile_as(kind, x, stride, panel, words, sums, 2); break;
        case 3: tile_as(kind, x, stride, panel, words, sums, 3); break;
        case 4: tile_as(kind, x, stride, panel, words, sums, 4); break;
        case 5: tile_as(kind, x, stride, panel, words, sums, 5); break;
        case 6: tile_as(kind, x, stride, panel, words, sums, 6); break;
#if defined(__AVX512F__)
        case 7: tile_as(kind, x, stride, panel, words, sums, 7); break;
        case 8: tile_as(kind, x, stride, panel, words, sums, 8); break;
#endif
    }
}

static void vector_product(int kind, const void *x, size_t T, const Linear *l, size_t first, size_t last, const Target *to) {
    enum { PANEL = NV * W };
    float sums[ROWS * PANEL] __attribute__((aligned(64)));
    size_t words = l->inputs * bytes_of(kind) / 4;
    size_t tiles = (T + ROWS - 1) / ROWS;

    for (size_t panel = first; panel < last; panel++) {
        size_t column = panel * PANEL;
        size_t columns = l->outputs - column < PANEL ? l->outputs - column : PANEL;

        // Rows are shared out evenly: a tile of a single row would take as long as one of three.
        for (size_t tile = 0, row = 0; tile < tiles; tile++) {
            size_t rows = T * (tile + 1) / tiles - row;
            const uint32_t *from = (const uint32_t *)x + row * words;
            const uint32_t *weights = l->panels + panel * PANEL * words;
            if (kind == FLOAT32) tile_of(FLOAT32, from, words, weights, words, sums, rows);
            else tile_of(BFLOAT16, from, words, weights, words, sums, rows);
            finish_rows(l, to, sums, PANEL, row, rows, column, columns);
            row += rows;
        }
    }
}

// --- by tiles of AMX --------------------------------------------------------------------------------------------------

#if HAS_TILES

// Registers of tiles, all of 16 rows of 64 bytes: sums 0 to 3, rows of x 4 and 5, weights 6 and 7.
static void configure_tiles(void) {
    struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } settings __attribute__((aligned(64))) = {.palette = 1};
    for (int tile = 0; tile < 8; tile++) {
        settings.bytes[tile] = 64;
        settings.rows[tile] = 16;
    }
    _tile_loadconfig(&settings);
}

// Sums of 32 rows, or of 16 with is_half, and a panel of 32 outputs, [32, 32]. Strides are numbers from one row to the
// next. x may have fewer rows, if there is memory to read after them.
INLINE void tiles_of(
    const uint16_t *x, size_t stride, size_t inputs, const uint32_t *panel, float *sums, size_t sums_stride, int is_half) {
    _tile_zero(0);
    _tile_zero(1);
    if (!is_half) {
        _tile_zero(2);
        _tile_zero(3);
    }
    size_t bytes = 2 * stride, sums_bytes = 4 * sums_stride;
    for (size_t k = 0; k < inputs; k += 32, panel += 16 * 32) {
        _tile_loadd(6, panel, 128);
        _tile_loadd(4, x + k, bytes);
        _tile_loadd(7, panel + 16, 128);
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        if (!is_half) {
            _tile_loadd(5, x + 16 * stride + k, bytes);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    _tile_stored(0, sums, sums_bytes);
    _tile_stored(1, sums + 16, sums_bytes);
    if (!is_half) {
        _tile_stored(2, sums + 16 * sums_stride, sums_bytes);
        _tile_stored(3, sums + 16 * sums_stride + 16, sums_bytes);
    }
}

static void tile_product(const uint16_t *x, size_t T, const Linear *l, size_t first, size_t last, const Target *to) {
    enum { PANEL = PANEL_BFLOAT16 };
    float sums[32 * PANEL] __attribute__((aligned(64)));

    for (size_t panel = first; panel < last; panel++) {
        const uint32_t *weights = l->panels + panel * PANEL * l->inputs / 2;
        for (size_t row = 0; row < T; row += 32) {
            size_t rows = T - row < 32 ? T - row : 32;
            const uint16_t *from = x + row * l->inputs;
            if (rows <= 16) tiles_of(from, l->inputs, l->inputs, weights, sums, PANEL, 1);
            else tiles_of(from, l->inputs, l->inputs, weights, sums, PANEL, 0);
            finish_rows(l, to, sums, PANEL, row, rows, panel * PANEL, PANEL);
        }
    }
}

#endif

// The outputs of panels `first` to `last` for x [T, K], which is of the kind of the weights.
static void product(int kind, const void *x, size_t T, const Linear *l, size_t first, size_t last, const Target *to) {
#if HAS_TILES
    if (kind == BFLOAT16) {
        tile_product(x, T, l, first, last, to);
        return;
    }
#endif
    vector_product(kind, x, T, l, first, last, to);
}
