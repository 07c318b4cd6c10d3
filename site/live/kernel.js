// Memory, and the two loops that take the time: in WebAssembly SIMD (kernel.ts) where the browser has it, else in plain
// JavaScript, which gives the same numbers several times more slowly. Everything lies in one growing memory; an address is
// a byte offset, and a view is made anew at each use, because growing moves the memory.

const PAGE = 65536;
const WIDTH = 16;

/** A kernel: allocate(bytes) → address, floats(address, length), bytes(address, length), matmul, attend; `simd` says which. */
export async function loadKernel(wasm, scalar = false) {
  const memory = new WebAssembly.Memory({ initial: 1 });
  let used = PAGE; // the first page is the compiled module's own
  const kernel = {
    simd: !scalar && WebAssembly.validate(wasm),
    allocate(bytes) {
      const address = used;
      used += Math.ceil(bytes / WIDTH) * WIDTH;
      const missing = used - memory.buffer.byteLength;
      if (missing > 0) memory.grow(Math.ceil(missing / PAGE));
      return address;
    },
    floats: (address, length) => new Float32Array(memory.buffer, address, length),
    bytes: (address, length) => new Int8Array(memory.buffer, address, length),
    size: () => memory.buffer.byteLength,
  };
  if (!kernel.simd) return Object.assign(kernel, scalarLoops(kernel));
  const { instance } = await WebAssembly.instantiate(wasm, { env: { memory } });
  return Object.assign(kernel, { matmul: instance.exports.matmul, attend: instance.exports.attend });
}

/** The loops of kernel.ts in plain JavaScript: the same arguments, the same meaning. */
function scalarLoops({ floats, bytes }) {
  function matmul(x, w, scales, y, rows, inner, outer) {
    const from = floats(x, rows * inner), to = floats(y, rows * outer);
    const matrix = scales ? bytes(w, inner * outer) : floats(w, inner * outer);
    const scale = scales ? floats(scales, outer) : null;
    for (let o = 0; o < outer; o++)
      for (let row = 0; row < rows; row++) {
        let first = 0, second = 0, third = 0, fourth = 0; // four sums, so that none has to wait for the one before
        for (let a = row * inner, b = o * inner, end = a + inner; a < end; a += 4, b += 4) {
          first += from[a] * matrix[b];
          second += from[a + 1] * matrix[b + 1];
          third += from[a + 2] * matrix[b + 2];
          fourth += from[a + 3] * matrix[b + 3];
        }
        const sum = first + second + third + fourth;
        to[row * outer + o] = scale ? sum * scale[o] : sum;
      }
  }

  function attend(q, keys, values, out, scores, count, size) {
    const query = floats(q, size), key = floats(keys, count * size), value = floats(values, count * size);
    const weight = floats(scores, count), result = floats(out, size);
    let largest = -Infinity, mass = 0;
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

  return { matmul, attend };
}
