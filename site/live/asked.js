// Answers a question with SmolLM2 in the worker: plainly and speculatively, alternating, on one clock. It returns the
// race in the form that the interactive `race` replays.

import { ChosenDrafter } from "./drafters.js";
import { count, decode, seeded } from "./speculate.js";

const ANSWER = 128; // tokens of an answer, at most
const TURNS = 3; // timed turns of each lane
const WARM_UP = 8; // tokens of each lane before the clock starts
const WIDTHS = [1, 2, 3, 4, 5, 6]; // tokens of the passes that are timed
const PASS_TURNS = 3;
const REPORT_EVERY = 80; // milliseconds between two messages with decoded text
const MAX_DRAFT = 5;

/** Returns the milliseconds of the page's clock. */
export const clock = () => performance.now();

const middle = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];

/** Returns the ids of a question in the chat's form. A special token's name in the question is plain text. */
export function promptIds({ tokenizer, chat, capacity }, question) {
  const text = question.trim();
  if (!text) throw new RangeError("The question is empty: type at least one word.");
  const room = capacity - ANSWER - MAX_DRAFT - 1;
  const ids = [
    ...tokenizer.encode(chat.before),
    ...tokenizer.encodePlain(text),
    ...tokenizer.encode(chat.after),
  ];
  if (ids.length > room)
    throw new RangeError(
      `The question has ${ids.length.toLocaleString("en")} tokens, and ${room} fit: shorten it.`,
    );
  return ids;
}

/** Returns the milliseconds of a target pass for each width, and of a draft pass of the head inside the loop. The
 *  widths alternate, so that a device that slows down affects them all. */
export function passCosts({ target, drafters }, ids) {
  const warm = { gamma: 3, temperature: 0, wanted: 16, rng: seeded(1), clock };
  const { drafting, draftPasses } = count([...decode(target, drafters.head, ids, warm)]);
  const times = WIDTHS.map(() => []),
    length = target.length;
  target.onStates = null;
  for (let turn = 0; turn <= PASS_TURNS; turn++)
    WIDTHS.forEach((width, i) => {
      const start = clock();
      target.forward(Array.from({ length: width }, (_, j) => ids[j % ids.length]));
      target.length = length;
      times[i].push(clock() - start);
    });
  return { target: times.map((each) => middle(each.slice(1))), draft: drafting / draftPasses };
}

/** Returns the drafter of a run. gamma: the draft length, 0 to choose it, and the source, in every round. */
export function drafterOf({ drafters, costs }, name, gamma) {
  if (gamma && name !== "both") return drafters[name];
  const sources = name === "both" ? Object.values(drafters) : [drafters[name]],
    chosen = new ChosenDrafter(...sources);
  chosen.costs = costs;
  return chosen;
}

/** Returns one pass as the race shows it: [[kind, text], …]. */
function words({ drafted, accepted, kind, token }, { tokenizer, stop }) {
  const text = (id) => (id === stop ? "" : tokenizer.decode([id]));
  const drafts = drafted.map((id, i) => [
    i < accepted ? "accepted" : i === accepted && kind === "recovered" ? "rejected" : "unused",
    text(id),
  ]);
  return token === null ? drafts : [...drafts, [kind, text(token)]];
}

/** Returns a lane: one entry per pass, with the seconds since the start. */
function lane(steps, engine) {
  let at = 0;
  return steps.map((step) => {
    at += (step.drafting + step.verifying + step.other) / 1000;
    return { at: Math.round(at * 1e5) / 1e5, words: words(step, engine) };
  });
}

/** Answers a question `TURNS` times each way and returns the race. post: receives {type: "lane", lane, passes} while
 *  the first turn decodes, and {type: "turn", turn, of}. */
export function race(engine, { question, drafter, gamma, temperature, seed }, post = () => {}) {
  const ids = promptIds(engine, question),
    { target, stop } = engine;
  engine.costs ??= passCosts(engine, ids);
  const source = drafterOf(engine, drafter, gamma);
  const once = (way, wanted) =>
    decode(target, way === "plain" ? null : source, ids, {
      gamma: gamma || MAX_DRAFT,
      temperature,
      wanted,
      rng: seeded(seed),
      stop,
      clock,
    });
  const runs = { plain: [], speculative: [] };
  for (const way of ["speculative", "plain"]) for (const _ of once(way, WARM_UP));
  for (let turn = 0; turn < TURNS; turn++) {
    const order = turn % 2 ? ["speculative", "plain"] : ["plain", "speculative"];
    for (const way of order) {
      const steps = [];
      let [sent, posted] = [0, clock()];
      const report = () => {
        if (turn === 0) post({ type: "lane", lane: way, passes: lane(steps, engine).slice(sent) });
        [sent, posted] = [steps.length, clock()];
      };
      for (const step of once(way, ANSWER)) {
        steps.push(step);
        if (clock() - posted > REPORT_EVERY) report();
      }
      report();
      runs[way].push(steps);
    }
    post({ type: "turn", turn: turn + 1, of: TURNS });
  }
  const seconds = (way) => runs[way].map((steps) => count(steps).milliseconds / 1000);
  const perToken = (way) => runs[way].map((steps) => count(steps).milliseconds / count(steps).tokens);
  const typical = (way) => runs[way][seconds(way).indexOf(middle(seconds(way)))];
  const [plain, speculative] = [perToken("plain"), perToken("speculative")];
  const emitted = (steps) => JSON.stringify(steps.flatMap((step) => step.emitted));
  return {
    lanes: { plain: lane(typical("plain"), engine), speculative: lane(typical("speculative"), engine) },
    speedups: plain.map((time, i) => time / speculative[i]),
    perSecond: { plain: 1000 / middle(plain), speculative: 1000 / middle(speculative) },
    same: emitted(runs.plain[0]) === emitted(runs.speculative[0]),
    stats: count(runs.speculative[0]),
    costs: engine.costs,
    temperature,
    memory: engine.kernel.size(),
    kernel: engine.kernel.name,
  };
}
