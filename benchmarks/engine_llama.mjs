// Runs llama.cpp through node-llama-cpp, which lies in .engines/llama (`make engines`): loads a model
// once, then answers a line of JSON with a line of JSON until its input ends.
//
//   node benchmarks/engine_llama.mjs .engines/llama < jobs
//
// The first line loads: {"target": file, "draft": file or null, "slots": sequences that fit,
// "threads"}; it is answered by {"version", "build"} or {"refused": what it said}. Then {"prompts":
// rows of ids, "new_tokens", "method": "plain", "lookup" or "draft_model", "gamma"} decodes them
// together → {"tokens", "seconds", "processor", "counters"}.
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { pathToFileURL } from "node:url";
import path from "node:path";

const folder = path.resolve(process.argv[2], "node_modules", "node-llama-cpp");
const { version } = JSON.parse(readFileSync(path.join(folder, "package.json"), "utf-8"));
const { DraftSequenceTokenPredictor, InputLookupTokenPredictor, LlamaLogLevel, getLlama } = await import(
  pathToFileURL(path.join(folder, "dist", "index.js"))
);
const CONTEXT = 512;

function answer(found) {
  process.stdout.write(JSON.stringify(found) + "\n");
}

async function load(job) {
  const options = { gpu: false, build: "never", maxThreads: job.threads };
  const llama = await getLlama({ ...options, logLevel: LlamaLogLevel.error });
  const place = async (modelPath) => {
    const model = await llama.loadModel({ modelPath });
    return model.createContext({ sequences: job.slots, contextSize: CONTEXT, threads: job.threads });
  };
  const target = await place(job.target);
  return { build: llama.llamaCppRelease.release, target, draft: job.draft && (await place(job.draft)) };
}

// A draft of γ tokens, whatever the small model thinks of them: as every other engine drafts here.
// Version 3.22.1 takes every other round without one after a rejection, and goes on from a place that
// the text has passed: what predictTokens() returns shows it.
function predictor(job, drafting) {
  if (job.method === "lookup")
    return new InputLookupTokenPredictor({
      patternLength: { min: 2, max: 4 },
      predictionLength: { min: 1, max: job.gamma },
    });
  if (job.method === "draft_model")
    return new DraftSequenceTokenPredictor(drafting, {
      minTokens: job.gamma,
      maxTokens: job.gamma,
      minConfidence: 0,
    });
}

async function one(sequence, prompt, newTokens) {
  sequence.tokenPredictor?.updateInputTokens?.(prompt);
  const tokens = [];
  for await (const token of sequence.evaluate(prompt, { temperature: 0, yieldEogToken: true })) {
    tokens.push(token);
    if (tokens.length === newTokens) break;
  }
  return tokens;
}

async function decode(models, job) {
  const drafting = job.prompts.map(() => job.method === "draft_model" && models.draft.getSequence());
  const sequences = drafting.map((draft) =>
    models.target.getSequence({ tokenPredictor: predictor(job, draft) }),
  );
  const began = performance.now();
  const used = process.cpuUsage();
  const tokens = await Promise.all(
    sequences.map((sequence, row) => one(sequence, job.prompts[row], job.new_tokens)),
  );
  const { user, system } = process.cpuUsage(used);
  const seconds = (performance.now() - began) / 1000;
  const counters = { validated: 0, refuted: 0, used: 0, unused: 0 };
  for (const sequence of sequences)
    for (const name of Object.keys(counters)) counters[name] += sequence.tokenPredictions[name];
  for (const sequence of [...sequences, ...drafting]) if (sequence) await sequence.dispose();
  return { tokens, seconds, processor: (user + system) / 1e6, counters };
}

let models;
for await (const line of createInterface({ input: process.stdin })) {
  const job = JSON.parse(line);
  try {
    if (models) answer(await decode(models, job));
    else {
      models = await load(job);
      answer({ version, build: models.build });
    }
  } catch (error) {
    answer({ refused: String(error) });
  }
}
process.exit();
