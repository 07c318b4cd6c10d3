// The loops of kernel.ts in plain JavaScript, for browsers without WebAssembly SIMD: the same functions with the
// same arguments. This module has no imports.

const PANEL = 8; // rows of a matrix that are stored together

/** Returns half-precision numbers, given as bytes, as float32. */
export function halves(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  return Float32Array.from({ length: bytes.length / 2 }, (_, i) => {
    const bits = view.getUint16(2 * i, true),
      exponent = (bits >> 10) & 31,
      fraction = bits & 1023;
    const size = exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24;
    return bits >> 15 ? -size : size;
  });
}

export function scalarLoops({ floats, bytes }) {
  function matmul(x, w, scales, y, rows, inner, outer, small) {
    const from = floats(x, rows * inner),
      to = floats(y, rows * outer),
      scale = floats(scales, outer);
    const matrix = small ? bytes(w, inner * outer) : floats(w, inner * outer);
    for (let o = 0; o < outer; o += PANEL)
      for (let row = 0; row < rows; row++) {
        let a = 0,
          b = 0,
          c = 0,
          d = 0,
          e = 0,
          f = 0,
          g = 0,
          h = 0;
        for (let i = row * inner, at = o * inner, end = i + inner; i < end; i++, at += PANEL) {
          const v = from[i];
          a += v * matrix[at];
          b += v * matrix[at + 1];
          c += v * matrix[at + 2];
          d += v * matrix[at + 3];
          e += v * matrix[at + 4];
          f += v * matrix[at + 5];
          g += v * matrix[at + 6];
          h += v * matrix[at + 7];
        }
        [a, b, c, d, e, f, g, h].forEach((sum, lane) => {
          to[row * outer + o + lane] = sum * scale[o + lane];
        });
      }
  }

  // Unpacks one block of a panel: 32 columns of eight rows, to[column * 8 + row].
  function unpack(bits, from, to) {
    const scale = halves(bytes(from, 16)),
      least = bits === 4 ? halves(bytes(from + 16, 16)) : new Float32Array(PANEL);
    const packed = bytes(from + (bits === 4 ? 32 : 16), 32 * bits);
    for (let i = 0; i < 256; i++) {
      // four bits: a vector of 16 bytes contains columns 4v and 4v + 1 in its low halves, the other two in its high halves
      const byte = packed[bits === 4 ? (i >> 5) * 16 + (i & 15) : i];
      const integer = bits === 8 ? byte : (byte >> (i & 16 ? 4 : 0)) & 15;
      to[i] = Math.fround(Math.fround(integer * scale[i % PANEL]) + least[i % PANEL]);
    }
    return from + (bits === 4 ? 160 : 272);
  }

  function grouped(bits, rows, x, w, y, inner, outer) {
    const from = floats(x, rows * inner),
      to = floats(y, rows * outer),
      panel = new Float32Array(PANEL * inner);
    for (let o = 0; o < outer; o += PANEL) {
      for (let at = 0; at < panel.length; at += 256) w = unpack(bits, w, panel.subarray(at, at + 256));
      for (let row = 0; row < rows; row++)
        for (let lane = 0; lane < PANEL; lane++) {
          let sum = 0;
          for (let i = 0; i < inner; i++) sum += from[row * inner + i] * panel[i * PANEL + lane];
          to[row * outer + o + lane] = sum;
        }
    }
  }

  function normalise(x, weight, y, rows, size, eps) {
    const from = floats(x, rows * size),
      to = floats(y, rows * size),
      by = floats(weight, size);
    for (let start = 0; start < rows * size; start += size) {
      let squares = 0;
      for (let i = start; i < start + size; i++) squares += from[i] * from[i];
      const scale = 1 / Math.sqrt(squares / size + eps);
      for (let i = 0; i < size; i++) to[start + i] = from[start + i] * scale * by[i];
    }
  }

  function add(x, y, count) {
    const to = floats(x, count),
      from = floats(y, count);
    for (let i = 0; i < count; i++) to[i] += from[i];
  }

  function gate(x, y, rows, size) {
    const from = floats(x, 2 * rows * size),
      to = floats(y, rows * size);
    for (let row = 0; row < rows; row++)
      for (let i = 0, at = 2 * row * size; i < size; i++, at++)
        to[row * size + i] = (from[at] / (1 + Math.exp(-from[at]))) * from[at + size];
  }

  function turn(x, cos, sin, heads, size) {
    const half = size / 2,
      from = floats(x, heads * size),
      c = floats(cos, half),
      s = floats(sin, half);
    for (let start = 0; start < heads * size; start += size)
      for (let i = 0; i < half; i++) {
        const first = from[start + i],
          second = from[start + half + i];
        from[start + i] = first * c[i] - second * s[i];
        from[start + half + i] = second * c[i] + first * s[i];
      }
  }

  function spread(from, to, heads, size, pitch) {
    for (let head = 0; head < heads; head++)
      floats(to + head * pitch, size).set(floats(from + 4 * head * size, size));
  }

  function attend(q, keys, values, out, scores, count, size) {
    const query = floats(q, size),
      key = floats(keys, count * size),
      value = floats(values, count * size);
    const weight = floats(scores, count),
      result = floats(out, size);
    let largest = -Infinity,
      mass = 0;
    for (let i = 0; i < count; i++) {
      let score = 0;
      for (let j = 0; j < size; j++) score += query[j] * key[i * size + j];
      weight[i] = score / Math.sqrt(size);
      largest = Math.max(largest, weight[i]);
    }
    for (let i = 0; i < count; i++) mass += weight[i] = Math.exp(weight[i] - largest);
    result.fill(0);
    for (let i = 0; i < count; i++)
      for (let j = 0; j < size; j++) result[j] += (weight[i] / mass) * value[i * size + j];
  }

  return { matmul, grouped, normalise, add, gate, turn, spread, attend };
}
