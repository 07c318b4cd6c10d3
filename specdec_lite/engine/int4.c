/* Products of rows in bfloat16 with weights of 4, 8 or 16 bits, and a whole decoder block of them.
   `int4.py` describes the weights, and `compiled.py` compiles this file.

   For weights of 4 or 8 bits the inputs of a group become whole numbers times a power of two. Sums
   within a group are then exact, in any order, and sums over groups are added in float32, in the
   order of the inputs. Products with weights of 16 bits (bfloat16) are added half by half. So the
   result of a row depends neither on the number of rows or threads nor, where multiplications and
   additions can be fused, on the processor. The rest of a block computes each row by itself.

   The codes of 16 outputs and one group of inputs are a block, with their scales behind them. They
   lie in quads, the codes of four inputs for each output. In 4 bits, quads q and q + 4 share bytes. */

#include <math.h>
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
    int bits;
    int64_t inputs, outputs;
} Matrix;

typedef struct {
    Matrix w;
    const void *x; /* groups of codes, or floats for weights of 16 bits */
    uint16_t *y;
    int64_t rows;
} Product;

/* Threads: OpenMP's function that runs another one in several of them, or NULL. */
typedef struct {
    int threads;
    void (*parallel)(void (*)(void *), void *, unsigned, unsigned);
} Team;

typedef struct {
    void (*piece)(const void *, int64_t);
    const void *data;
    int64_t count, next, step;
} Work;

static void take(void *data) { /* takes pieces until none is left; runs in every thread */
    Work *work = data;
    for (;;) {
        int64_t at = __atomic_fetch_add(&work->next, work->step, __ATOMIC_RELAXED);
        int64_t end = at + work->step < work->count ? at + work->step : work->count;
        if (at >= end) return;
        for (; at < end; at++) work->piece(work->data, at);
    }
}

static void run(Team team, void (*piece)(const void *, int64_t), const void *data, int64_t count) {
    int64_t threads = team.parallel ? team.threads : 1;
    Work work = {piece, data, count, 0, threads > 1 ? count / (threads * PIECES) + 1 : count};
    if (threads > 1) team.parallel(take, &work, threads, 0);
    else take(&work);
}

INLINE int block_bytes(int bits) { return bits * GROUP * OUT / 8 + (bits == 16 ? 0 : 4 * OUT); }

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

/* The same for weights of 16 bits and `wide` vectors of outputs. Each half of the inputs is summed in
   its order: one after the other, or `ahead` 2 at a time for few rows, which would wait otherwise. */
INLINE void halves(const uint8_t *w, const float *x, int64_t inputs, int rows, int wide, int ahead,
                   float (*y)[OUT], int first) {
    Floats results[SHARE][2] = {0};
    for (int64_t half = 0; half < 2; half += ahead) {
        Floats sums[2][SHARE][2];
        UNROLLED for (int a = 0; a < ahead; a++)
            UNROLLED for (int r = 0; r < rows; r++)
                UNROLLED for (int v = 0; v < wide; v++) sums[a][r][v] = (Floats){0};
        _Pragma("GCC unroll 2") for (int64_t i = 0; i < inputs / 2; i++)
            UNROLLED for (int a = 0; a < ahead; a++) {
                int64_t at = (half + a) * (inputs / 2) + i;
                const uint8_t *from = w + 2 * (OUT * at + first);
                if (first == 0 && i % 2 == 0) __builtin_prefetch(from + AHEAD);
                Floats weights[2];
                UNROLLED for (int v = 0; v < wide; v++) weights[v] = widened(from + 2 * v * LANES);
                UNROLLED for (int r = 0; r < rows; r++) {
                    Floats each = (Floats){0} + x[r * inputs + at];
                    UNROLLED for (int v = 0; v < wide; v++) sums[a][r][v] += weights[v] * each;
                }
            }
        UNROLLED for (int a = 0; a < ahead; a++)
            UNROLLED for (int r = 0; r < rows; r++)
                UNROLLED for (int v = 0; v < wide; v++) results[r][v] += sums[a][r][v];
    }
    UNROLLED for (int r = 0; r < rows; r++)
        UNROLLED for (int v = 0; v < wide; v++)
            memcpy(y[r] + first + v * LANES, &results[r][v], sizeof(Floats));
}

INLINE uint16_t to_bfloat16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fc0; /* NaN */
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

INLINE void some_rows(const Product *job, int64_t at, int64_t row, int rows, int bits) {
    int64_t groups = job->w.inputs / GROUP;
    const uint8_t *w = job->w.blocks + at * groups * block_bytes(bits);
    float y[SHARE][OUT];
    int wide = bits == 16 && LANES < OUT && rows <= 6 ? 2 : 1;
    for (int first = 0; first < OUT; first += wide * LANES)
        if (bits == 16)
            halves(w, (const float *)job->x + row * job->w.inputs, job->w.inputs, rows, wide,
                   rows <= 2 ? 2 : 1, y, first);
        else
            lanes(w, (const Group *)job->x + row * groups, groups, rows, bits, y, first);
    for (int r = 0; r < rows; r++)
        for (int o = 0; o < OUT; o++)
            job->y[(row + r) * job->w.outputs + at * OUT + o] = to_bfloat16(y[r][o]);
}

/* Multiplies all rows with a panel. The number of rows is a constant in every call, so that the
   compiler keeps the sums of all rows in registers. */
INLINE void all_rows(const Product *job, int64_t at, int bits) {
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

static void panel(const void *data, int64_t at) {
    const Product *job = data;
    switch (job->w.bits) {
    case 4: all_rows(job, at, 4); break;
    case 8: all_rows(job, at, 8); break;
    case 16: all_rows(job, at, 16); break;
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

/* Multiplies x [rows, inputs] by a matrix and writes y [rows, outputs]; space: for the groups. */
static void product(Matrix w, const uint16_t *x, int64_t rows, uint16_t *y, void *space, Team team) {
    if (w.bits == 16)
        for (int64_t i = 0; i < rows * w.inputs; i++)
            ((float *)space)[i] = as_float((uint32_t)x[i] << 16);
    else
        for (int64_t g = 0; g < rows * (w.inputs / GROUP); g++)
            quantize(x + g * GROUP, w.bits == 4 ? 8 : 128, (Group *)space + g);
    Product job = {w, space, y, rows};
    run(team, panel, &job, w.outputs / OUT);
}

/* The same from outside; returns 1 if there is no memory. */
int multiply(const Matrix *w, const uint16_t *x, int64_t rows, uint16_t *y, const Team *team) {
    void *space = malloc(rows * w->inputs * sizeof(float));
    if (!space) return 1;
    product(*w, x, rows, y, space, *team);
    free(space);
    return 0;
}

/* The rest of a decoder block ------------------------------------------------------------------- */

typedef struct {
    Matrix qkv, out, gate_up, down;
    const uint16_t *norm1, *norm2; /* weights; NULL: no normalization */
    int64_t heads, kv_heads, size;
    float eps;
} Block;

typedef struct {
    const Block *block;
    const float *q;
    float *scores;
    const uint16_t *keys, *values;
    uint16_t *mixed;
    int64_t capacity, start, room;
} Attention;

INLINE float from_bfloat16(uint16_t value) { return as_float((uint32_t)value << 16); }

INLINE float across(Floats x) { /* the sum of all lanes */
#if defined(__AVX512VNNI__)
    return _mm512_reduce_add_ps((__m512)x);
#else
    float sum = 0;
    for (int i = 0; i < LANES; i++) sum += x[i];
    return sum;
#endif
}

INLINE Floats loaded(const float *from) {
    Floats x;
    memcpy(&x, from, sizeof x);
    return x;
}

/* exp(x) for x ≤ 0, as 2^n · 2^f with a whole n and |f| ≤ 1/2. */
INLINE Floats exponential(Floats x) {
    Floats t = x * 1.44269504f, shifted = t + 12582912.0f, f = t - (shifted - 12582912.0f);
    Floats power = f * 1.5403530e-4f + 1.3333558e-3f;
    power = power * f + 9.6181291e-3f;
    power = power * f + 5.5504109e-2f;
    power = power * f + 2.4022651e-1f;
    power = power * f + 6.9314718e-1f;
    power = power * f + 1.0f;
    Ints bits = (Ints)power + (((Ints)shifted - 0x4b400000) << 23);
    return (Floats)(bits & (x > -87.0f));
}

static void norm(const uint16_t *x, const uint16_t *weight, float eps, int64_t size, uint16_t *y) {
    Floats squares = {0};
    for (int64_t i = 0; i < size; i += LANES) {
        Floats each = widened((const uint8_t *)(x + i));
        squares += each * each;
    }
    float factor = 1.0f / sqrtf(across(squares) / size + eps);
    for (int64_t i = 0; i < size; i++)
        y[i] = to_bfloat16(from_bfloat16(x[i]) * factor * from_bfloat16(weight[i]));
}

/* Rotates queries [heads, size] to float32 and keys to their entries, and stores the values. */
static void rotate(const Block *b, const uint16_t *qkv, const uint16_t *cos, const uint16_t *sin,
                   float *q, uint16_t *keys, uint16_t *values, int64_t capacity) {
    int64_t size = b->size;
    for (int64_t head = 0; head < b->heads + b->kv_heads; head++, qkv += size)
        for (int64_t i = 0; i < size; i++) {
            float other = from_bfloat16(qkv[i < size / 2 ? i + size / 2 : i - size / 2]);
            float x = from_bfloat16(qkv[i]) * from_bfloat16(cos[i]) + other * from_bfloat16(sin[i]);
            if (head < b->heads) q[head * size + i % 2 * (size / 2) + i / 2] = x;
            else keys[(head - b->heads) * capacity * size + i] = to_bfloat16(x);
        }
    for (int64_t head = 0; head < b->kv_heads; head++)
        memcpy(values + head * capacity * size, qkv + head * size, 2 * size);
}

/* Two neighbors in bfloat16 share a number of 32 bits: the first is its lower half. */
INLINE Ints pairs(const uint16_t *from) {
    Ints both;
    memcpy(&both, from, sizeof both);
    return both;
}

INLINE Floats firsts(Ints both) { return (Floats)(both << 16); }

INLINE Floats seconds(Ints both) { return (Floats)(both & (int32_t)0xffff0000); }

/* One query head of a row attends to count entries. q: all firsts, then all seconds. scores: memory
   for count + LANES numbers. */
INLINE void attend(const float *q, const uint16_t *keys, const uint16_t *values, int64_t count,
                   int64_t size, float *scores, uint16_t *mixed) {
    Floats sums = {0}, even[8], odd[8];
    float most = -INFINITY, factor = 1.0f / sqrtf((float)size);
    int64_t half = size / 2;
    for (int64_t j = 0; j < count; j++) {
        Floats dot = {0}, more = {0};
        UNROLLED for (int64_t i = 0; i < half; i += LANES) {
            Ints both = pairs(keys + j * size + 2 * i);
            dot += loaded(q + i) * firsts(both);
            more += loaded(q + half + i) * seconds(both);
        }
        scores[j] = across(dot + more) * factor;
        most = scores[j] > most ? scores[j] : most;
    }
    for (int j = 0; j < LANES; j++) scores[count + j] = -INFINITY;
    for (int64_t j = 0; j < count; j += LANES) {
        Floats each = exponential(loaded(scores + j) - most);
        sums += each;
        memcpy(scores + j, &each, sizeof each);
    }
    UNROLLED for (int64_t i = 0; i < half / LANES; i++) even[i] = odd[i] = (Floats){0};
    for (int64_t j = 0; j < count; j++)
        UNROLLED for (int64_t i = 0; i < half / LANES; i++) {
            Ints both = pairs(values + j * size + 2 * i * LANES);
            even[i] += scores[j] * firsts(both);
            odd[i] += scores[j] * seconds(both);
        }
    factor = 1.0f / across(sums);
    for (int64_t i = 0; i < half; i++) {
        mixed[2 * i] = to_bfloat16(even[i / LANES][i % LANES] * factor);
        mixed[2 * i + 1] = to_bfloat16(odd[i / LANES][i % LANES] * factor);
    }
}

static void head_of_row(const void *data, int64_t at) {
    const Attention *a = data;
    const Block *b = a->block;
    int64_t row = at / b->heads, from = at % b->heads / (b->heads / b->kv_heads);
    const uint16_t *keys = a->keys + from * a->capacity * b->size;
    const uint16_t *values = a->values + from * a->capacity * b->size;
    int64_t count = a->start + row + 1;
    const float *q = a->q + at * b->size;
    uint16_t *mixed = a->mixed + at * b->size;
    if (b->size == 64) attend(q, keys, values, count, 64, a->scores + at * a->room, mixed);
    else attend(q, keys, values, count, b->size, a->scores + at * a->room, mixed);
}

/* Computes silu(gate) · up of rows [2 · size]; size is a multiple of LANES. */
static void gate(const uint16_t *x, int64_t size, uint16_t *y) {
    for (int64_t i = 0; i < size; i += LANES) {
        Floats g = widened((const uint8_t *)(x + i)), up = widened((const uint8_t *)(x + size + i));
        Floats small = exponential((Floats)((Ints)g | (int32_t)0x80000000)); /* exp(−|g|) */
        Ints positive = g >= 0.0f;
        Floats above = (Floats)(((Ints)((Floats){0} + 1.0f) & positive) | ((Ints)small & ~positive));
        Floats result = g * above / (small + 1.0f) * up;
        for (int j = 0; j < LANES; j++) y[i + j] = to_bfloat16(result[j]);
    }
}

static void add(uint16_t *x, const uint16_t *more, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        x[i] = to_bfloat16(from_bfloat16(x[i]) + from_bfloat16(more[i]));
}

/* Runs a decoder block on a chain of rows x [rows, inputs], in place, whose keys and values become
   the entries `start` and following of keys and values [kv_heads, capacity, size]. cos and sin
   [rows, size] are those of `Transformer.rotary`. Returns 1 if there is no memory. */
int decode(const Block *b, uint16_t *x, int64_t rows, const uint16_t *cos, const uint16_t *sin,
           uint16_t *keys, uint16_t *values, int64_t capacity, int64_t start, const Team *team) {
    int64_t d = b->qkv.inputs, size = b->size, width = b->heads * size, m = b->down.inputs;
    int64_t widest = m > width ? (m > d ? m : d) : (width > d ? width : d);
    int64_t room = start + rows + LANES;
    int64_t wide = b->qkv.outputs + b->gate_up.outputs; /* of which each has at least d */
    float *groups = malloc(rows * (4 * widest + 4 * width + 4 * b->heads * room
                                   + 2 * (widest + wide)));
    if (!groups) return 1;
    float *q = groups + rows * widest, *scores = q + rows * width;
    uint16_t *narrow = (uint16_t *)(scores + rows * b->heads * room), *broad = narrow + rows * widest;
    const uint16_t *from = x;
    if (b->norm1) {
        for (int64_t r = 0; r < rows; r++) norm(x + r * d, b->norm1, b->eps, d, narrow + r * d);
        from = narrow;
    }
    product(b->qkv, from, rows, broad, groups, *team);
    for (int64_t r = 0; r < rows; r++) {
        int64_t entry = (start + r) * size;
        rotate(b, broad + r * b->qkv.outputs, cos + r * size, sin + r * size, q + r * width,
               keys + entry, values + entry, capacity);
    }
    Attention attention = {b, q, scores, keys, values, narrow, capacity, start, room};
    run(start > 256 ? *team : (Team){1, NULL}, head_of_row, &attention, rows * b->heads);
    product(b->out, narrow, rows, broad, groups, *team);
    add(x, broad, rows * d);
    for (int64_t r = 0; r < rows; r++) norm(x + r * d, b->norm2, b->eps, d, narrow + r * d);
    product(b->gate_up, narrow, rows, broad, groups, *team);
    for (int64_t r = 0; r < rows; r++) gate(broad + r * 2 * m, m, narrow + r * m);
    product(b->down, narrow, rows, broad, groups, *team);
    add(x, broad, rows * d);
    free(groups);
    return 0;
}
