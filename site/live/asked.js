// Answers a question with SmolLM2 in the worker: plainly and speculatively, alternating, on one clock. It returns the
// race in the form that the interactive `race` replays.

import { ChosenDrafter } from "./drafters.js";
import { lineFor, ReaderError } from "./failure.js";
import { STOPPED } from "./gpu.js";
import { median } from "./median.js";
import { awaited, count, decode, fates, seeded } from "./speculate.js";
import { LOST } from "./threads.js";

const ANSWER = 128; // tokens of an answer, at most
const TURNS = 3; // timed turns of each lane
const WARM_UP = 8; // tokens of each lane before the clock starts
const WIDTHS = [1, 2, 3, 4, 5, 6, 7, 8]; // tokens of the passes that are timed
const PASS_TURNS = 5;
const MORE_TURNS = 4; // further turns, while a pass over more tokens seems to cost less
const REPORT_EVERY = 80; // milliseconds between two messages with decoded text
const MAX_DRAFT = 7;
const TRIAL_TIME = 1000; // milliseconds for the choice between threads and the graphics processor
const TRIAL_WIDTHS = [1, 4]; // tokens of its passes
const SAME_LOGITS = 0.05; // sums in another order differ by about 0.001
const FAILED = { gpu: STOPPED, threads: LOST }; // why a way is not used any more

/** Returns the milliseconds of the page's clock. */
export const clock = () => performance.now();

/** Returns the ids of a question in the chat's form. A special token's name in the question is plain text. */
export function promptIds({ tokenizer, chat, capacity }, question) {
  const text = question.trim();
  if (!text) throw new ReaderError("The question is empty: type at least one word.");
  const room = capacity - ANSWER - MAX_DRAFT - 1;
  const ids = [
    ...tokenizer.encode(chat.before),
    ...tokenizer.encodePlain(text),
    ...tokenizer.encode(chat.after),
  ];
  if (ids.length > room)
    throw new ReaderError(
      `The question has ${ids.length.toLocaleString("en")} tokens, and ${room} fit: shorten it.`,
    );
  return ids;
}

/** Sets what computes the target's passes: a key of engine.ways, which are {target, threads}. */
export function computeWith(engine, way) {
  if (!engine.ways[way]) throw new ReaderError(engine.missing[way]);
  const { target, threads } = engine.ways[way];
  engine.kernel.threads = threads;
  Object.assign(engine, { target, way });
}

/** Times passes of every way for about a second and returns {way: milliseconds of a pass over one token and of one over
 *  four, added}. A way that fails, or whose logits differ from those of one thread, is removed. */
async function timeWays(engine, ids) {
  const times = {},
    ways = Object.keys(engine.ways),
    tokens = Array.from({ length: Math.max(...TRIAL_WIDTHS) }, (_, i) => ids[i % ids.length]);
  let expected = null;
  for (const way of ways) {
    computeWith(engine, way);
    const { target } = engine;
    target.onStates = null;
    const pass = async (width) => {
      target.length = 0;
      const start = clock(),
        rows = await target.forward(tokens.slice(0, width));
      return { time: clock() - start, row: rows.at(-1) };
    };
    try {
      const rows = [];
      for (const width of TRIAL_WIDTHS) rows.push((await pass(width)).row.slice()); // the first passes compile
      expected ??= rows;
      const differs = (row, i) => row.some((logit, j) => !(Math.abs(logit - expected[i][j]) < SAME_LOGITS));
      if (rows.some(differs))
        throw new ReaderError("The graphics processor computes other logits, so it is not used.");
      const fastest = TRIAL_WIDTHS.map(() => Infinity);
      for (const start = clock(); fastest[0] === Infinity || clock() - start < TRIAL_TIME / ways.length;)
        for (const [i, width] of TRIAL_WIDTHS.entries())
          fastest[i] = Math.min(fastest[i], (await pass(width)).time);
      times[way] = fastest.reduce((sum, time) => sum + time);
    } catch (error) {
      delete engine.ways[way];
      engine.missing[way] = lineFor(error, FAILED[way]);
    }
  }
  return times;
}

/** Returns the fastest way of this device. */
export function fastestWay({ ways, trial }) {
  return Object.keys(ways).reduce((best, way) => (trial[way] < trial[best] ? way : best));
}

/** Runs the trial, once, if there is a choice. What stopped since is no choice. */
export async function tryWays(engine, ids) {
  const stopped = { gpu: engine.ways.gpu?.target.stopped, threads: engine.kernel.lost };
  for (const way of Object.keys(FAILED))
    if (engine.ways[way] && stopped[way]) {
      delete engine.ways[way];
      engine.missing[way] = FAILED[way];
    }
  if (Object.keys(engine.ways).length > 1) engine.trial ??= await timeWays(engine, ids);
}

/** Returns times that never fall from one width to the next: a pass over more tokens cannot cost less. */
export function nonDecreasing(times) {
  return times.map((_, i) => Math.max(...times.slice(0, i + 1)));
}

/** Returns the milliseconds of a target pass for each width, and of a draft pass of the head inside the loop. The
 *  widths alternate, so that a device that slows down affects them all. Times that cannot be are measured again. */
export async function passCosts({ target, drafters }, ids) {
  const warm = { gamma: 3, temperature: 0, wanted: 16, rng: seeded(1), clock },
    steps = [];
  for await (const step of awaited(decode(target, drafters.head, ids, warm))) steps.push(step);
  const { drafting, draftPasses } = count(steps);
  const times = WIDTHS.map(() => []),
    length = target.length,
    // the first turn warms up; of the others the fastest counts, because other programs only add time
    fastest = () => times.map((each) => Math.min(...each.slice(1))),
    isDone = () => fastest().every((time, i, all) => !i || time >= all[i - 1]);
  target.onStates = null;
  for (let turn = 0; turn <= PASS_TURNS || (turn <= PASS_TURNS + MORE_TURNS && !isDone()); turn++)
    for (const [i, width] of WIDTHS.entries()) {
      const start = clock();
      await target.forward(Array.from({ length: width }, (_, j) => ids[j % ids.length]));
      target.length = length;
      times[i].push(clock() - start);
    }
  return { target: nonDecreasing(fastest()), draft: drafting / draftPasses };
}

/** Returns the drafter of a run. gamma: the draft length, 0 to choose it, and the source, in every round. */
export function drafterOf({ drafters, costs }, name, gamma) {
  if (gamma && name !== "both") return drafters[name];
  const sources = name === "both" ? Object.values(drafters) : [drafters[name]],
    chosen = new ChosenDrafter(...sources);
  chosen.costs = costs;
  return chosen;
}

/** Returns a lane: one entry per pass, with the seconds since the start. */
function lane(steps, { tokenizer, stop }) {
  const text = (id) => (id === stop ? "" : tokenizer.decode([id]));
  let at = 0;
  return steps.map((step) => {
    at += (step.drafting + step.verifying + step.other) / 1000;
    return { at: Math.round(at * 1e5) / 1e5, words: fates(step, text) };
  });
}

/** Returns what runs of one text, {plain, speculative}, tell: the milliseconds per token of each, the speedup, whether the
 *  texts agree, the counts, and the runs of median duration. */
export function compared(runs) {
  const each = (get) => ({ plain: get(runs.plain), speculative: get(runs.speculative) });
  const byTime = (a, b) => count(a).milliseconds - count(b).milliseconds;
  const perToken = each((turns) => turns.map((run) => count(run).milliseconds / count(run).tokens));
  const texts = each(([first]) => JSON.stringify(first.flatMap((step) => step.emitted)));
  return {
    ...perToken,
    speedup: median(perToken.plain) / median(perToken.speculative),
    same: texts.plain === texts.speculative,
    stats: count(runs.speculative[0]),
    typical: each((turns) => [...turns].sort(byTime)[turns.length >> 1]),
  };
}

/** Answers a question `TURNS` times each way and returns the race. way: what computes the passes, or "fastest". post:
 *  receives {type: "lane", lane, passes} while the first turn decodes, and {type: "turn", turn, of}. */
export async function race(engine, { question, drafter, gamma, temperature, seed, way }, post = () => {}) {
  const ids = promptIds(engine, question);
  await tryWays(engine, ids);
  computeWith(engine, way === "fastest" ? fastestWay(engine) : way);
  const { target, stop } = engine;
  engine.costs = await passCosts(engine, ids); // in every race, because one wrong time must not last
  const source = drafterOf(engine, drafter, gamma);
  const once = (lane, wanted) =>
    awaited(
      decode(target, lane === "plain" ? null : source, ids, {
        gamma: gamma || MAX_DRAFT,
        temperature,
        wanted,
        rng: seeded(seed),
        stop,
        clock,
      }),
    );
  const runs = { plain: [], speculative: [] };
  for (const each of ["speculative", "plain"]) for await (const _ of once(each, WARM_UP));
  for (let turn = 0; turn < TURNS; turn++) {
    const order = turn % 2 ? ["speculative", "plain"] : ["plain", "speculative"];
    for (const each of order) {
      const steps = [];
      let [sent, posted] = [0, clock()];
      const report = () => {
        if (turn === 0) post({ type: "lane", lane: each, passes: lane(steps, engine).slice(sent) });
        [sent, posted] = [steps.length, clock()];
      };
      for await (const step of once(each, ANSWER)) {
        steps.push(step);
        if (clock() - posted > REPORT_EVERY) report();
      }
      report();
      runs[each].push(steps);
    }
    post({ type: "turn", turn: turn + 1, of: TURNS });
  }
  const { plain, speculative, typical, ...told } = compared(runs);
  return {
    ...told,
    lanes: { plain: lane(typical.plain, engine), speculative: lane(typical.speculative, engine) },
    speedups: plain.map((time, i) => time / speculative[i]),
    perSecond: { plain: 1000 / median(plain), speculative: 1000 / median(speculative) },
    costs: engine.costs,
    temperature,
    memory: engine.kernel.size(),
    kernel: engine.kernel.name,
    way: engine.way,
    threads: engine.kernel.threads,
    trial: engine.trial,
    missing: engine.missing,
  };
}
