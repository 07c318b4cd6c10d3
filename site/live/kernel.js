// Memory and the loops of a pass: in WebAssembly SIMD (kernel.ts) if the browser supports it, else in plain
// JavaScript (scalar.js), which gives the same numbers several times more slowly. All data are in one memory that
// can grow. An address is a byte offset. Views are created at each use, because growing moves the memory.

import { scalarLoops } from "./scalar.js";
import { startThreads } from "./threads.js";

const PAGE = 65536;
const WIDTH = 16;
const MAX_ROWS = 6; // rows of x that one loaded weight is multiplied with
const MAX_PAGES = 4096; // of shared memory, which needs a limit: 256 MB
const WIDEST_INNER = 2048; // columns for which a helper thread has scratch memory
const SHARED = 8; // rows of x that share the unpacking of a weight

/** Returns a kernel: allocate(bytes) → address, floats(address, length), bytes(address, length), matmul, grouped
 *  (for matrices in groups) and the loops that kernel.ts exports. compiled: {name: bytes}, the fastest first; the
 *  kernel uses the first one that this browser can run and states its `name`. threads: above 1 only for kernels that
 *  were compiled for shared memory; kernel.threads, 1 or that number, may be set later. */
export async function loadKernel(compiled, threads = 1) {
  const memory = new WebAssembly.Memory(
    threads > 1 ? { initial: 1, maximum: MAX_PAGES, shared: true } : { initial: 1 },
  );
  let used = PAGE; // the first page belongs to the compiled module
  const kernel = {
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
  const name = Object.keys(compiled).find((each) => WebAssembly.validate(compiled[each]));
  if (!name) return { ...kernel, ...scalarLoops(kernel), name: "scalar", simd: false };
  const { module, instance } = await WebAssembly.instantiate(compiled[name], { env: { memory } }),
    { exports } = instance;
  Object.assign(kernel, exports, { matmul: inGroups(exports), name, simd: true, threads });
  const together =
    threads > 1 &&
    (await startThreads(kernel, exports, { module, memory }, threads, 4 * WIDTH * WIDEST_INNER));
  kernel.grouped = unpacking(kernel, exports, together);
  return kernel;
}

/** Returns grouped(bits, rows, x, w, y, inner, outer) for any number of rows; its scratch memory grows with `inner`.
 *  together: multiplies with all threads, if there are several. */
function unpacking(kernel, { grouped4, grouped8 }, together) {
  let ones = 0,
    unpacked = 0,
    widest = 0;
  return (bits, rows, x, w, y, inner, outer) => {
    if (!ones) kernel.floats((ones = kernel.allocate(4 * WIDTH)), WIDTH).fill(1);
    if (inner > widest) unpacked = kernel.allocate(4 * WIDTH * (widest = inner));
    const multiply = bits === 4 ? grouped4 : grouped8;
    for (let row = 0; row < rows; row += SHARED) {
      const some = Math.min(SHARED, rows - row),
        [from, to] = [x + 4 * row * inner, y + 4 * row * outer];
      if (kernel.threads > 1) together(bits, some, from, w, ones, unpacked, to, inner, outer);
      else multiply(some, from, w, ones, unpacked, to, inner, outer, outer);
    }
  };
}

/** Returns matmul(x, w, scales, y, rows, inner, outer, small) for any number of rows, built from the exports for 1
 *  to MAX_ROWS rows. */
function inGroups(exports) {
  const [floats, ints] = ["float", "int"].map((type) =>
    Array.from({ length: MAX_ROWS }, (_, i) => exports[type + (i + 1)]),
  );
  return (x, w, scales, y, rows, inner, outer, small) => {
    for (let row = 0; row < rows; row += MAX_ROWS) {
      const multiply = (small ? ints : floats)[Math.min(MAX_ROWS, rows - row) - 1];
      multiply(x + 4 * row * inner, w, scales, y + 4 * row * outer, inner, outer, outer);
    }
  };
}
