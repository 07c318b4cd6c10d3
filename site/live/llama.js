// A Llama-family decoder: the same network as specdec_lite/transformer.py, row by row. It imports nothing; its two inner
// loops come from the kernel it is given (kernel.js). Matrices stay int8, each row with its scale, or are widened to
// float32 when they are loaded: the numbers are the same, the bytes that every pass has to read are not.

const CHUNK = 16; // tokens fed at once; a longer prompt goes through in pieces

export class Llama {
  /** config, tensors: one model of the manifest. weights: the downloaded ArrayBuffer. format: "int8" or "float32".
   *  capacity: how many positions the key/value cache holds. */
  constructor(kernel, { config, tensors }, weights, format, capacity) {
    Object.assign(this, { kernel, config, capacity, length: 0 }); // length: positions stored; lowering it forgets the rest
    const load = (name) => this.#load(tensors[name], weights, format);
    this.embedding = load("embedding");
    this.norm = load("norm");
    this.head = config.tied ? this.embedding : load("head");
    const names = ["norm1", "qkv", "out", "norm2", "gate_up", "down"];
    this.blocks = Array.from({ length: config.layers }, (_, i) => Object.fromEntries(names.map((n) => [n, load(`blocks.${i}.${n}`)])));
    const floats = (count) => kernel.allocate(4 * count);
    const { hidden, inner, heads, kvHeads, headSize, layers, vocab } = config;
    this.layerSize = kvHeads * capacity * headSize;
    this.keys = floats(layers * this.layerSize);
    this.values = floats(layers * this.layerSize);
    this.stream = floats(CHUNK * hidden);
    this.normed = floats(CHUNK * Math.max(hidden, inner));
    this.wide = floats(CHUNK * Math.max((heads + 2 * kvHeads) * headSize, 2 * inner));
    this.seen = floats(CHUNK * heads * headSize);
    this.added = floats(CHUNK * hidden);
    this.scores = floats(capacity);
    this.scratch = floats(4 * Math.max(hidden, inner, heads * headSize));
    this.logits = floats(CHUNK * vocab);
    this.#rotary();
  }

  /** Copies one tensor into the kernel's memory. A matrix becomes {at, scales, rows, cols}; scales is 0 for float32. */
  #load({ offset, rows, cols, scales }, weights, format) {
    const { kernel } = this, count = rows * cols;
    if (scales === undefined) {
      const at = kernel.allocate(4 * count);
      kernel.floats(at, count).set(new Float32Array(weights, offset, count));
      return { at, scales: 0, rows, cols };
    }
    const small = new Int8Array(weights, offset, count), scale = new Float32Array(weights, scales, rows);
    if (format === "int8") {
      const at = kernel.allocate(count), scaleAt = kernel.allocate(4 * rows);
      kernel.bytes(at, count).set(small);
      kernel.floats(scaleAt, rows).set(scale);
      return { at, scales: scaleAt, rows, cols };
    }
    const at = kernel.allocate(4 * count), wide = kernel.floats(at, count);
    for (let row = 0, i = 0; row < rows; row++) for (let col = 0; col < cols; col++, i++) wide[i] = small[i] * scale[row];
    return { at, scales: 0, rows, cols };
  }

  /** cos and sin of every position's angles, [capacity, headSize / 2]. */
  #rotary() {
    const { headSize, theta } = this.config, half = headSize / 2;
    this.cos = new Float32Array(this.capacity * half);
    this.sin = new Float32Array(this.capacity * half);
    for (let j = 0; j < half; j++) {
      const frequency = Math.fround(1 / Math.fround(theta ** (2 * j / headSize)));
      for (let position = 0; position < this.capacity; position++) {
        const angle = Math.fround(position * frequency);
        this.cos[position * half + j] = Math.cos(angle);
        this.sin[position * half + j] = Math.sin(angle);
      }
    }
  }

  /** Feeds token ids after the `length` stored positions, stores their keys and values, and returns their logits: one
   *  Float32Array [V] per token, or only the last one's with `last`. A row is valid until the next pass. */
  forward(tokens, last = false) {
    if (this.length + tokens.length > this.capacity) throw new RangeError(`the cache holds ${this.capacity} positions`);
    const rows = [];
    for (let start = 0; start < tokens.length; start += CHUNK) {
      const chunk = tokens.slice(start, start + CHUNK), ends = start + chunk.length === tokens.length;
      this.#embed(chunk);
      this.blocks.forEach((block, layer) => this.#block(block, layer, chunk.length));
      this.length += chunk.length;
      if (ends || !last) rows.push(...this.#score(chunk.length, last, tokens.length > CHUNK));
    }
    return rows;
  }

  #multiply(x, matrix, y, rows) {
    this.kernel.matmul(x, matrix.at, matrix.scales, y, rows, matrix.cols, matrix.rows, this.scratch);
  }

  #embed(tokens) {
    const { kernel, embedding: { at, scales, rows, cols } } = this;
    const stream = kernel.floats(this.stream, tokens.length * cols);
    const matrix = scales ? kernel.bytes(at, rows * cols) : kernel.floats(at, rows * cols);
    tokens.forEach((token, row) => {
      const scale = scales ? kernel.floats(scales, rows)[token] : 1;
      for (let i = 0; i < cols; i++) stream[row * cols + i] = matrix[token * cols + i] * scale;
    });
  }

  /** One layer: attention, then a gated MLP, each added to the residual stream. */
  #block(block, layer, n) {
    this.#normalise(block.norm1, n);
    this.#multiply(this.normed, block.qkv, this.wide, n);
    this.#attention(layer, n);
    this.#multiply(this.seen, block.out, this.added, n);
    this.#add(n);
    this.#normalise(block.norm2, n);
    this.#multiply(this.normed, block.gate_up, this.wide, n);
    this.#gate(n);
    this.#multiply(this.normed, block.down, this.added, n);
    this.#add(n);
  }

  /** normed = stream / rms(stream) · weight, row by row. */
  #normalise(norm, n) {
    const { kernel, config: { hidden, eps } } = this;
    const x = kernel.floats(this.stream, n * hidden), y = kernel.floats(this.normed, n * hidden), weight = kernel.floats(norm.at, hidden);
    for (let from = 0; from < n * hidden; from += hidden) {
      let squares = 0;
      for (let i = from; i < from + hidden; i++) squares += x[i] * x[i];
      const scale = 1 / Math.sqrt(squares / hidden + eps);
      for (let i = 0; i < hidden; i++) y[from + i] = x[from + i] * scale * weight[i];
    }
  }

  /** Turns queries and keys by their positions, stores keys and values, and lets every token see what is stored up to it. */
  #attention(layer, n) {
    const { kernel, config: { heads, kvHeads, headSize }, capacity } = this;
    const width = (heads + 2 * kvHeads) * headSize, keysAt = this.keys + 4 * layer * this.layerSize, valuesAt = this.values + 4 * layer * this.layerSize;
    const qkv = kernel.floats(this.wide, n * width), keys = kernel.floats(keysAt, this.layerSize), values = kernel.floats(valuesAt, this.layerSize);
    for (let row = 0, base = 0; row < n; row++, base += width) {
      const position = this.length + row;
      for (let head = 0; head < heads + kvHeads; head++) this.#turn(qkv, base + head * headSize, position);
      for (let head = 0; head < kvHeads; head++) {
        const to = (head * capacity + position) * headSize, key = base + (heads + head) * headSize;
        for (let i = 0; i < headSize; i++) {
          keys[to + i] = qkv[key + i];
          values[to + i] = qkv[key + kvHeads * headSize + i];
        }
      }
      for (let head = 0; head < heads; head++) {
        const from = 4 * Math.floor(head * kvHeads / heads) * capacity * headSize, to = this.seen + 4 * (row * heads + head) * headSize;
        kernel.attend(this.wide + 4 * (base + head * headSize), keysAt + from, valuesAt + from, to, this.scores, position + 1, headSize);
      }
    }
  }

  /** Rotary position embedding of one head, in the Llama layout (halves, not interleaved pairs). */
  #turn(x, at, position) {
    const half = this.config.headSize / 2;
    for (let i = at, j = position * half; i < at + half; i++, j++) {
      const first = x[i], second = x[i + half], cos = this.cos[j], sin = this.sin[j];
      x[i] = first * cos - second * sin;
      x[i + half] = second * cos + first * sin;
    }
  }

  /** normed = silu(gate) · up, from the two halves of every row of `wide`. */
  #gate(n) {
    const { kernel, config: { inner } } = this;
    const wide = kernel.floats(this.wide, n * 2 * inner), y = kernel.floats(this.normed, n * inner);
    for (let row = 0; row < n; row++)
      for (let i = 0, from = 2 * row * inner, to = row * inner; i < inner; i++) {
        const gate = wide[from + i];
        y[to + i] = gate / (1 + Math.exp(-gate)) * wide[from + inner + i];
      }
  }

  #add(n) {
    const { kernel, config: { hidden } } = this;
    const stream = kernel.floats(this.stream, n * hidden), added = kernel.floats(this.added, n * hidden);
    for (let i = 0; i < n * hidden; i++) stream[i] += added[i];
  }

  /** The final norm and the head. Rows are copied where another chunk would overwrite them. */
  #score(n, last, copy) {
    const { kernel, config: { hidden, vocab } } = this;
    this.#normalise(this.norm, n);
    const first = last ? n - 1 : 0;
    this.#multiply(this.normed + 4 * first * hidden, this.head, this.logits, n - first);
    const row = (i) => kernel.floats(this.logits + 4 * i * vocab, vocab);
    return Array.from({ length: n - first }, (_, i) => (copy ? row(i).slice() : row(i)));
  }
}
