// The weights' way into the worker, and the check that they arrived whole and unaltered. It imports nothing.

const failure = (text) => new Error(text);

/** Base64 → bytes. */
export function bytesOf(base64) {
  const text = atob(base64),
    bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

/** The file over http, piece by piece: a list of byte arrays. again: do not trust what the browser keeps. */
export async function fetched(url, bytes, again, onProgress) {
  let response;
  try {
    response = await fetch(url, { cache: again ? "reload" : "default" });
  } catch {
    throw failure("The weights could not be fetched. Check the connection and try again.");
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
    /* the connection ended early: the count in `joined` says so */
  }
  return pieces;
}

/** The pieces as one ArrayBuffer, or an Error that says in words what is wrong with them. SHA-256 is the
 *  browser's own; over plain http from another machine browsers withhold it, and only the length is
 *  checked. */
export async function joined(pieces, { bytes, sha256 }) {
  const arrived = pieces.reduce((sum, piece) => sum + piece.length, 0);
  if (arrived < bytes)
    throw failure(
      `The download is incomplete: ${arrived.toLocaleString("en")} of ${bytes.toLocaleString("en")} bytes arrived. Try again.`,
    );
  if (arrived > bytes)
    throw failure(
      "The download was altered on its way: it is longer than what was published. Nothing of it was used. Try again.",
    );
  const data = new Uint8Array(bytes);
  pieces.reduce((at, piece) => {
    data.set(piece, at);
    return at + piece.length;
  }, 0);
  if (globalThis.crypto?.subtle) {
    const digest = [...new Uint8Array(await crypto.subtle.digest("SHA-256", data))]
      .map((byte) => byte.toString(16).padStart(2, "0"))
      .join("");
    if (digest !== sha256)
      throw failure(
        "The download was altered on its way: its checksum is not the published one. Nothing of it was used. Try again.",
      );
  }
  return data.buffer;
}
