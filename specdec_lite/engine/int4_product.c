/* Products of rows in bfloat16 with weights of 4 or 8 bits. `int4.py` describes the weights, and
   `compiled.py` compiles this file.

   The inputs of a group become whole numbers times a power of two. Sums within a group are then
   exact, in any order and with any instructions, and sums over groups are added in float32, in the
   order of the inputs. So the result of a row depends neither on the number of rows or threads nor,
   where multiplications and additions can be fused, on the processor.

   The weights of 16 outputs and one group of inputs are a block: codes first, then scales. Codes lie
   in quads, the codes of four inputs for each output. In 4 bits, quads q and q + 4 share bytes. */

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

#if defined(__AVX512VNNI__)
enum { LANES = 16 };
#else
enum { LANES = 8 };
#endif
enum { GROUP = 32, OUT = 16, QUAD = 4 * OUT };
enum { SHARE = 8 };    /* rows that share the unpacking of a weight */
enum { AHEAD = 2560 }; /* bytes to ask the memory for in advance */
enum { PIECES = 8 };   /* parts of the work per thread */

typedef int32_t Ints __attribute__((vector_size(4 * LANES)));
typedef float Floats __attribute__((vector_size(4 * LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));

#define INLINE static inline __attribute__((always_inline))
#define UNROLLED _Pragma("GCC unroll 8")

/* One group of a row. The inputs are unit times whole numbers x below 2^14. */
typedef struct {
#if defined(__AVX512VNNI__)
    int8_t high[GROUP], low[GROUP]; /* x = 256 · high + low */
#else
    int16_t x[GROUP]; /* in the order of `place` */
#endif
    float unit, sum; /* sum: of the inputs */
    int32_t start;   /* corrects for codes that are stored without a sign */
} Group;

typedef struct {
    const uint8_t *blocks;
    const Group *x;
    uint16_t *y;
    int64_t groups, panels, rows, next, step;
    int bits;
} Job;

INLINE int block_bytes(int bits) { return bits * GROUP * OUT / 8 + 4 * OUT; }

INLINE float as_float(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

/* Four inputs of one row times the codes of a quad are added to the row's sums [LANES]. */

#if defined(__AVX512VNNI__)

typedef struct { Ints high, low; } Sums;

INLINE void place(Group *to, int i, int32_t x) {
    to->low[i] = (int8_t)x;
    to->high[i] = (int8_t)((x - to->low[i]) / 256);
}

INLINE void add_quad(Ints codes, int q, const Group *x, Sums *to) {
    int32_t high, low;
    memcpy(&high, x->high + 4 * q, 4);
    memcpy(&low, x->low + 4 * q, 4);
    __m512i each = (__m512i)codes;
    to->high = (Ints)_mm512_dpbusd_epi32((__m512i)to->high, each, _mm512_set1_epi32(high));
    to->low = (Ints)_mm512_dpbusd_epi32((__m512i)to->low, each, _mm512_set1_epi32(low));
}

INLINE Sums begin(const Group *x) { return (Sums){(Ints){0}, (Ints){0} + x->start}; }

INLINE Ints total(Sums sums) { return (sums.high << 8) + sums.low; }

#else

typedef Ints Sums;

#if defined(__AVX2__)

INLINE void place(Group *to, int i, int32_t x) { /* inputs 0, 2, 1, 3 of a quad */
    to->x[(i & ~3) | (i & 1) << 1 | (i >> 1 & 1)] = (int16_t)x;
}

INLINE void add_quad(Ints codes, int q, const Group *x, Sums *to) {
    int32_t even, odd;
    memcpy(&even, x->x + 4 * q, 4);
    memcpy(&odd, x->x + 4 * q + 2, 4);
    __m256i first = (__m256i)(codes & 0x00ff00ff), second = _mm256_srli_epi16((__m256i)codes, 8);
    *to += (Ints)_mm256_madd_epi16(first, _mm256_set1_epi32(even));
    *to += (Ints)_mm256_madd_epi16(second, _mm256_set1_epi32(odd));
}

#else

INLINE void place(Group *to, int i, int32_t x) { to->x[i] = (int16_t)x; }

INLINE void add_quad(Ints codes, int q, const Group *x, Sums *to) {
    for (int i = 0; i < 4; i++) *to += (codes >> 8 * i & 255) * x->x[4 * q + i];
}

#endif

INLINE Sums begin(const Group *x) { return (Ints){0} + x->start; }

INLINE Ints total(Sums sums) { return sums; }

#endif

INLINE Floats widened(const uint8_t *from) { /* LANES numbers in bfloat16 */
    Halves halves;
    memcpy(&halves, from, sizeof halves);
    return (Floats)(__builtin_convertvector(halves, Ints) << 16);
}

/* Multiplies rows with LANES of the outputs of a panel: all groups of 16 outputs. */
INLINE void lanes(const uint8_t *w, const Group *x, int64_t groups, int rows, int bits,
                  float (*y)[OUT], int first) {
    Floats results[SHARE];
    UNROLLED for (int r = 0; r < rows; r++) results[r] = (Floats){0};
    for (int64_t g = 0; g < groups; g++, w += block_bytes(bits), x++) {
        if (first == 0)
            for (int line = 0; line < block_bytes(bits); line += 64)
                __builtin_prefetch(w + AHEAD + line);
        Sums sums[SHARE];
        UNROLLED for (int r = 0; r < rows; r++) sums[r] = begin(x + r * groups);
        UNROLLED for (int q = 0; q < bits; q++) {
            Ints codes;
            memcpy(&codes, w + QUAD * q + 4 * first, sizeof codes);
            Ints nibbles = bits == 4 ? codes & 0x0f0f0f0f : codes;
            UNROLLED for (int r = 0; r < rows; r++) add_quad(nibbles, q, x + r * groups, sums + r);
            if (bits == 8) continue;
            nibbles = codes >> 4 & 0x0f0f0f0f;
            UNROLLED for (int r = 0; r < rows; r++)
                add_quad(nibbles, q + 4, x + r * groups, sums + r);
        }
        const uint8_t *after = w + QUAD * bits;
        Floats scales, zeros;
        if (bits == 4) {
            scales = widened(after + 2 * first);
            zeros = widened(after + 2 * (OUT + first));
        } else {
            memcpy(&scales, after + 4 * first, sizeof scales);
        }
        UNROLLED for (int r = 0; r < rows; r++) {
            const Group *row = x + r * groups;
            Floats product = __builtin_convertvector(total(sums[r]), Floats) * row->unit;
            results[r] += scales * product;
            if (bits == 4) results[r] += zeros * row->sum;
        }
    }
    UNROLLED for (int r = 0; r < rows; r++) memcpy(y[r] + first, results + r, sizeof *results);
}

INLINE uint16_t to_bfloat16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fc0; /* NaN */
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

INLINE void some_rows(const Job *job, int64_t at, int64_t row, int rows, int bits) {
    const uint8_t *w = job->blocks + at * job->groups * block_bytes(bits);
    float y[SHARE][OUT];
    for (int first = 0; first < OUT; first += LANES)
        lanes(w, job->x + row * job->groups, job->groups, rows, bits, y, first);
    for (int r = 0; r < rows; r++)
        for (int o = 0; o < OUT; o++)
            job->y[((row + r) * job->panels + at) * OUT + o] = to_bfloat16(y[r][o]);
}

/* Multiplies all rows with a panel. The number of rows is a constant in every call, so that the
   compiler keeps the sums of all rows in registers. */
INLINE void all_rows(const Job *job, int64_t at, int bits) {
    int64_t row = 0;
    for (; row + SHARE <= job->rows; row += SHARE) some_rows(job, at, row, SHARE, bits);
    switch (job->rows - row) {
    case 1: some_rows(job, at, row, 1, bits); break;
    case 2: some_rows(job, at, row, 2, bits); break;
    case 3: some_rows(job, at, row, 3, bits); break;
    case 4: some_rows(job, at, row, 4, bits); break;
    case 5: some_rows(job, at, row, 5, bits); break;
    case 6: some_rows(job, at, row, 6, bits); break;
    case 7: some_rows(job, at, row, 7, bits); break;
    }
}

/* Takes panels until none is left; runs in several threads. */
static void work(void *data) {
    Job *job = data;
    for (;;) {
        int64_t at = __atomic_fetch_add(&job->next, job->step, __ATOMIC_RELAXED);
        int64_t end = at + job->step < job->panels ? at + job->step : job->panels;
        if (at >= end) return;
        for (; at < end; at++) {
            if (job->bits == 4) all_rows(job, at, 4);
            else all_rows(job, at, 8);
        }
    }
}

/* Turns a group of a row into whole numbers. Inputs above 1/64 of the largest stay exact; others are
   rounded to a 2^14th of the largest. */
static void quantize(const uint16_t *from, int offset, Group *to) {
    uint32_t largest = 0;
    int32_t x[GROUP], sum = 0;
    for (int i = 0; i < GROUP; i++) {
        uint32_t size = from[i] & 0x7fff;
        largest = size > largest ? size : largest;
    }
    int exponent = largest >> 7;
    float inverse = 0, unit = 0;
    if (exponent == 255) {
        unit = as_float(0x7fc00000); /* infinity or NaN: the results are NaN */
    } else if (exponent > 13) {
        unit = as_float((uint32_t)(exponent - 13) << 23);
        inverse = as_float((uint32_t)(267 - exponent) << 23);
    }
    for (int i = 0; i < GROUP; i++) {
        /* Next to 1.5 · 2^23 floats are whole numbers, and the lowest bits count them. */
        float shifted = as_float((uint32_t)from[i] << 16) * inverse + 12582912.0f;
        uint32_t bits;
        memcpy(&bits, &shifted, 4);
        x[i] = inverse == 0 ? 0 : (int32_t)(bits - 0x4b400000);
        sum += x[i];
    }
    for (int i = 0; i < GROUP; i++) place(to, i, x[i]);
    to->unit = unit;
    to->sum = (float)sum * unit;
    to->start = -offset * sum;
}

/* Multiplies x [rows, inputs] by the blocks and writes y [rows, outputs]; returns 1 if there is no
   memory. parallel: OpenMP's function that runs another one in several threads, or NULL. */
int multiply(const uint8_t *blocks, int bits, int64_t inputs, int64_t outputs, const uint16_t *x,
             int64_t rows, uint16_t *y, int threads,
             void (*parallel)(void (*)(void *), void *, unsigned, unsigned)) {
    int64_t groups = inputs / GROUP, panels = outputs / OUT;
    Group *whole = malloc(rows * groups * sizeof(Group));
    if (!whole) return 1;
    for (int64_t g = 0; g < rows * groups; g++)
        quantize(x + g * GROUP, bits == 4 ? 8 : 128, whole + g);
    Job job = {blocks, whole, y, groups, panels, rows, 0, panels, bits};
    if (parallel && threads > 1) {
        job.step = panels / (threads * PIECES) + 1;
        parallel(work, &job, threads, 0);
    } else {
        work(&job);
    }
    free(whole);
    return 0;
}
