// The two loops that take the time, for one thread with 128-bit SIMD. Compiled to WebAssembly when the book is built.
// Pointers are byte offsets into the imported memory. kernel.js holds the same two functions in plain JavaScript.

const WIDTH: usize = 16; // bytes of a vector
const GROUP: i32 = 4; // rows of w that are multiplied together

// @ts-ignore: decorator
@inline function total(v: v128): f32 {
  return f32x4.extract_lane(v, 0) + f32x4.extract_lane(v, 1) + f32x4.extract_lane(v, 2) + f32x4.extract_lane(v, 3);
}

// @ts-ignore: decorator
@inline function fused(sum: v128, x: v128, w: usize): v128 { return f32x4.add(sum, f32x4.mul(x, v128.load(w))); }

/** One row of x against four rows of w. */
function tile1(x: usize, w: usize, y: usize, inner: i32): void {
  const pitch = <usize>inner << 2;
  let a = f32x4.splat(0), b = a, c = a, d = a;
  for (const end = x + pitch; x < end; x += WIDTH, w += WIDTH) {
    const v = v128.load(x);
    a = fused(a, v, w);
    b = fused(b, v, w + pitch);
    c = fused(c, v, w + 2 * pitch);
    d = fused(d, v, w + 3 * pitch);
  }
  f32.store(y, total(a));
  f32.store(y, total(b), 4);
  f32.store(y, total(c), 8);
  f32.store(y, total(d), 12);
}

/** Two rows of x against four rows of w: every vector of w is loaded once for both. */
function tile2(x: usize, w: usize, y: usize, inner: i32, step: usize): void {
  const pitch = <usize>inner << 2;
  let a = f32x4.splat(0), b = a, c = a, d = a, e = a, f = a, g = a, h = a;
  for (const end = x + pitch; x < end; x += WIDTH, w += WIDTH) {
    const first = v128.load(x), second = v128.load(x + pitch);
    let v = v128.load(w);
    a = f32x4.add(a, f32x4.mul(first, v));
    e = f32x4.add(e, f32x4.mul(second, v));
    v = v128.load(w + pitch);
    b = f32x4.add(b, f32x4.mul(first, v));
    f = f32x4.add(f, f32x4.mul(second, v));
    v = v128.load(w + 2 * pitch);
    c = f32x4.add(c, f32x4.mul(first, v));
    g = f32x4.add(g, f32x4.mul(second, v));
    v = v128.load(w + 3 * pitch);
    d = f32x4.add(d, f32x4.mul(first, v));
    h = f32x4.add(h, f32x4.mul(second, v));
  }
  f32.store(y, total(a));
  f32.store(y, total(b), 4);
  f32.store(y, total(c), 8);
  f32.store(y, total(d), 12);
  y += step;
  f32.store(y, total(e));
  f32.store(y, total(f), 4);
  f32.store(y, total(g), 8);
  f32.store(y, total(h), 12);
}

/** Four rows of int8 at `w`, times their scales, as float32 at `into`. */
function widen(w: usize, scales: usize, into: usize, inner: i32): void {
  for (let row = 0; row < GROUP; row++) {
    const scale = f32x4.splat(f32.load(scales + (<usize>row << 2)));
    for (const end = w + <usize>inner; w < end; w += 8, into += 2 * WIDTH) {
      const eight = v128.load8x8_s(w);
      v128.store(into, f32x4.mul(scale, f32x4.convert_i32x4_s(i32x4.extend_low_i16x8_s(eight))));
      v128.store(into, f32x4.mul(scale, f32x4.convert_i32x4_s(i32x4.extend_high_i16x8_s(eight))), WIDTH);
    }
  }
}

/** y [rows, outer] = x [rows, inner] · wᵀ, w [outer, inner]: float32, or int8 where `scales` is not 0 (then `scratch`
 *  has room for four rows in float32). inner is a multiple of 8, outer of 4. */
export function matmul(x: usize, w: usize, scales: usize, y: usize, rows: i32, inner: i32, outer: i32, scratch: usize): void {
  const pitch = <usize>inner << 2, step = <usize>outer << 2;
  for (let o = 0; o < outer; o += GROUP) {
    let group = w + <usize>o * pitch;
    if (scales) {
      widen(w + <usize>o * <usize>inner, scales + (<usize>o << 2), scratch, inner);
      group = scratch;
    }
    let row = 0, from = x, to = y + (<usize>o << 2);
    for (; row + 1 < rows; row += 2, from += 2 * pitch, to += 2 * step) tile2(from, group, to, inner, step);
    if (row < rows) tile1(from, group, to, inner);
  }
}

/** out [size] = softmax(q · keysᵀ / √size) · values for one query of one head; keys, values [count, size], scores [count].
 *  size is a multiple of 16. */
export function attend(q: usize, keys: usize, values: usize, out: usize, scores: usize, count: i32, size: i32): void {
  const pitch = <usize>size << 2, scale: f32 = <f32>1 / sqrt<f32>(<f32>size);
  let largest: f32 = -f32.MAX_VALUE;
  for (let i = 0; i < count; i++, keys += pitch) {
    let a = f32x4.splat(0), b = a;
    for (let at: usize = 0; at < pitch; at += 2 * WIDTH) {
      a = fused(a, v128.load(q + at), keys + at);
      b = fused(b, v128.load(q + at + WIDTH), keys + at + WIDTH);
    }
    const score: f32 = total(f32x4.add(a, b)) * scale;
    f32.store(scores + (<usize>i << 2), score);
    largest = max<f32>(largest, score);
  }
  let mass: f32 = 0;
  for (let i = 0; i < count; i++) {
    const weight = Mathf.exp(f32.load(scores + (<usize>i << 2)) - largest);
    f32.store(scores + (<usize>i << 2), weight);
    mass += weight;
  }
  for (let at: usize = 0; at < pitch; at += 4 * WIDTH) {
    let a = f32x4.splat(0), b = a, c = a, d = a;
    let value = values + at;
    for (let i = 0; i < count; i++, value += pitch) {
      const weight = v128.load32_splat(scores + (<usize>i << 2));
      a = fused(a, weight, value);
      b = fused(b, weight, value + WIDTH);
      c = fused(c, weight, value + 2 * WIDTH);
      d = fused(d, weight, value + 3 * WIDTH);
    }
    const share = f32x4.splat(<f32>1 / mass);
    v128.store(out + at, f32x4.mul(a, share));
    v128.store(out + at, f32x4.mul(b, share), WIDTH);
    v128.store(out + at, f32x4.mul(c, share), 2 * WIDTH);
    v128.store(out + at, f32x4.mul(d, share), 3 * WIDTH);
  }
}
