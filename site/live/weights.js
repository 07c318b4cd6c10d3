// Downloads the weights in the worker and checks that they are complete and unaltered.

import { ReaderError } from "./failure.js";

const failure = (text) => new ReaderError(text);

/** Returns the bytes of base64 text. */
export function bytesOf(base64) {
  const text = atob(base64),
    bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

/** Downloads a file over http as a list of byte arrays. again: whether to ignore the browser's cache. */
export async function download(url, bytes, again, onProgress) {
  let response;
  try {
    response = await fetch(url, { cache: again ? "reload" : "default" });
  } catch {
    throw failure("The weights could not be downloaded. Check the connection and try again.");
  }
  if (!response.ok)
    throw failure(`The server answered ${response.status} instead of sending the weights. Try again.`);
  const reader = response.body.getReader(),
    pieces = [];
  let arrived = 0;
  try {
    for (let part = await reader.read(); !part.done && arrived <= bytes; part = await reader.read()) {
      pieces.push(part.value);
      onProgress((arrived += part.value.length) / bytes);
    }
  } catch {
    /* the connection ended early: `join` reports the missing bytes */
  }
  return pieces;
}

/** Joins byte arrays. */
export function joined(pieces) {
  const all = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  pieces.reduce((at, piece) => {
    all.set(piece, at);
    return at + piece.length;
  }, 0);
  return all;
}

/** Joins the pieces into one ArrayBuffer, or throws an Error with a message for the reader. The browser computes the
 *  SHA-256; over plain http from another machine browsers do not offer it, so only the length is checked. */
export async function join(pieces, { bytes, sha256 }) {
  const data = joined(pieces),
    arrived = data.length;
  if (arrived < bytes)
    throw failure(
      `The download is incomplete: ${arrived.toLocaleString("en")} of ${bytes.toLocaleString("en")} bytes arrived. Try again.`,
    );
  if (arrived > bytes)
    throw failure(
      "The download was altered: it is longer than the published file. It was not used. Try again.",
    );
  if (globalThis.crypto?.subtle) {
    const digest = [...new Uint8Array(await crypto.subtle.digest("SHA-256", data))]
      .map((byte) => byte.toString(16).padStart(2, "0"))
      .join("");
    if (digest !== sha256)
      throw failure(
        "The download was altered: its checksum differs from that of the published file. It was not used. Try again.",
      );
  }
  return data.buffer;
}

const CACHE = "specdec-lite-weights";

/** Returns the browser's cache of verified shards, or null where there is none (an insecure address, private mode). */
async function shardCache() {
  try {
    return (await globalThis.caches?.open(CACHE)) ?? null;
  } catch {
    return null;
  }
}

/** Downloads the shards of a file in order and passes each to `place(bytes, offset)`. A verified shard stays in the
 *  browser's cache, so an interrupted download continues with the first missing shard. */
export async function downloadShards(base, { shards, bytes }, place, onProgress) {
  const cache = await shardCache();
  let offset = 0;
  for (const shard of shards) {
    const url = `${base}${shard.name}?${shard.sha256.slice(0, 16)}`,
      stored = await cache?.match(url);
    const arrived = (share) => onProgress((offset + share * shard.bytes) / bytes);
    let pieces = stored && [new Uint8Array(await stored.arrayBuffer())];
    pieces ??= await download(url, shard.bytes, false, arrived);
    let data;
    try {
      data = new Uint8Array(await join(pieces, shard));
    } catch (error) {
      await cache?.delete(url);
      throw error;
    }
    if (!stored) await cache?.put(url, new Response(data)).catch(() => {}); // a full disk only costs a later download
    place(data, offset);
    offset += shard.bytes;
    onProgress(offset / bytes);
  }
}

/** Checks shards that a page opened from a folder has loaded, and passes each to `place(bytes, offset)`. */
export async function placeShards({ shards, bytes }, pieces, place, onProgress) {
  let offset = 0;
  for (const [i, shard] of shards.entries()) {
    place(new Uint8Array(await join([pieces[i] ?? new Uint8Array()], shard)), offset);
    pieces[i] = null; // frees it before the next one is copied
    offset += shard.bytes;
    onProgress(offset / bytes);
  }
}
