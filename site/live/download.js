// Gets the live page's parts: the small engine at once, and its worker, which fetches the weights when they
// are asked for.

/** Runs one classic script. A page that was opened from a folder may load scripts, but fetch nothing. */
export function loadScript(url) {
  return new Promise((resolve, reject) => {
    const script = Object.assign(document.createElement("script"), { src: url });
    script.addEventListener("load", () => {
      script.remove();
      resolve();
    });
    script.addEventListener("error", () => {
      script.remove();
      reject(new Error("A part of this page could not be loaded. Check the connection and try again."));
    });
    document.head.append(script);
  });
}

let lastLoad = Promise.resolve();

/** The weights from scripts: each hands over a piece of them, in base64, as text. The scripts know one
 *  name to hand it to, so several copies on a page load one after another. */
export function fromScripts(base, count, hand, onProgress) {
  const load = lastLoad.then(async () => {
    globalThis.sdlWeights = hand;
    try {
      for (let number = 0; number < count; number++) {
        await loadScript(`${base}weights-${number}.js`);
        onProgress((number + 1) / count);
        await new Promise((resolve) => setTimeout(resolve)); // the page's turn
      }
    } finally {
      delete globalThis.sdlWeights;
    }
  });
  lastLoad = load.catch(() => {});
  return load;
}

/** The engine's worker, from the source that engine.js carries: a worker's file cannot be opened from a
 *  folder. */
export function startWorker(source) {
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" })),
    worker = new Worker(url);
  // by then it has read the source
  worker.addEventListener("message", () => URL.revokeObjectURL(url), { once: true });
  return worker;
}
