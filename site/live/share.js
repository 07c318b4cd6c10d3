// A run in an address: what "copy a link to this result" writes, and what the live page and the table of the room read.

/** Returns what a shared address claims of a run, or null if it cannot be true of any run. */
export function sharedRun(hash) {
  const shared = new URLSearchParams(hash.replace(/^#/, "")).get("ask-run");
  const [speedup, low, high, plain, fast, four, ...device] = (shared ?? "").split("~");
  const numbers = [speedup, low, high, plain, fast, four].map(Number);
  if (!shared || numbers.some((x) => !Number.isFinite(x) || x <= 0 || x > 1e4)) return null;
  const [value, least, most, ...perSecond] = numbers.slice(0, 5);
  if (least > value || value > most) return null;
  const words = device.join(" ").slice(0, 80);
  return { speedup: value, range: [least, most], perSecond, four: numbers[5], device: words };
}

/** Returns the fragment of an address that carries a run. */
export function shareFragment({ speedup, speedups, perSecond, costs }, device) {
  // The ratio of two medians may lie outside the ratios of the turns.
  const [low, high] = [Math.min(speedup, ...speedups), Math.max(speedup, ...speedups)],
    four = costs.target[3] / costs.target[0],
    numbers = [speedup, low, high, perSecond.plain, perSecond.speculative, four];
  const fields = [...numbers.map((x) => x.toFixed(2)), device.replace(/[()]/g, "")]; // chats cut an address at ")"
  return `#ask-run=${encodeURIComponent(fields.join("~"))}`;
}

/** Returns the runs in a text that has any words between the addresses; a repeated address counts once. */
export function sharedRuns(text) {
  const fragments = new Set(text.match(/#ask-run=[^\s"<>()]+/g) ?? []);
  const runs = [...fragments].map(sharedRun);
  return { runs: runs.filter(Boolean), unreadable: runs.filter((run) => !run).length };
}
