// Rows of a table of words that is stored in few bits: of 4 to 8 bits with a scale for each 32 numbers, as
// formats/packed.py has them; or of 8 bits with a scale for each row, as model/int8.py has them.

#include "vectors.h"

enum { NUMBERS_OF_A_SCALE = 32 };

// Numbers of `bits` bits, from the lowest bits of each byte on, to `codes`: added, `shift` bits higher.
INLINE void add_plane(const uint8_t *bytes, size_t numbers, int bits, int shift, uint8_t *codes) {
    int per_byte = 8 / bits;
    uint8_t mask = (1 << bits) - 1;
    for (size_t i = 0; i < numbers / per_byte; i++)
        for (int part = 0; part < per_byte; part++)
            codes[i * per_byte + part] |= (bytes[i] >> (bits * part) & mask) << shift;
}

// Rows `ids` of a packed matrix [rows, columns] to out [n, columns]. columns: a multiple of 32.
// bits: 4, 5, 6 or 8. codes: the low 4 bits of all numbers, then their high bits. scales: [rows, columns / 32]
// The number of rows that were unpacked: fewer than n if an id is out of range.
EXPORT(int64_t, unpack_rows)(
    const uint8_t *codes, const float *scales, int bits, int64_t rows, int64_t columns, const int32_t *ids, int64_t n,
    float *out) {
    enum { PART = 1024 };  // numbers at once, a multiple of 32
    const uint8_t *high_codes = codes + rows * columns / 2;
    float middle = 1 << (bits - 1);

    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= rows) return i;
        for (int64_t first = 0; first < columns; first += PART) {
            int64_t place = ids[i] * columns + first;
            size_t numbers = columns - first < PART ? columns - first : PART;

            uint8_t values[PART] = {0};
            add_plane(codes + place / 2, numbers, 4, 0, values);
            if (bits == 5) add_plane(high_codes + place / 8, numbers, 1, 4, values);
            if (bits == 6) add_plane(high_codes + place / 4, numbers, 2, 4, values);
            if (bits == 8) add_plane(high_codes + place / 2, numbers, 4, 4, values);

            for (size_t k = 0; k < numbers; k++) {
                float scale = scales[(place + k) / NUMBERS_OF_A_SCALE];
                out[i * columns + first + k] = (values[k] - middle) * scale;
            }
        }
    }
    return n;
}

// Rows `ids` of integers [rows, columns], times the scale of each row, to out [n, columns]. The number of rows that were
// written: fewer than n if an id is out of range.
EXPORT(int64_t, scale_rows)(
    const int8_t *integers, const float *scales, int64_t rows, int64_t columns, const int32_t *ids, int64_t n,
    float *out) {
    for (int64_t i = 0; i < n; i++) {
        if (ids[i] < 0 || ids[i] >= rows) return i;
        const int8_t *row = integers + ids[i] * columns;
        float scale = scales[ids[i]];
        for (int64_t k = 0; k < columns; k++) out[i * columns + k] = row[k] * scale;
    }
    return n;
}
