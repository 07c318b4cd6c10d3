// The loops that take nearly all of a pass's time, for one thread with 128-bit SIMD. The book's build compiles them to
// WebAssembly twice: with fused multiply-add ("relaxed" SIMD), and without it for browsers that lack it. Pointers are byte
// offsets into the imported memory; numbers are float32 unless stated otherwise. scalar.js does the same in plain JavaScript.

const LOG2E: f32 = 1.44269504, LN2_HIGH: f32 = 0.693359375, LN2_LOW: f32 = -2.12194440e-4;

// @ts-ignore: decorator
@inline function fused(a: v128, b: v128, sum: v128): v128 {
  return ASC_FEATURE_RELAXED_SIMD ? f32x4.relaxed_madd(a, b, sum) : f32x4.add(f32x4.mul(a, b), sum);
}

// @ts-ignore: decorator
@inline function low(eight: v128): v128 { return f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(eight)); }

// @ts-ignore: decorator
@inline function high(eight: v128): v128 { return f32x4.convert_i32x4_s(i32x4.extend_high_i16x8_s(eight)); }

// Matrices. w [outer, inner] is stored in panels of eight rows: first the eight weights that multiply x[0], then those that
// multiply x[1], and so on. Each weight is loaded once for all rows of x. The sums stay in registers. With more sums an
// addition waits less for the previous one; twelve sums fit, so 1 to 3 rows use two panels and 4 to 6 rows use one.

// @ts-ignore: decorator
@inline function put(y: usize, scales: usize, first: v128, second: v128): void {
  v128.store(y, f32x4.mul(first, v128.load(scales)));
  v128.store(y, f32x4.mul(second, v128.load(scales, 16)), 16);
}

/** Multiplies 1 to 3 rows of x, two panels at a time, and computes `count` columns of y [rows, outer]. `rows` and `small` are
 *  constants where this is inlined, so the compiler removes the tests of them. */
// @ts-ignore: decorator
@inline function wide(rows: i32, small: bool, x: usize, w: usize, scales: usize, y: usize, inner: i32, outer: i32, count: i32): void {
  const pitch = <usize>inner << 2, line = <usize>outer << 2, step: usize = small ? 8 : 32, panel = <usize>inner * step, pitch2 = pitch * 2;
  for (const stop = y + (<usize>count << 2); y < stop; y += 64, scales += 64, w += panel) {
    let a = f32x4.splat(0), b = a, c = a, d = a, e = a, f = a, g = a, h = a, i = a, j = a, k = a, l = a, s = a, t = a, eight = a;
    for (let from = x, end = x + pitch; from < end; from += 4, w += step) {
      const r = v128.load32_splat(from);
      if (rows > 1) s = v128.load32_splat(from + pitch);
      if (rows > 2) t = v128.load32_splat(from + pitch2);
      if (small) eight = v128.load8x8_s(w);
      let v = small ? low(eight) : v128.load(w);
      a = fused(r, v, a);
      if (rows > 1) e = fused(s, v, e);
      if (rows > 2) i = fused(t, v, i);
      v = small ? high(eight) : v128.load(w, 16);
      b = fused(r, v, b);
      if (rows > 1) f = fused(s, v, f);
      if (rows > 2) j = fused(t, v, j);
      if (small) eight = v128.load8x8_s(w + panel);
      v = small ? low(eight) : v128.load(w + panel);
      c = fused(r, v, c);
      if (rows > 1) g = fused(s, v, g);
      if (rows > 2) k = fused(t, v, k);
      v = small ? high(eight) : v128.load(w + panel, 16);
      d = fused(r, v, d);
      if (rows > 1) h = fused(s, v, h);
      if (rows > 2) l = fused(t, v, l);
    }
    put(y, scales, a, b); put(y + 32, scales + 32, c, d);
    if (rows > 1) { put(y + line, scales, e, f); put(y + line + 32, scales + 32, g, h); }
    if (rows > 2) { put(y + 2 * line, scales, i, j); put(y + 2 * line + 32, scales + 32, k, l); }
  }
}

/** Multiplies 4 to 6 rows of x, one panel at a time; the arguments are those of `wide`. */
// @ts-ignore: decorator
@inline function tall(rows: i32, small: bool, x: usize, w: usize, scales: usize, y: usize, inner: i32, outer: i32, count: i32): void {
  const pitch = <usize>inner << 2, line = <usize>outer << 2, step: usize = small ? 8 : 32;
  const pitch2 = pitch * 2, pitch3 = pitch * 3, pitch4 = pitch * 4, pitch5 = pitch * 5;
  for (const stop = y + (<usize>count << 2); y < stop; y += 32, scales += 32) {
    let a = f32x4.splat(0), b = a, c = a, d = a, e = a, f = a, g = a, h = a, i = a, j = a, k = a, l = a, eight = a;
    for (let from = x, end = x + pitch; from < end; from += 4, w += step) {
      if (small) eight = v128.load8x8_s(w);
      const u = small ? low(eight) : v128.load(w), v = small ? high(eight) : v128.load(w, 16);
      let t = v128.load32_splat(from);
      a = fused(t, u, a); b = fused(t, v, b);
      t = v128.load32_splat(from + pitch);
      c = fused(t, u, c); d = fused(t, v, d);
      t = v128.load32_splat(from + pitch2);
      e = fused(t, u, e); f = fused(t, v, f);
      t = v128.load32_splat(from + pitch3);
      g = fused(t, u, g); h = fused(t, v, h);
      if (rows > 4) {
        t = v128.load32_splat(from + pitch4);
        i = fused(t, u, i); j = fused(t, v, j);
      }
      if (rows > 5) {
        t = v128.load32_splat(from + pitch5);
        k = fused(t, u, k); l = fused(t, v, l);
      }
    }
    put(y, scales, a, b); put(y + line, scales, c, d); put(y + 2 * line, scales, e, f); put(y + 3 * line, scales, g, h);
    if (rows > 4) put(y + 4 * line, scales, i, j);
    if (rows > 5) put(y + 5 * line, scales, k, l);
  }
}

// `count` columns of y [rows, outer] = x [rows, inner] · wᵀ, each times its scale, for 1 to 6 rows. w: integers, stored as float32
// or as int8. count is a multiple of 16. They are functions of their own: inlined together into one large function, the compiler
// runs out of registers for their loops.
export function float1(x: usize, w: usize, scales: usize, y: usize, inner: i32, outer: i32, count: i32): void { wide(1, false, x, w, scales, y, inner, outer, count); }
export function float2(x: usize, w: usize, scales: usize, y: usize, inner: i32, outer: i32, count: i32): void { wide(2, false, x, w, scales, y, inner, outer, count); }
export function float3(x: usize, w: usize, scales: usize, y: usize, inner: i32, outer: i32, count: i32): void { wide(3, false, x, w, scales, y, inner, outer, count); }
export function float4(x: usize, w: usize, scales: usize, y: usize, inner: i32, outer: i32, count: i32): void { tall(4, false, x, w, scales, y, inner, outer, count); }
export function float5(x: usize, w: usize, scales: usize, y: usize, inner: i32, outer: i32, count: i32): void { tall(5, false, x, w, scales, y, inner, outer, count); }
export function float6(x: usize, w: usize, scales: usize, y: usize, inner: i32, outer: i32, count: i32): void { tall(6, false, x, w, scales, y, inner, outer, count); }
export function int1(x: usize, w: usize, scales: usize, y: usize, inner: i32, outer: i32, count: i32): void { wide(1, true, x, w, scales, y, inner, outer, count); }
export function int2(x: usize, w: usize, scales: usize, y: usize, inner: i32, outer: i32, count: i32): void { wide(2, true, x, w, scales, y, inner, outer, count); }
export function int3(x: usize, w: usize, scales: usize, y: usize, inner: i32, outer: i32, count: i32): void { wide(3, true, x, w, scales, y, inner, outer, count); }
export function int4(x: usize, w: usize, scales: usize, y: usize, inner: i32, outer: i32, count: i32): void { tall(4, true, x, w, scales, y, inner, outer, count); }
export function int5(x: usize, w: usize, scales: usize, y: usize, inner: i32, outer: i32, count: i32): void { tall(5, true, x, w, scales, y, inner, outer, count); }
export function int6(x: usize, w: usize, scales: usize, y: usize, inner: i32, outer: i32, count: i32): void { tall(6, true, x, w, scales, y, inner, outer, count); }

// Matrices whose weights share a scale in groups of 32 columns, as GGUF's Q4_1 (4 bits) and Q8_0 (8 bits) store them. A panel of
// eight rows has one block per group: eight scales, for 4 bits eight minima, both in half precision, then 256 integers. Four-bit
// integers are stored in vectors of four columns: the low halves of the bytes are the first two columns, the high halves the
// other two. Two panels are unpacked to float32 and then multiplied with all rows of x, so the rows share the unpacking.

const GROUP = 32;

/** Returns four half-precision numbers as float32: the bits are moved into place, and the factor 2¹¹² corrects the exponent. */
// @ts-ignore: decorator
@inline function halves(bits: v128): v128 {
  const magnitude = i32x4.shl(v128.and(bits, i32x4.splat(0x7fff)), 13), sign = i32x4.shl(v128.and(bits, i32x4.splat(0x8000)), 16);
  return v128.or(f32x4.mul(magnitude, f32x4.splat(reinterpret<f32>(0x77800000))), sign);
}

/** Writes the eight weights integer · scale + minimum of one column. `eight` contains the integers as 16-bit numbers. */
// @ts-ignore: decorator
@inline function column(to: usize, eight: v128, scale1: v128, scale2: v128, least1: v128, least2: v128): void {
  v128.store(to, f32x4.add(f32x4.mul(low(eight), scale1), least1));
  v128.store(to, f32x4.add(f32x4.mul(high(eight), scale2), least2), 16);
}

/** Unpacks one block of 256 weights to float32, [32 columns, 8 rows]. Returns the address after the block. */
// @ts-ignore: decorator
@inline function unpack(bits: i32, from: usize, to: usize): usize {
  let h = v128.load(from);
  const scale1 = halves(i32x4.extend_low_i16x8_u(h)), scale2 = halves(i32x4.extend_high_i16x8_u(h));
  from += 16;
  if (bits == 8) {
    for (const end = from + 256; from < end; from += 8, to += 32) {
      const eight = v128.load8x8_s(from);
      v128.store(to, f32x4.mul(low(eight), scale1));
      v128.store(to, f32x4.mul(high(eight), scale2), 16);
    }
    return from;
  }
  h = v128.load(from);
  const least1 = halves(i32x4.extend_low_i16x8_u(h)), least2 = halves(i32x4.extend_high_i16x8_u(h));
  from += 16;
  for (const end = from + 128; from < end; from += 16, to += 128) {
    const v = v128.load(from), first = v128.and(v, i8x16.splat(15)), other = i8x16.shr_u(v, 4);
    column(to, i16x8.extend_low_i8x16_u(first), scale1, scale2, least1, least2);
    column(to + 32, i16x8.extend_high_i8x16_u(first), scale1, scale2, least1, least2);
    column(to + 64, i16x8.extend_low_i8x16_u(other), scale1, scale2, least1, least2);
    column(to + 96, i16x8.extend_high_i8x16_u(other), scale1, scale2, least1, least2);
  }
  return from;
}

/** Multiplies 3 or 4 rows of x with one unpacked panel [inner, 8] and writes eight columns of y. With more than eight sums, the
 *  sums do not stay in registers. */
// @ts-ignore: decorator
@inline function narrow(rows: i32, x: usize, w: usize, y: usize, inner: i32, outer: i32): void {
  const pitch = <usize>inner << 2, line = <usize>outer << 2, pitch2 = pitch * 2, pitch3 = pitch * 3;
  let a = f32x4.splat(0), b = a, c = a, d = a, e = a, f = a, g = a, h = a;
  for (let end = x + pitch; x < end; x += 4, w += 32) {
    const u = v128.load(w), v = v128.load(w, 16);
    let t = v128.load32_splat(x);
    a = fused(t, u, a); b = fused(t, v, b);
    t = v128.load32_splat(x + pitch);
    c = fused(t, u, c); d = fused(t, v, d);
    t = v128.load32_splat(x + pitch2);
    e = fused(t, u, e); f = fused(t, v, f);
    if (rows > 3) {
      t = v128.load32_splat(x + pitch3);
      g = fused(t, u, g); h = fused(t, v, h);
    }
  }
  v128.store(y, a); v128.store(y, b, 16);
  v128.store(y + line, c); v128.store(y + line, d, 16);
  v128.store(y + 2 * line, e); v128.store(y + 2 * line, f, 16);
  if (rows > 3) { v128.store(y + 3 * line, g); v128.store(y + 3 * line, h, 16); }
}

function narrow3(x: usize, w: usize, y: usize, inner: i32, outer: i32): void { narrow(3, x, w, y, inner, outer); }
function narrow4(x: usize, w: usize, y: usize, inner: i32, outer: i32): void { narrow(4, x, w, y, inner, outer); }

/** Multiplies 1 to 4 rows of x with two unpacked panels and writes 16 columns of y. */
function panels(rows: i32, x: usize, w: usize, ones: usize, y: usize, inner: i32, outer: i32): void {
  const next = w + (<usize>inner << 5);
  if (rows == 1) float1(x, w, ones, y, inner, outer, 16);
  else if (rows == 2) float2(x, w, ones, y, inner, outer, 16);
  else if (rows == 3) { narrow3(x, w, y, inner, outer); narrow3(x, next, y + 32, inner, outer); }
  else { narrow4(x, w, y, inner, outer); narrow4(x, next, y + 32, inner, outer); }
}

/** Computes `count` columns of y [rows, outer] = x [rows, inner] · wᵀ for 1 to 8 rows and a matrix in groups. w: address of the
 *  first of these columns' panels; ones: sixteen times 1; unpacked: memory for 16 · inner floats. inner is a multiple of 32, count
 *  one of 16. */
// @ts-ignore: decorator
@inline function grouped(bits: i32, rows: i32, x: usize, w: usize, ones: usize, unpacked: usize, y: usize, inner: i32, outer: i32, count: i32): void {
  const first = rows > 4 ? (rows + 1) >> 1 : rows, rest = rows - first;
  const other = x + ((<usize>first * inner) << 2), below = (<usize>first * outer) << 2;
  for (const end = y + (<usize>count << 2); y < end; y += 64) {
    const stop = unpacked + (<usize>inner << 6);
    for (let to = unpacked; to < stop; to += GROUP * 32) w = unpack(bits, w, to);
    panels(first, x, unpacked, ones, y, inner, outer);
    if (rest) panels(rest, other, unpacked, ones, y + below, inner, outer);
  }
}

export function grouped4(rows: i32, x: usize, w: usize, ones: usize, unpacked: usize, y: usize, inner: i32, outer: i32, count: i32): void { grouped(4, rows, x, w, ones, unpacked, y, inner, outer, count); }
export function grouped8(rows: i32, x: usize, w: usize, ones: usize, unpacked: usize, y: usize, inner: i32, outer: i32, count: i32): void { grouped(8, rows, x, w, ones, unpacked, y, inner, outer, count); }

// The rest of a layer. Sizes are multiples of 4, a head's of 16.

/** Returns exp of four numbers with a relative error of about 1e-7: 2ⁿ times a polynomial of the remainder, with the
 *  coefficients of the Cephes library's expf. Below -60 it returns e⁻⁶⁰: negligible beside 1, but large enough that no later
 *  product becomes a denormal number, with which processors are a hundred times slower. */
function exp(x: v128): v128 {
  x = f32x4.max(f32x4.min(x, f32x4.splat(60)), f32x4.splat(-60));
  const n = f32x4.nearest(f32x4.mul(x, f32x4.splat(LOG2E)));
  const r = f32x4.sub(f32x4.sub(x, f32x4.mul(n, f32x4.splat(LN2_HIGH))), f32x4.mul(n, f32x4.splat(LN2_LOW)));
  let p = fused(f32x4.splat(1.9875691500e-4), r, f32x4.splat(1.3981999507e-3));
  p = fused(p, r, f32x4.splat(8.3334519073e-3));
  p = fused(p, r, f32x4.splat(4.1665795894e-2));
  p = fused(p, r, f32x4.splat(1.6666665459e-1));
  p = fused(p, r, f32x4.splat(5.0000001201e-1));
  p = f32x4.add(fused(f32x4.mul(p, r), r, r), f32x4.splat(1));
  return f32x4.mul(p, i32x4.shl(i32x4.add(i32x4.trunc_sat_f32x4_s(n), i32x4.splat(127)), 23));
}

/** Returns the sums of the lanes of four vectors. */
function totals(a: v128, b: v128, c: v128, d: v128): v128 {
  const ab = f32x4.add(v128.shuffle<f32>(a, b, 0, 4, 1, 5), v128.shuffle<f32>(a, b, 2, 6, 3, 7));
  const cd = f32x4.add(v128.shuffle<f32>(c, d, 0, 4, 1, 5), v128.shuffle<f32>(c, d, 2, 6, 3, 7));
  return f32x4.add(v128.shuffle<f32>(ab, cd, 0, 1, 4, 5), v128.shuffle<f32>(ab, cd, 2, 3, 6, 7));
}

// @ts-ignore: decorator
@inline function total(v: v128): f32 {
  return f32x4.extract_lane(v, 0) + f32x4.extract_lane(v, 1) + f32x4.extract_lane(v, 2) + f32x4.extract_lane(v, 3);
}

/** Computes y = x / rms(x) · weight for each row. */
export function normalise(x: usize, weight: usize, y: usize, rows: i32, size: i32, eps: f32): void {
  const pitch = <usize>size << 2;
  for (; rows > 0; rows--, x += pitch, y += pitch) {
    let squares = f32x4.splat(0);
    for (let at: usize = 0; at < pitch; at += 16) {
      const v = v128.load(x + at);
      squares = fused(v, v, squares);
    }
    const scale = f32x4.splat(<f32>1 / sqrt<f32>(total(squares) / <f32>size + eps));
    for (let at: usize = 0; at < pitch; at += 16) v128.store(y + at, f32x4.mul(f32x4.mul(v128.load(x + at), scale), v128.load(weight + at)));
  }
}

/** Computes x += y for `count` numbers. */
export function add(x: usize, y: usize, count: i32): void {
  for (const end = x + (<usize>count << 2); x < end; x += 16, y += 16) v128.store(x, f32x4.add(v128.load(x), v128.load(y)));
}

/** Computes y [rows, size] = silu(gate) · up from x [rows, gate and up]. */
export function gate(x: usize, y: usize, rows: i32, size: i32): void {
  const pitch = <usize>size << 2;
  for (; rows > 0; rows--, x += pitch) {
    for (const end = x + pitch; x < end; x += 16, y += 16) {
      const g = v128.load(x), up = v128.load(x + pitch);
      v128.store(y, f32x4.mul(f32x4.div(g, f32x4.add(f32x4.splat(1), exp(f32x4.neg(g)))), up));
    }
  }
}

/** Applies the rotary embedding to `heads` consecutive heads, with one position's cos and sin [size / 2] (halves, not pairs). */
export function turn(x: usize, cos: usize, sin: usize, heads: i32, size: i32): void {
  const half = <usize>size << 1;
  for (; heads > 0; heads--, x += half) {
    for (let at: usize = 0; at < half; at += 16, x += 16) {
      const first = v128.load(x), second = v128.load(x + half), c = v128.load(cos + at), s = v128.load(sin + at);
      v128.store(x, f32x4.sub(f32x4.mul(first, c), f32x4.mul(second, s)));
      v128.store(x + half, f32x4.add(f32x4.mul(second, c), f32x4.mul(first, s)));
    }
  }
}

/** Copies `heads` consecutive heads to addresses that are `pitch` bytes apart. */
export function spread(from: usize, to: usize, heads: i32, size: i32, pitch: usize): void {
  const bytes = <usize>size << 2;
  for (; heads > 0; heads--, from += bytes, to += pitch) memory.copy(to, from, bytes);
}

/** Computes out [size] = softmax(q · keysᵀ / √size) · values for one query of one head. keys, values [count, size], allocated
 *  up to a multiple of four rows; scores: memory for the same number of floats. */
export function attend(q: usize, keys: usize, values: usize, out: usize, scores: usize, count: i32, size: i32): void {
  const pitch = <usize>size << 2, bytes = <usize>count << 2, scale = f32x4.splat(<f32>1 / sqrt<f32>(<f32>size));
  for (let i: usize = 0; i < bytes; i += 16, keys += 4 * pitch) {
    let a = f32x4.splat(0), b = a, c = a, d = a;
    for (let at: usize = 0, key = keys; at < pitch; at += 16, key += 16) {
      const v = v128.load(q + at);
      a = fused(v, v128.load(key), a);
      b = fused(v, v128.load(key + pitch), b);
      c = fused(v, v128.load(key + 2 * pitch), c);
      d = fused(v, v128.load(key + 3 * pitch), d);
    }
    v128.store(scores + i, f32x4.mul(totals(a, b, c, d), scale));
  }
  const whole = (bytes + 15) & ~15;
  for (let i = bytes; i < whole; i += 4) f32.store(scores + i, -f32.MAX_VALUE); // keys that do not exist
  let most = v128.load(scores), mass = f32x4.splat(0);
  for (let i: usize = 16; i < whole; i += 16) most = f32x4.max(most, v128.load(scores + i));
  most = f32x4.max(most, v128.shuffle<f32>(most, most, 2, 3, 0, 1));
  most = f32x4.max(most, v128.shuffle<f32>(most, most, 1, 0, 3, 2));
  for (let i: usize = 0; i < whole; i += 16) {
    const weights = exp(f32x4.sub(v128.load(scores + i), most));
    v128.store(scores + i, weights);
    mass = f32x4.add(mass, weights);
  }
  const share = f32x4.splat(<f32>1 / total(mass));
  for (let at: usize = 0; at < pitch; at += 64) {
    let a = f32x4.splat(0), b = a, c = a, d = a;
    for (let i: usize = 0, value = values + at; i < bytes; i += 4, value += pitch) {
      const weight = v128.load32_splat(scores + i);
      a = fused(weight, v128.load(value), a);
      b = fused(weight, v128.load(value, 16), b);
      c = fused(weight, v128.load(value, 32), c);
      d = fused(weight, v128.load(value, 48), d);
    }
    v128.store(out + at, f32x4.mul(a, share));
    v128.store(out + at, f32x4.mul(b, share), 16);
    v128.store(out + at, f32x4.mul(c, share), 32);
    v128.store(out + at, f32x4.mul(d, share), 48);
  }
}
