// What a reader is told when something fails, and the signs of life by which the page notices a worker that is stuck.
// A browser's own words for an error help no reader: one line replaces them and says what to do. No imports.

/** An error whose message is a line for the reader. */
export class ReaderError extends Error {}

const NO_MEMORY = "This browser could not give the page enough memory. Close other tabs and try again.";
const STUCK =
  "Something in this page failed. Press the button again; if that does not help, reload the page.";

/** Returns whether an error comes from a lack of memory, by its words: browsers have no type for it. */
export const lacksMemory = (error) =>
  !(error instanceof ReaderError) && /memory|allocation/i.test(error?.message);

/** Returns the line that a reader sees for an error. otherwise: the line for an error that was not written for readers
 *  and does not come from a lack of memory. */
export function lineFor(error, otherwise = STUCK) {
  if (error instanceof ReaderError) return error.message;
  console.warn(error); // for those who look for the cause
  return lacksMemory(error) ? NO_MEMORY : otherwise;
}

const SIGN_EVERY = 1000; // milliseconds
let lastSign = -Infinity,
  sendSign = () => {};

/** Sets what sends a sign of life. */
export function sendSignsBy(send) {
  sendSign = send;
}

/** Sends a sign of life if the last one is a second old. The loops of a pass call it: a worker that computes reads no
 *  messages, so the page cannot ask it. */
export function showLife() {
  const now = performance.now();
  if (now - lastSign < SIGN_EVERY) return;
  lastSign = now;
  sendSign();
}
