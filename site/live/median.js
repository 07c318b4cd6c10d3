// Used by the page and by its worker. This module has no imports.

/** Returns the median of some numbers. */
export function median(values) {
  const sorted = [...values].sort((a, b) => a - b),
    middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
