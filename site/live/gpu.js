// The network of llama.js on a graphics processor, by WebGPU. The weights stay in the form of their file, in one buffer;
// another buffer contains everything that a pass writes. A pass is one list of dispatches. Its only result that returns
// is the logits, and for the trained head the states.

import { ReaderError, showLife } from "./failure.js";

const WIDEST = 8; // tokens per pass; a longer prompt is fed in several passes
const GPU_PANEL = 8; // rows of a matrix that one workgroup multiplies
const WORKGROUP = 64; // of a workgroup
export const STOPPED = "The graphics processor stopped.";
const SLOT = 256; // bytes from one operation's parameters to the next

const COMMON = `
struct Op { x: u32, w: u32, y: u32, inner: u32, outer: u32, more: u32, layer: u32, spare: u32 }
struct Pass { position: u32, first: u32 }
@group(0) @binding(0) var<storage, read> weights: array<u32>;
@group(0) @binding(1) var<storage, read_write> data: array<f32>;
@group(0) @binding(2) var<uniform> op: Op;
@group(0) @binding(3) var<uniform> pass_: Pass;
`;

/** Returns the program that multiplies `rows` rows of x with a matrix in groups: one workgroup per panel of eight rows
 *  of the matrix. A weight is unpacked once for all rows of x. op.more: 1 adds to y; 2 reads one row, pass_.first. */
function multiplication(bits, rows, subgroups) {
  const unpacked =
    bits === 4
      ? `
    let block = base + (i >> 4) * 40;
    let pair = i & 15;
    let column = (i >> 4) * 32 + (pair >> 1) * 4 + (pair & 1);
    let least0 = halves(block + 4);
    let least1 = halves(block + 6);
    let words = vec2u(weights[block + 8 + 2 * pair], weights[block + 9 + 2 * pair]);
    let a0 = vec4f((vec4u(words.x) >> LOW) & MASK) * halves(block) + least0;
    let a1 = vec4f((vec4u(words.y) >> LOW) & MASK) * halves(block + 2) + least1;
    let b0 = vec4f((vec4u(words.x) >> HIGH) & MASK) * halves(block) + least0;
    let b1 = vec4f((vec4u(words.y) >> HIGH) & MASK) * halves(block + 2) + least1;`
      : `
    let block = base + (i >> 5) * 68;
    let pair = i & 31;
    let column = i;
    let words = vec2i(bitcast<i32>(weights[block + 4 + 2 * pair]), bitcast<i32>(weights[block + 5 + 2 * pair]));
    let a0 = vec4f((vec4i(words.x) << UP) >> DOWN) * halves(block);
    let a1 = vec4f((vec4i(words.y) << UP) >> DOWN) * halves(block + 2);`;
  const added =
    bits === 4
      ? `
      let z = data[x + k * op.inner + column + 2];
      sums[2 * k] += a0 * v + b0 * z;
      sums[2 * k + 1] += a1 * v + b1 * z;`
      : `
      sums[2 * k] += a0 * v;
      sums[2 * k + 1] += a1 * v;`;
  return `${subgroups ? "enable subgroups;\nrequires subgroup_id;\n" : ""}${COMMON}
const LOW = vec4u(0, 8, 16, 24);
const HIGH = vec4u(4, 12, 20, 28);
const MASK = vec4u(15);
const UP = vec4u(24, 16, 8, 0);
const DOWN = vec4u(24);
const COLUMNS = ${2 * rows}u;
var<workgroup> parts: array<vec4f, ${2 * rows * WORKGROUP}>;

fn halves(at: u32) -> vec4f { return vec4f(unpack2x16float(weights[at]), unpack2x16float(weights[at + 1])); }

@compute @workgroup_size(${WORKGROUP})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32${subgroups ? ", @builtin(subgroup_id) own: u32, @builtin(num_subgroups) teams: u32" : ""}) {
  let base = op.w + group.x * op.inner / 32 * ${bits === 4 ? 40 : 68};
  let x = op.x + select(0, pass_.first * op.inner, op.more == 2);
  var sums: array<vec4f, ${2 * rows}>;
  for (var i = thread; i < op.inner${bits === 4 ? " / 2" : ""}; i += ${WORKGROUP}) {${unpacked}
    for (var k = 0u; k < ${rows}; k++) {
      let v = data[x + k * op.inner + column];${added}
    }
  }
  for (var k = 0u; k < COLUMNS; k++) {
    ${
      subgroups
        ? `let sum = subgroupAdd(sums[k]);
    if (subgroupElect()) { parts[own * COLUMNS + k] = sum; }`
        : "parts[thread * COLUMNS + k] = sums[k];"
    }
  }
  workgroupBarrier();
  if (thread >= COLUMNS) { return; }
  var sum = vec4f(0);
  for (var i = 0u; i < ${subgroups ? "teams" : WORKGROUP}; i++) { sum += parts[i * COLUMNS + thread]; }
  let y = op.y + (thread >> 1) * op.outer + group.x * ${GPU_PANEL} + (thread & 1) * 4;
  for (var lane = 0u; lane < 4; lane++) {
    data[y + lane] = sum[lane] + select(0, data[y + lane], op.more == 1);
  }
}`;
}

/** Returns the other programs of a layer, with the model's sizes as constants. */
function otherPrograms(
  { hidden, inner, heads, kvHeads, headSize, eps },
  capacity,
  { cos, sin, keys, values },
) {
  const line = (heads + 2 * kvHeads) * headSize,
    half = headSize / 2;
  const reduced = (operation) => `
fn reduce(value: f32, thread: u32) -> f32 {
  shares[thread] = value;
  for (var step = ${WORKGROUP / 2}u; step > 0; step >>= 1) {
    workgroupBarrier();
    if (thread < step) { shares[thread] = ${operation("shares[thread]", "shares[thread + step]")}; }
  }
  workgroupBarrier();
  let all = shares[0];
  workgroupBarrier();
  return all;
}`;
  const sum = (a, b) => `${a} + ${b}`;
  return {
    // y = x / rms(x) · weight, a workgroup per row
    norm: `${COMMON}
var<workgroup> shares: array<f32, ${WORKGROUP}>;
${reduced(sum)}
@compute @workgroup_size(${WORKGROUP})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
  let begin = op.x + group.x * ${hidden};
  var squares = 0.0;
  for (var i = thread; i < ${hidden}; i += ${WORKGROUP}) { squares += data[begin + i] * data[begin + i]; }
  let scale = inverseSqrt(reduce(squares, thread) / ${hidden} + ${eps});
  for (var i = thread; i < ${hidden}; i += ${WORKGROUP}) {
    data[op.y + group.x * ${hidden} + i] = data[begin + i] * scale * bitcast<f32>(weights[op.w + i]);
  }
}`,
    // rotates queries in place and keys into the cache, and copies the values there; a workgroup per head and row
    turn: `${COMMON}
@compute @workgroup_size(${WORKGROUP})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
  let head = group.x;
  let position = pass_.position + group.y;
  let begin = op.x + group.y * ${line} + head * ${headSize};
  let kept = ((op.layer * ${kvHeads} + (head - ${heads}) % ${kvHeads}) * ${capacity} + position) * ${headSize};
  for (var j = thread; j < ${half}; j += ${WORKGROUP}) {
    let first = data[begin + j];
    let second = data[begin + ${half} + j];
    let c = data[${cos} + position * ${half} + j];
    let s = data[${sin} + position * ${half} + j];
    if (head < ${heads}) {
      data[begin + j] = first * c - second * s;
      data[begin + ${half} + j] = second * c + first * s;
    } else if (head < ${heads + kvHeads}) {
      data[${keys} + kept + j] = first * c - second * s;
      data[${keys} + kept + ${half} + j] = second * c + first * s;
    } else {
      data[${values} + kept + j] = first;
      data[${values} + kept + ${half} + j] = second;
    }
  }
}`,
    // softmax(q · keysᵀ / √size) · values, a workgroup per head and row
    attend: `${COMMON}
var<workgroup> shares: array<f32, ${WORKGROUP}>;
var<workgroup> scores: array<f32, ${capacity}>;
${reduced(sum)}
${reduced((a, b) => `max(${a}, ${b})`).replace("reduce", "greatest")}
@compute @workgroup_size(${WORKGROUP})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
  let query = op.x + group.y * ${line} + group.x * ${headSize};
  let start = (op.layer * ${kvHeads} + group.x * ${kvHeads} / ${heads}) * ${capacity * headSize};
  let count = pass_.position + group.y + 1;
  var largest = -3.0e38;
  for (var i = thread; i < count; i += ${WORKGROUP}) {
    var score = 0.0;
    for (var j = 0u; j < ${headSize}; j++) { score += data[query + j] * data[${keys} + start + i * ${headSize} + j]; }
    scores[i] = score * ${1 / Math.sqrt(headSize)};
    largest = max(largest, scores[i]);
  }
  let top = greatest(largest, thread);
  var mass = 0.0;
  for (var i = thread; i < count; i += ${WORKGROUP}) {
    scores[i] = exp(scores[i] - top);
    mass += scores[i];
  }
  let total = reduce(mass, thread);
  for (var j = thread; j < ${headSize}; j += ${WORKGROUP}) {
    var sum = 0.0;
    for (var i = 0u; i < count; i++) { sum += scores[i] * data[${values} + start + i * ${headSize} + j]; }
    data[op.y + (group.y * ${heads} + group.x) * ${headSize} + j] = sum / total;
  }
}`,
    // y = silu(gate) · up, a thread per number
    gate: `${COMMON}
@compute @workgroup_size(${WORKGROUP})
fn main(@builtin(workgroup_id) group: vec3u, @builtin(local_invocation_index) thread: u32) {
  let i = group.x * ${WORKGROUP} + thread;
  if (i >= ${inner}) { return; }
  let gate = data[op.x + 2 * group.y * ${inner} + i];
  data[op.y + group.y * ${inner} + i] = gate / (1 + exp(-gate)) * data[op.x + (2 * group.y + 1) * ${inner} + i];
}`,
  };
}

/** Returns the device of this browser's graphics processor, {device, subgroups}. Throws an Error with one sentence if
 *  there is none that can run the model. */
export async function gpuDevice(bytes) {
  const adapter = await globalThis.navigator?.gpu?.requestAdapter().catch(() => null);
  if (!adapter) throw new ReaderError("This browser offers no graphics processor (WebGPU).");
  const { maxStorageBufferBindingSize, maxBufferSize } = adapter.limits;
  if (Math.min(maxStorageBufferBindingSize, maxBufferSize) < bytes)
    throw new ReaderError("The graphics processor of this device has too little memory for SmolLM2.");
  const subgroups =
    adapter.features.has("subgroups") && navigator.gpu.wgslLanguageFeatures.has("subgroup_id");
  const device = await adapter.requestDevice({
    requiredFeatures: subgroups ? ["subgroups"] : [],
    requiredLimits: { maxStorageBufferBindingSize: bytes, maxBufferSize: bytes },
  });
  return { device, subgroups };
}

/** The model on a graphics processor. It has the interface of Llama, but `forward` returns a promise. */
export class GpuLlama {
  /** host: the Llama in the kernel's memory, whose weights are at `base`; it still embeds tokens. */
  constructor({ device, subgroups }, host, base, bytes) {
    const { config, capacity, kernel } = host,
      { hidden, inner, heads, kvHeads, headSize, layers, vocab } = config;
    Object.assign(this, { device, subgroups, host, config, capacity, length: 0, onStates: null });
    let used = 0;
    const floats = (count) => {
      const at = used;
      used += count;
      return at;
    };
    const line = (heads + 2 * kvHeads) * headSize,
      cached = layers * kvHeads * capacity * headSize;
    const at = (this.at = {
      normed: floats(WIDEST * Math.max(hidden, inner)),
      logits: floats(WIDEST * vocab),
      stream: floats(WIDEST * hidden),
      wide: floats(WIDEST * Math.max(line, 2 * inner)),
      seen: floats(WIDEST * heads * headSize),
      cos: floats((capacity * headSize) / 2),
      sin: floats((capacity * headSize) / 2),
      keys: floats(cached),
      values: floats(cached),
    });
    const { STORAGE, COPY_SRC, COPY_DST, UNIFORM, MAP_READ } = GPUBufferUsage;
    const buffer = (size, usage) => device.createBuffer({ size, usage });
    this.weights = buffer(bytes, STORAGE | COPY_DST);
    this.data = buffer(4 * used, STORAGE | COPY_SRC | COPY_DST);
    this.returned = buffer(4 * WIDEST * (hidden + vocab), MAP_READ | COPY_DST);
    this.pass = buffer(16, UNIFORM | COPY_DST);
    device.queue.writeBuffer(this.weights, 0, kernel.bytes(base, bytes));
    for (const name of ["cos", "sin"])
      device.queue.writeBuffer(this.data, 4 * at[name], kernel.floats(host[name], (capacity * headSize) / 2));
    this.programs = new Map();
    this.layout = device.createBindGroupLayout({
      entries: ["read-only-storage", "storage", "uniform", "uniform"].map((type, binding) => ({
        binding,
        visibility: GPUShaderStage.COMPUTE,
        buffer: { type, hasDynamicOffset: binding === 2 },
      })),
    });
    for (const [name, code] of Object.entries(otherPrograms(config, capacity, at))) this.#program(name, code);
    this.#listOperations(base);
    this.bindings = device.createBindGroup({
      layout: this.layout,
      entries: [this.weights, this.data, this.parameters, this.pass].map((each, binding) => ({
        binding,
        resource: binding === 2 ? { buffer: each, size: 32 } : { buffer: each },
      })),
    });
  }

  #program(name, code) {
    const { device, layout } = this,
      made = device.createComputePipeline({
        layout: device.createPipelineLayout({ bindGroupLayouts: [layout] }),
        compute: { module: device.createShaderModule({ code }), entryPoint: "main" },
      });
    this.programs.set(name, made);
    return made;
  }

  /** Returns the program that multiplies with a matrix of 4 or 8 bits. */
  #multiplication(bits, rows) {
    const name = `${bits} bits, ${rows} rows`;
    return this.programs.get(name) ?? this.#program(name, multiplication(bits, rows, this.subgroups));
  }

  /** Lists the dispatches of a pass, [program, bits, workgroups for n rows], and stores their parameters. */
  #listOperations(base) {
    const { host, at } = this,
      { hidden, inner, heads, kvHeads } = this.config;
    const list = [],
      numbers = [];
    const operation = (name, groups, x, w, y, sizes = [0, 0], more = 0, layer = 0, bits = 0) => {
      list.push({ name, groups, bits, head: more === 2 });
      numbers.push([x, w, y, ...sizes, more, layer, 0]);
    };
    const word = (tensor) => (tensor.at - base) / 4;
    const norm = (tensor) => operation("norm", (n) => [n, 1], at.stream, word(tensor), at.normed);
    const times = (x, tensor, y, more, layer) =>
      operation(
        "times",
        () => [tensor.rows / GPU_PANEL, 1],
        x,
        word(tensor),
        y,
        [tensor.cols, tensor.rows],
        more,
        layer,
        tensor.bits,
      );
    host.blocks.forEach((block, layer) => {
      norm(block.norm1);
      times(at.normed, block.qkv, at.wide, 0, layer);
      operation("turn", (n) => [heads + 2 * kvHeads, n], at.wide, 0, 0, [0, 0], 0, layer);
      operation("attend", (n) => [heads, n], at.wide, 0, at.seen, [0, 0], 0, layer);
      times(at.seen, block.out, at.stream, 1, layer);
      norm(block.norm2);
      times(at.normed, block.gate_up, at.wide, 0, layer);
      operation("gate", (n) => [Math.ceil(inner / WORKGROUP), n], at.wide, 0, at.normed);
      times(at.normed, block.down, at.stream, 1, layer);
    });
    norm(host.norm);
    times(at.normed, host.head, at.logits, 2, 0);
    this.operations = list;
    this.parameters = this.device.createBuffer({
      size: SLOT * list.length,
      usage: GPUBufferUsage.UNIFORM | GPUBufferUsage.COPY_DST,
    });
    const slots = new Uint32Array((SLOT / 4) * list.length);
    numbers.forEach((each, i) => slots.set(each, (SLOT / 4) * i));
    this.device.queue.writeBuffer(this.parameters, 0, slots);
    this.hidden = hidden;
  }

  /** Feeds token ids as Llama.forward does; the promise is rejected if the graphics processor stops. */
  async forward(tokens, last = false) {
    if (this.length + tokens.length > this.capacity)
      throw new RangeError(`the cache holds ${this.capacity} positions`);
    const rows = [];
    for (let start = 0; start < tokens.length; start += WIDEST) {
      const chunk = tokens.slice(start, start + WIDEST),
        ends = start + chunk.length === tokens.length;
      showLife();
      rows.push(...(await this.#pass(chunk, last ? Number(ends) : chunk.length)));
    }
    return rows;
  }

  /** Computes one pass; returns the logits of the last `scored` tokens. */
  async #pass(tokens, scored) {
    const { device, host, at, hidden, data, returned } = this,
      { vocab } = this.config,
      n = tokens.length;
    host.embed(tokens, host.stream);
    device.queue.writeBuffer(data, 4 * at.stream, host.kernel.floats(host.stream, n * hidden));
    device.queue.writeBuffer(this.pass, 0, new Uint32Array([this.length, n - scored, 0, 0]));
    const commands = device.createCommandEncoder(),
      pass = commands.beginComputePass();
    this.operations.forEach(({ name, groups, bits, head }, i) => {
      if (head && !scored) return;
      pass.setPipeline(bits ? this.#multiplication(bits, head ? scored : n) : this.programs.get(name));
      pass.setBindGroup(0, this.bindings, [SLOT * i]);
      pass.dispatchWorkgroups(...groups(n));
    });
    pass.end();
    const states = 4 * n * hidden,
      size = 4 * scored * vocab;
    commands.copyBufferToBuffer(data, 4 * at.normed, returned, 0, states);
    if (scored) commands.copyBufferToBuffer(data, 4 * at.logits, returned, states, size);
    device.queue.submit([commands.finish()]);
    try {
      await returned.mapAsync(GPUMapMode.READ, 0, states + size);
    } catch {
      this.stopped = true;
      throw new ReaderError(`${STOPPED} Press the button again: the page now computes without it.`);
    }
    const numbers = new Float32Array(returned.getMappedRange(0, states + size).slice(0));
    returned.unmap();
    if (this.onStates) {
      host.kernel.floats(host.normed, n * hidden).set(numbers.subarray(0, n * hidden));
      this.onStates(host.normed, this.length, n);
    }
    this.length += n;
    return Array.from({ length: scored }, (_, i) =>
      numbers.subarray(n * hidden + i * vocab, n * hidden + (i + 1) * vocab),
    );
  }
}
