// Gets the live page's parts: the small engine at once, the weights only when they are asked for, and neither unchecked.

const failure = (text) => Object.assign(new Error(text), { name: "DownloadError" });

export function loadScript(url) {
  return new Promise((resolve, reject) => {
    const script = Object.assign(document.createElement("script"), { src: url });
    script.addEventListener("load", () => { script.remove(); resolve(); });
    script.addEventListener("error", () => { script.remove(); reject(failure("A part of this page could not be loaded. Check the connection and try again.")); });
    document.head.append(script);
  });
}

const bytesOf = (base64) => Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));

/** weights.bin over http, piece by piece. again: do not trust what the browser keeps. */
async function fetched(base, expected, again, onProgress) {
  let response;
  try {
    response = await fetch(`${base}weights.bin`, { cache: again ? "reload" : "default" });
  } catch {
    throw failure("The weights could not be fetched. Check the connection and try again.");
  }
  if (!response.ok) throw failure(`The server answered ${response.status} instead of sending the weights. Try again.`);
  const data = new Uint8Array(expected), reader = response.body.getReader();
  let arrived = 0;
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      if (arrived + part.value.length <= expected) data.set(part.value, arrived);
      onProgress((arrived += part.value.length) / expected);
    }
  } catch { /* the connection ended early: the count below says so */ }
  return { data, arrived };
}

/** The same bytes from scripts: a page that was opened from a folder may not fetch. */
async function fromScripts(base, expected, pieces, onProgress) {
  const data = new Uint8Array(expected);
  let arrived = 0;
  for (let number = 0; number < pieces; number++) {
    globalThis.sdlWeights = (text) => {
      const part = bytesOf(text);
      if (arrived + part.length <= expected) data.set(part, arrived);
      arrived += part.length;
    };
    await loadScript(`${base}weights-${number}.js`);
    onProgress(arrived / expected);
  }
  delete globalThis.sdlWeights;
  return { data, arrived };
}

/** The weights as an ArrayBuffer, whole and unaltered, or a DownloadError that says in words what is wrong with them.
 *  SHA-256 is the browser's own; over plain http from another machine browsers withhold it, and only the length is checked. */
export async function download(base, { bytes, sha256, pieces }, again, onProgress) {
  const get = location.protocol === "file:" ? fromScripts(base, bytes, pieces, onProgress) : fetched(base, bytes, again, onProgress);
  const { data, arrived } = await get;
  if (arrived < bytes) throw failure(`The download is incomplete: ${arrived.toLocaleString("en")} of ${bytes.toLocaleString("en")} bytes arrived. Try again.`);
  if (arrived > bytes) throw failure("The download was altered on its way: it is longer than what was published. Nothing of it was used. Try again.");
  if (globalThis.crypto?.subtle) {
    const digest = [...new Uint8Array(await crypto.subtle.digest("SHA-256", data))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
    if (digest !== sha256) throw failure("The download was altered on its way: its checksum is not the published one. Nothing of it was used. Try again.");
  }
  return data.buffer;
}

/** The engine's worker, from the source that engine.js carries: a worker's file cannot be opened from a folder. */
export function startWorker(source) {
  return new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
}

export const kernelsOf = ({ kernels }) => Object.fromEntries(Object.entries(kernels).map(([name, base64]) => [name, bytesOf(base64)]));
