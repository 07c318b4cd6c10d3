// A Llama-family decoder: the same network as specdec_lite/engine/transformer.py. The kernel (kernel.js),
// passed as an argument, does the arithmetic. A weight is an integer times the scale of its row.
// The integers are stored as int8, or as float32 after loading: the arithmetic is the same, but a pass reads a
// different number of bytes. A matrix is stored in panels of LANES rows: weight i of row r at
// (⌊r/LANES⌋, i, r mod LANES). A matrix in groups has one scale for every GROUP columns of a row instead, and for 4
// bits a minimum; kernel.ts describes its blocks.

import { showLife } from "./failure.js";
import { halves } from "./scalar.js";

export const CHUNK = 18; // tokens per pass; a longer prompt is fed in several passes
export const LANES = 8;
const GROUP = 32;
const BLOCK = { 4: 160, 8: 272 }; // bytes of a block of GROUP columns of LANES rows, by the bits of an integer

export class Llama {
  /** config, tensors: one model of the manifest. weights: the downloaded ArrayBuffer, or the address in the kernel's
   *  memory to which the file was copied. format: "int8" or "float32", for matrices with one scale per row.
   *  capacity: number of positions in the key/value cache, a multiple of 4. */
  constructor(kernel, { config, tensors }, weights, format, capacity) {
    // length: number of stored positions; a smaller value discards the rest
    Object.assign(this, { kernel, config, capacity, length: 0 });
    const load = (name) => tensors[name] && this.#load(tensors[name], weights, format === "int8");
    this.embedding = load("embedding");
    this.norm = load("norm");
    this.head = config.tied ? this.embedding : load("head");
    this.onStates = null; // if set: called with (address, first position, rows) of the states after the final norm
    const names = ["norm1", "qkv", "out", "norm2", "gate_up", "down"];
    this.blocks = Array.from({ length: config.layers }, (_, i) =>
      Object.fromEntries(names.map((n) => [n, load(`blocks.${i}.${n}`)])),
    );
    const floats = (count) => kernel.allocate(4 * count);
    const { hidden, inner, heads, kvHeads, headSize, layers, vocab } = config;
    this.headBytes = 4 * capacity * headSize; // of one head's keys or values
    this.keys = floats(layers * kvHeads * capacity * headSize);
    this.values = floats(layers * kvHeads * capacity * headSize);
    this.cos = floats((capacity * headSize) / 2);
    this.sin = floats((capacity * headSize) / 2);
    this.stream = floats(CHUNK * hidden);
    this.normed = floats(CHUNK * Math.max(hidden, inner));
    this.wide = floats(CHUNK * Math.max((heads + 2 * kvHeads) * headSize, 2 * inner));
    this.seen = floats(CHUNK * heads * headSize);
    this.added = floats(CHUNK * hidden);
    this.scores = floats(capacity);
    this.logits = floats(CHUNK * vocab);
    this.#rotary();
  }

  /** Copies one tensor into the kernel's memory and returns {at, rows, cols}, for a matrix also {scales, small}.
   *  small: whether it is int8. A tensor that is in the kernel's memory already stays where it is. */
  #load({ offset, rows, cols, scales, bits }, weights, small) {
    const { kernel } = this,
      count = rows * cols;
    if (typeof weights === "number") return { at: weights + offset, rows, cols, bits };
    const copy = (at, numbers) => {
      kernel.floats(at, numbers.length).set(numbers);
      return at;
    };
    if (scales === undefined)
      return { at: copy(kernel.allocate(4 * count), new Float32Array(weights, offset, count)), rows, cols };
    const numbers = new Int8Array(weights, offset, count),
      at = kernel.allocate(small ? count : 4 * count);
    if (small) kernel.bytes(at, count).set(numbers);
    else copy(at, numbers);
    return {
      at,
      rows,
      cols,
      small,
      scales: copy(kernel.allocate(4 * rows), new Float32Array(weights, scales, rows)),
    };
  }

  /** Computes cos and sin of every position's angles, [capacity, headSize / 2]. */
  #rotary() {
    const { kernel, capacity, config } = this,
      { headSize, theta } = config,
      half = headSize / 2;
    const cos = kernel.floats(this.cos, capacity * half),
      sin = kernel.floats(this.sin, capacity * half);
    for (let j = 0; j < half; j++) {
      const frequency = Math.fround(1 / Math.fround(theta ** ((2 * j) / headSize)));
      for (let position = 0; position < capacity; position++) {
        const angle = Math.fround(position * frequency);
        cos[position * half + j] = Math.cos(angle);
        sin[position * half + j] = Math.sin(angle);
      }
    }
  }

  /** Feeds token ids after the `length` stored positions and stores their keys and values. Returns their logits:
   *  one Float32Array [V] per token, or only that of the last token if `last` is true. A row is valid until the
   *  next pass. */
  forward(tokens, last = false) {
    if (this.length + tokens.length > this.capacity)
      throw new RangeError(`the cache holds ${this.capacity} positions`);
    const rows = [];
    for (let start = 0; start < tokens.length; start += CHUNK) {
      const chunk = tokens.slice(start, start + CHUNK),
        ends = start + chunk.length === tokens.length;
      this.embed(chunk, this.stream);
      this.runBlocks(chunk.length);
      if (ends || !last) rows.push(...this.score(chunk.length, last, tokens.length > CHUNK));
      else if (this.onStates) this.#finish(chunk.length);
    }
    return rows;
  }

  /** Runs all blocks on the first n rows of the stream, and stores their keys and values. */
  runBlocks(n) {
    this.blocks.forEach((block, layer) => {
      showLife(); // on a busy machine threads wait for each other, and a pass may take many seconds
      this.#block(block, layer, n);
    });
    this.length += n;
  }

  /** Writes the embeddings of some tokens [n, hidden] to an address. */
  embed(tokens, to) {
    if (this.embedding.bits) return tokens.forEach((token, row) => this.#unpackRow(token, row, to));
    const { kernel, embedding } = this,
      { at, scales, small, rows, cols } = embedding;
    const stream = kernel.floats(to, tokens.length * cols),
      scale = kernel.floats(scales, rows);
    const matrix = small ? kernel.bytes(at, rows * cols) : kernel.floats(at, rows * cols);
    tokens.forEach((token, row) => {
      const lane = token % LANES,
        first = (token - lane) * cols + lane;
      for (let i = 0; i < cols; i++) stream[row * cols + i] = matrix[first + LANES * i] * scale[token];
    });
  }

  /** Writes one embedding of a matrix in groups of 8-bit integers. */
  #unpackRow(token, row, to) {
    const { kernel } = this,
      { at, cols } = this.embedding,
      lane = token % LANES,
      blocks = cols / GROUP,
      out = kernel.floats(to + 4 * row * cols, cols);
    for (let b = 0; b < blocks; b++) {
      const block = at + (((token - lane) / LANES) * blocks + b) * BLOCK[8];
      const [scale] = halves(kernel.bytes(block + 2 * lane, 2)),
        integers = kernel.bytes(block + 2 * LANES, GROUP * LANES);
      for (let i = 0; i < GROUP; i++) out[b * GROUP + i] = integers[i * LANES + lane] * scale;
    }
  }

  /** Multiplies n rows at address x with a matrix, and writes them to address y. */
  multiply(x, { at, scales, small, rows, cols, bits }, y, n) {
    if (bits) this.kernel.grouped(bits, n, x, at, y, cols, rows);
    else this.kernel.matmul(x, at, scales, y, n, cols, rows, small);
  }

  /** Normalizes n rows of the stream; without a norm it copies them. */
  #normalise(norm, n) {
    const { kernel, stream, normed } = this,
      { hidden, eps } = this.config;
    if (norm) kernel.normalise(stream, norm.at, normed, n, hidden, eps);
    else kernel.floats(normed, n * hidden).set(kernel.floats(stream, n * hidden));
  }

  /** Applies the final norm to n rows, and shows the result to `onStates`. */
  #finish(n) {
    this.#normalise(this.norm, n);
    this.onStates?.(this.normed, this.length - n, n);
  }

  /** Computes one layer: attention, then a gated MLP, each added to the residual stream. */
  #block(block, layer, n) {
    const { kernel, config } = this,
      { hidden, inner } = config;
    this.#normalise(block.norm1, n);
    this.multiply(this.normed, block.qkv, this.wide, n);
    this.#attention(layer, n);
    this.multiply(this.seen, block.out, this.added, n);
    kernel.add(this.stream, this.added, n * hidden);
    this.#normalise(block.norm2, n);
    this.multiply(this.normed, block.gate_up, this.wide, n);
    kernel.gate(this.wide, this.normed, n, inner);
    this.multiply(this.normed, block.down, this.added, n);
    kernel.add(this.stream, this.added, n * hidden);
  }

  /** Rotates queries and keys by their positions, stores keys and values, and lets every token attend to all
   *  positions up to its own. */
  #attention(layer, n) {
    const { kernel, headBytes, config } = this,
      { heads, kvHeads, headSize } = config;
    const head = 4 * headSize,
      line = (heads + 2 * kvHeads) * head,
      start = layer * kvHeads * headBytes; // all in bytes
    for (let row = 0; row < n; row++) {
      const position = this.length + row,
        angles = (position * head) / 2,
        to = start + position * head;
      const queries = this.wide + row * line,
        keys = queries + heads * head,
        values = keys + kvHeads * head;
      kernel.turn(queries, this.cos + angles, this.sin + angles, heads + kvHeads, headSize);
      kernel.spread(keys, this.keys + to, kvHeads, headSize, headBytes);
      kernel.spread(values, this.values + to, kvHeads, headSize, headBytes);
    }
    for (let h = 0; h < heads; h++) {
      // all rows of a head before the next head, so that its keys and values stay in the processor's cache
      const shared = start + Math.floor((h * kvHeads) / heads) * headBytes;
      for (let row = 0; row < n; row++)
        kernel.attend(
          this.wide + row * line + h * head,
          this.keys + shared,
          this.values + shared,
          this.seen + (row * heads + h) * head,
          this.scores,
          this.length + row + 1,
          headSize,
        );
    }
  }

  /** Applies the final norm and the head to n rows of the stream. Rows are copied if another chunk would overwrite
   *  them. */
  score(n, last, copy = false) {
    const { kernel, config } = this,
      { hidden, vocab } = config;
    this.#finish(n);
    const first = last ? n - 1 : 0;
    this.multiply(this.normed + 4 * first * hidden, this.head, this.logits, n - first);
    const row = (i) => kernel.floats(this.logits + 4 * i * vocab, vocab);
    return Array.from({ length: n - first }, (_, i) => (copy ? row(i).slice() : row(i)));
  }
}
