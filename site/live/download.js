// Loads the live page's parts: the engine without weights first, then its worker, which downloads the weights
// when the reader asks for them.

import { button, make } from "../../specdec_book/viz/static/kit.js";
import { lineFor, ReaderError } from "./failure.js";

// Seconds without a sign of life after which a worker is stopped; a slow connection may be silent for longer.
const COMPUTING = 20;
const LOADING = 60;
const SILENT = `The engine gave no sign for ${COMPUTING} seconds and was stopped. Press the button to start it again.`;
const STALLED = `Nothing arrived for ${LOADING} seconds. Check the connection and try again.`;
const BROKEN =
  "This browser could not run the page's engine. Press the button again, or open the page elsewhere.";

/** Returns the folder of the live page's files. */
export const base = () => `${document.documentElement.dataset.content_root}_static/live/`;

const isFolder = () => location.protocol === "file:";

/** Returns the address of one of these files for a worker; null on a page from a folder, which sends it scripts. */
export const addressOf = (name) => (isFolder() ? null : new URL(base() + name, location.href).href);

/** Runs a classic script. A page that was opened from a folder can load scripts but cannot use fetch. */
export function loadScript(url) {
  return new Promise((resolve, reject) => {
    const script = Object.assign(document.createElement("script"), { src: url });
    script.addEventListener("load", () => {
      script.remove();
      resolve();
    });
    script.addEventListener("error", () => {
      script.remove();
      reject(new ReaderError("A part of this page could not be loaded. Check the connection and try again."));
    });
    document.head.append(script);
  });
}

/** Returns the engine without weights. Two panels of one page share it: the script runs once. */
async function loadEngine() {
  const load = () =>
    loadScript(`${base()}engine.js`).finally(() => {
      globalThis.sdlEngineLoad = null; // a failed load can be tried again
    });
  if (!globalThis.sdlLive) await (globalThis.sdlEngineLoad ??= load());
  return globalThis.sdlLive;
}

let lastLoad = Promise.resolve();

/** Loads weights from scripts, `${prefix}-0.js` and so on. Each script passes one piece, as base64 text, to a global
 *  function; copies of the live page on one page therefore load one after another. onPiece: receives each piece. */
export function loadFromScripts(prefix, count, onPiece, onProgress) {
  const load = lastLoad.then(async () => {
    globalThis.sdlWeights = onPiece;
    try {
      for (let number = 0; number < count; number++) {
        await loadScript(`${prefix}-${number}.js`);
        onProgress((number + 1) / count);
        await new Promise((resolve) => setTimeout(resolve)); // lets the page respond
      }
    } finally {
      delete globalThis.sdlWeights;
    }
  });
  lastLoad = load.catch(() => {});
  return load;
}

/** Starts the engine's worker from its source in engine.js: a page opened from a folder cannot load a worker's
 *  file. */
export function startWorker(source) {
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" })),
    worker = new Worker(url);
  // the worker has read its source before it sends a message
  worker.addEventListener("message", () => URL.revokeObjectURL(url), { once: true });
  return worker;
}

/** Starts the engine in a worker. request(message, onMessage): the promise of its answer, ready or result; onMessage
 *  receives what comes before. Errors have a message for the reader. stop(error): ends the worker; a request that still
 *  waits fails with the error. stopped(): whether it has ended; a worker that is silent is ended too. */
export function startEngine(source) {
  const worker = startWorker(source);
  let isStopped = false,
    fail = () => {};
  const stop = (error) => {
    isStopped = true;
    worker.terminate();
    if (error) fail(error);
  };
  function request(message, onMessage) {
    const isLoading = message.type.startsWith("load");
    let silent = 0;
    // Seconds are counted and not compared: a laptop that slept has counted none of them.
    const watch = setInterval(() => {
      if (++silent > (isLoading ? LOADING : COMPUTING)) stop(new ReaderError(isLoading ? STALLED : SILENT));
    }, 1000);
    return new Promise((resolve, reject) => {
      fail = reject;
      worker.onmessage = ({ data }) => {
        silent = 0;
        if (data.type === "failed") reject(new ReaderError(data.text));
        else if (data.type === "ready" || data.type === "result") resolve(data);
        else if (data.type !== "sign") onMessage(data);
      };
      worker.onerror = (event) => {
        event.preventDefault();
        console.warn(event.message);
        stop(new ReaderError(BROKEN));
      };
      worker.postMessage(message);
    }).finally(() => clearInterval(watch));
  }
  return { post: (message) => worker.postMessage(message), request, stop, stopped: () => isStopped };
}

/** Returns the engine of `parts` in its worker. load(message, name, scripts, onProgress): starts it, and sends it what
 *  `scripts` scripts of this name hold if the page is a folder's. Errors have a message for the reader. */
export function machine(parts) {
  let engine = null;
  const stop = (error) => {
    engine?.stop(error);
    engine = null;
  };
  return {
    ready: () => engine !== null && !engine.stopped(),
    stop,
    request: (message, onMessage) => engine.request(message, onMessage),
    async load(message, name, scripts, onProgress) {
      const own = (engine = startEngine(parts.worker)),
        kernels = globalThis.sdlScalar ? {} : parts.kernels,
        send = (text) => own.post({ type: "piece", text });
      try {
        if (isFolder()) await loadFromScripts(base() + name, scripts, send, onProgress);
        return await own.request({ ...message, kernels }, ({ share }) => onProgress(share));
      } catch (error) {
        stop();
        throw error;
      }
    },
  };
}

/** Shows a panel once the engine has loaded, without weights. show(parts, hadFocus): shows it; failed(line, button): shows a
 *  line for the reader, and a button that tries again. hadFocus: whether that button was pressed by key. */
export async function open(el, kind, show, failed) {
  const hadFocus = el.contains(document.activeElement);
  el.replaceChildren(make("p", { class: `sdl ${kind}-loading` }, "Loading…"));
  try {
    // without await where the engine is there: the page then mounts at once
    show(globalThis.sdlLive ?? (await loadEngine()), hadFocus);
  } catch (error) {
    failed(
      lineFor(error),
      button("Try again", () => open(el, kind, show, failed)),
    );
  }
}
