// Several threads for one multiplication. Browsers share memory between threads only where the server has isolated the
// page (crossOriginIsolated). The helpers run the same kernel on the same memory. They take columns of the result in
// small portions until none is left, so a slow thread delays the others little. The sums do not depend on which thread
// computes them.

import { ReaderError } from "./failure.js";

export const LOST = "A thread of this page stopped.";
const AGAIN = `${LOST} Press the button again: the page now computes with one.`;
const [JOB, NEXT, DONE, BITS, ROWS, X, W, ONES, Y, INNER, OUTER, PORTION] = Array(12).keys();
const FIELDS = 16;
const SPINS = 20000; // looks at a counter before a thread sleeps
const LONGEST = 10_000; // milliseconds that the others may take for their share, and to start

/** Computes portions of the current job until none is left. */
function takePortions(exports, control, scratch) {
  const [bits, rows, x, w, ones, y, inner, outer, portion] = control.slice(BITS, PORTION + 1);
  const multiply = bits === 4 ? exports.grouped4 : exports.grouped8,
    bytes = ((inner / 32) * (bits === 4 ? 160 : 272)) / 8; // of a column's weights
  for (;;) {
    const from = Atomics.add(control, NEXT, portion);
    if (from >= outer) return;
    const count = Math.min(portion, outer - from);
    multiply(rows, x, w + from * bytes, ones, scratch, y + 4 * from, inner, outer, count);
  }
}

/** Waits until a counter differs from a value; it looks often first, because sleeping takes longer than most jobs.
 *  Returns whether it differs; after `most` milliseconds it may not. */
function waitWhile(control, field, value, most) {
  for (let i = 0; i < SPINS; i++) if (Atomics.load(control, field) !== value) return true;
  while (Atomics.load(control, field) === value)
    if (Atomics.wait(control, field, value, most) === "timed-out") return false;
  return true;
}

/** Runs in a helper: answers every job, for ever. */
async function help({ module, memory, control, scratch }) {
  const { exports } = await WebAssembly.instantiate(module, { env: { memory } });
  const fields = new Int32Array(memory.buffer, control, FIELDS);
  let job = Atomics.load(fields, JOB);
  postMessage("ready");
  for (;;) {
    waitWhile(fields, JOB, job, Infinity);
    job = Atomics.load(fields, JOB);
    takePortions(exports, fields, scratch);
    Atomics.add(fields, DONE, 1);
    Atomics.notify(fields, DONE);
  }
}

/** Returns the promise of all helpers' answers; it fails if one does not answer in time. */
async function allStarted(helpers) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error("a thread did not start")), LONGEST);
  });
  try {
    await Promise.race([Promise.all(helpers.map(({ started }) => started)), late]);
  } catch (error) {
    helpers.forEach(({ helper }) => helper.terminate());
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

/** Starts helpers. Returns multiply(bits, rows, x, w, ones, scratch, y, inner, outer), which computes all columns with
 *  all threads. If one of them stops, it fails, and kernel.lost is true from then on. scratchBytes: memory that each
 *  helper needs. */
export async function startThreads(kernel, exports, { module, memory }, threads, scratchBytes) {
  const control = kernel.allocate(4 * FIELDS),
    names = "JOB, NEXT, DONE, BITS, ROWS, X, W, ONES, Y, INNER, OUTER, PORTION";
  const source = [
    `"use strict"; const [${names}] = Array(12).keys(), FIELDS = ${FIELDS}, SPINS = ${SPINS};`,
    takePortions,
    waitWhile,
    help,
    "onmessage = ({ data }) => help(data);",
  ].join("\n");
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  const helpers = Array.from({ length: threads - 1 }, () => {
    const helper = new Worker(url),
      scratch = kernel.allocate(scratchBytes);
    const started = new Promise((resolve, reject) => {
      helper.onmessage = resolve;
      helper.onerror = () => reject(new Error("a thread could not be started"));
      helper.postMessage({ module, memory, control, scratch });
    });
    return { helper, started };
  });
  await allStarted(helpers);
  URL.revokeObjectURL(url);
  return (bits, rows, x, w, ones, scratch, y, inner, outer) => {
    if (kernel.lost) throw new ReaderError(AGAIN);
    const fields = new Int32Array(memory.buffer, control, FIELDS),
      portion = Math.max(64, Math.ceil(outer / (16 * 16 * threads)) * 16);
    fields.set([bits, rows, x, w, ones, y, inner, outer, portion], BITS);
    Atomics.store(fields, NEXT, 0);
    Atomics.store(fields, DONE, 0);
    Atomics.add(fields, JOB, 1);
    Atomics.notify(fields, JOB);
    takePortions(exports, fields, scratch);
    for (let done = Atomics.load(fields, DONE); done < threads - 1; done = Atomics.load(fields, DONE))
      if (!waitWhile(fields, DONE, done, LONGEST)) {
        kernel.lost = true; // what it still computes would be counted as its share of a later job
        throw new ReaderError(AGAIN);
      }
  };
}
