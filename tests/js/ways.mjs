// A module worker for the tests in Chromium: builds a model in groups and computes the same passes in every way that
// this browser offers. It receives {folder, threads, subgroups, passes, runs} and posts
// {ways, missing, subgroups}: whether the adapter has subgroups.
import { buildSmollm2 } from "./live/worker.js";
import { computeWith, drafterOf } from "./live/asked.js";
import { awaited, decode, seeded } from "./live/speculate.js";

const bytes = async (path) => new Uint8Array(await (await fetch(path)).arrayBuffer());

async function engineOf({ folder, threads }) {
  const manifest = await (await fetch(`${folder}/smollm2.json`)).json(),
    suffix = threads > 1 ? "-threads" : "";
  const kernels = {};
  for (const name of ["relaxed", "simd"])
    kernels[name] = await bytes(`${folder}/kernel-${name}${suffix}.wasm`);
  const fill = async (kernel, address) => {
    for (const { name } of manifest.shards) {
      const part = await bytes(`${folder}/${name}`);
      kernel.bytes(address, part.length).set(part);
      address += part.length;
    }
  };
  return buildSmollm2({ kernels, manifest, fill, threads, capacity: 160 });
}

async function logitsOf({ target }, passes) {
  const rows = [];
  for (const { start, tokens } of passes) {
    target.length = start;
    for (const row of await target.forward(tokens)) rows.push([...row]);
  }
  return rows;
}

async function textOf(engine, { prompt, drafter, gamma, wanted }) {
  const source = drafter && drafterOf(engine, drafter, gamma),
    options = { gamma, temperature: 0, wanted, rng: seeded(1), stop: engine.stop },
    tokens = [];
  for await (const step of awaited(decode(engine.target, source, prompt, options)))
    tokens.push(...step.emitted);
  return tokens;
}

addEventListener("message", async ({ data }) => {
  if (!data.folder) return;
  try {
    const engine = await engineOf(data),
      ways = {},
      gpu = engine.ways.gpu?.target,
      subgroups = gpu?.subgroups;
    if (gpu && !data.subgroups) gpu.subgroups = false; // programs are compiled at their first use
    for (const way of Object.keys(engine.ways)) {
      computeWith(engine, way);
      ways[way] = { logits: await logitsOf(engine, data.passes), texts: [] };
      for (const run of data.runs) ways[way].texts.push(await textOf(engine, run));
    }
    postMessage({ way: "all", ways, missing: engine.missing, subgroups });
  } catch (error) {
    postMessage({ way: "all", error: error.stack });
  }
});
