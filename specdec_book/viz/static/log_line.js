// What an engine prints about speculative decoding, read in the book's terms. `explain` is the function of
// specdec_lite/diagnosis/metrics.py with the readers of formats.py; a test compares both on its texts.

const NUMBER = String.raw`(\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)`;
const ROW = String.raw`[\[(]?((?:\d+(?:\.\d+)?[,\s]*)+)`;
const TOLERANCE = 0.06;
const re = (strings, ...values) => String.raw(strings, ...values); // a pattern, as an r-string in Python

const matches = (pattern, text, flags = "") => [...text.matchAll(new RegExp(pattern, `g${flags}`))];
const has = (pattern, text) => new RegExp(pattern, "i").test(text);
const sum = (values) => values.reduce((total, value) => total + value, 0);

// The last number that a pattern matches, since the end of a log is the newest; null without a match.
function lastNumber(pattern, text) {
  const last = matches(pattern, text, "i").at(-1);
  return last ? Number(last[1]) : null;
}
function lastRow(pattern, text) {
  const last = matches(pattern, text, "i").at(-1);
  return last ? matches(re`\d+(?:\.\d+)?`, last[1]).map(([number]) => Number(number)) : [];
}
const fraction = (percent) => (percent === null ? null : percent / 100);

// Numbers that a text states; null or empty if it does not.
const counts = (engine, stated) => ({
  engine,
  drafts: null,
  drafted: null,
  accepted: null,
  tau: null,
  share: null,
  gamma: null,
  rates: [],
  notes: [],
  ...stated,
});

// vLLM --------------------------------------------------------------------------------------------

function vllmLog(text) {
  if (!has("specdecoding metrics", text)) return null;
  return counts("vLLM, log line", {
    drafted: lastNumber(re`drafted: ${NUMBER} tokens`, text),
    accepted: lastNumber(re`accepted: ${NUMBER} tokens`, text),
    tau: lastNumber(re`mean acceptance length: ${NUMBER}`, text),
    share: fraction(lastNumber(re`draft acceptance rate: ${NUMBER}%`, text)),
    rates: lastRow(re`per-position acceptance rate: ${ROW}`, text),
    notes: ["the line covers all requests since the previous line"],
  });
}

function vllmV0Log(text) {
  if (!has("speculative metrics", text)) return null;
  const gamma = lastNumber(re`number of speculative tokens: ${NUMBER}`, text);
  const drafted = lastNumber(re`number of draft tokens: ${NUMBER}`, text);
  const emitted = lastNumber(re`number of emitted tokens: ${NUMBER}`, text);
  const drafts = drafted && gamma ? drafted / gamma : null;
  return counts("vLLM before version 1, log line", {
    drafts,
    drafted,
    accepted: lastNumber(re`number of accepted tokens: ${NUMBER}`, text),
    tau: emitted && drafts ? emitted / drafts : null,
    share: lastNumber(re`draft acceptance rate: ${NUMBER}`, text),
    gamma,
    notes: [
      "the counts run since the server's start",
      "this version tests drafts after a rejection too: its acceptance rate estimates α",
    ],
  });
}

const isComplete = (byPosition) =>
  Array.from({ length: byPosition.size }, (_, i) => i).every((i) => byPosition.has(i));

function vllmCounters(text) {
  if (!text.includes("spec_decode_num")) return null;
  const total = (name) => {
    const line = re`spec_decode_${name}(?:_total)?(?:\{[^}]*\})?[ :=]+${NUMBER}\s*$`;
    const values = matches(line, text, "m").map((match) => Number(match[1]));
    return values.length ? sum(values) : null;
  };
  const accepted = new Map();
  const line = re`accepted_tokens_per_pos(?:_total)?\{[^}]*position="(\d+)"[^}]*\}\s+${NUMBER}`;
  for (const [, position, count] of matches(line, text)) {
    const at = Number(position);
    accepted.set(at, (accepted.get(at) ?? 0) + Number(count));
  }
  const drafts = total("num_drafts");
  const ordered = [...accepted.keys()].sort((a, b) => a - b).map((at) => accepted.get(at));
  return counts("vLLM, counters", {
    drafts,
    drafted: total("num_draft_tokens"),
    accepted: total("num_accepted_tokens"),
    rates: drafts && isComplete(accepted) ? ordered.map((count) => count / drafts) : [],
    notes: ["counters run since the server's start: subtract two readings"],
  });
}

// Values of positions 0, 1, … that a pattern matches as (position, value); empty if a position is missing.
function positions(pattern, text) {
  const values = new Map(matches(pattern, text, "i").map((match) => [Number(match[1]), Number(match[2])]));
  return isComplete(values) ? Array.from({ length: values.size }, (_, i) => values.get(i)) : [];
}

function vllmExample(text) {
  const drafts = lastNumber(re`\bnum_drafts: ${NUMBER}`, text);
  if (drafts === null || !text.includes("num_accepted_tokens")) return null;
  return counts("vLLM, offline example", {
    drafts,
    drafted: lastNumber(re`num_draft_tokens: ${NUMBER}`, text),
    accepted: lastNumber(re`num_accepted_tokens: ${NUMBER}`, text),
    tau: lastNumber(re`mean acceptance length: ${NUMBER}`, text),
    rates: positions(re`acceptance at token (\d+): ${NUMBER}`, text),
  });
}

function vllmBench(text) {
  if (!has(re`acceptance rate \(%\):`, text)) return null;
  return counts("vLLM, bench serve", {
    drafts: lastNumber(re`\bdrafts:\s+${NUMBER}`, text),
    drafted: lastNumber(re`\bdraft tokens:\s+${NUMBER}`, text),
    accepted: lastNumber(re`\baccepted tokens:\s+${NUMBER}`, text),
    tau: lastNumber(re`acceptance length:\s+${NUMBER}`, text),
    share: fraction(lastNumber(re`acceptance rate \(%\):\s+${NUMBER}`, text)),
    rates: positions(re`position (\d+):\s+${NUMBER}`, text).map((percent) => percent / 100),
  });
}

// llama.cpp ---------------------------------------------------------------------------------------

function llamaServer(text) {
  const line = re`draft acceptance(?: rate)?\s*=\s*${NUMBER}\s*\(\s*(\d+) accepted /\s*(\d+) generated.*`;
  const request = matches(line, text).at(-1);
  if (!request) return null;
  const tau = lastNumber(re`mean (?:acceptance length|len)\s*=\s*${NUMBER}`, request[0]);
  const statistics = llamaStatistics(text);
  if (tau === null && statistics) return statistics;
  return counts("llama.cpp, server", {
    accepted: Number(request[2]),
    drafted: Number(request[3]),
    tau,
    rates: lastRow(re`acceptance rate per position\s*=\s*${ROW}`, request[0]),
  });
}

const STATISTICS = ["gen drafts", "gen tokens", "acc tokens"];

function llamaStatistics(text) {
  const newest = new Map();
  for (const [, name, line] of matches(re`statistics\s+([\w-]+):(.*)`, text)) {
    const values = STATISTICS.map((key) => lastNumber(re`#${key}\s*=\s*${NUMBER}`, line));
    if (!values.includes(null)) newest.set(name, values);
  }
  if (!newest.size) return null;
  const [drafts, drafted, accepted] = STATISTICS.map((_, i) =>
    sum([...newest.values()].map((values) => values[i])),
  );
  return counts("llama.cpp, server statistics", {
    drafts,
    drafted,
    accepted,
    notes: ["the statistics run since the server's start, over all requests"],
  });
}

function llamaExample(text) {
  const accepted = lastNumber(re`n_accept\s*=\s*(\d+)`, text);
  const drafted = lastNumber(re`n_drafted\s*=\s*(\d+)`, text);
  if (accepted === null || drafted === null) return null;
  const predicted = lastNumber(re`n_predict\s*=\s*(\d+)`, text);
  return counts("llama.cpp, example", {
    drafted,
    accepted,
    drafts: predicted === null ? null : predicted - accepted,
    notes: ["every target pass emits one token that was not drafted: passes = n_predict − n_accept"],
  });
}

// SGLang ------------------------------------------------------------------------------------------

function sglangLog(text) {
  const tau = lastNumber(re`accept len(?:gth)?:\s+${NUMBER}`, text);
  if (tau === null) return null;
  return sglang("SGLang, log line", tau, lastNumber(re`accept rate:\s+${NUMBER}`, text), 5e-3);
}

function sglangMetrics(text) {
  const gauge = (name) => lastNumber(re`sglang:spec_accept_${name}(?:\{[^}]*\})?\s+${NUMBER}`, text);
  const tau = gauge("length");
  return tau === null ? null : sglang("SGLang, metrics page", tau, gauge("rate"), 5e-4);
}

// The nearest whole number; of two equally near ones the even one, as Python rounds.
function roundEven(value) {
  const below = Math.floor(value);
  if (value - below !== 0.5) return Math.round(value);
  return below % 2 ? below + 1 : below;
}

// The rate has had two meanings: accepted ÷ drafted, and (accepted + 1) ÷ (drafted + 1) in releases before pull
// request 23530 (April 2026). In most cases γ is a whole number under only one of them.
function sglang(engine, tau, rate, rounding) {
  const found = counts(engine, { tau, notes: ["the length includes the bonus token"] });
  if (rate !== null && rate > 1) found.share = rate; // which is refused
  if (!rate || rate > 1 || tau <= 1) return found;
  const meanings = {
    "accepted ÷ drafted": (length, printed) => (length - 1) / printed,
    "(accepted + 1) ÷ (drafted + 1)": (length, printed) => length / printed - 1,
  };
  const gammas = new Map();
  for (const [meaning, gammaOf] of Object.entries(meanings)) {
    const low = gammaOf(tau - rounding, rate + rounding);
    const high = gammaOf(tau + rounding, Math.max(rate - rounding, rounding));
    const gamma = roundEven((low + high) / 2);
    if (gamma >= 1 && low <= gamma && gamma <= high) gammas.set(meaning, gamma);
  }
  const printed = String(Number(rate.toPrecision(6)));
  const [meaning] = [...gammas.keys()].sort();
  if (new Set(gammas.values()).size === 1) [found.gamma] = gammas.values();
  if (gammas.size === 1)
    found.notes.push(
      `the printed rate ${printed} is ${meaning}: γ is a whole number only under this meaning`,
    );
  if (found.gamma === null)
    found.notes.push(
      `the printed rate ${printed} is accepted ÷ drafted, or (accepted + 1) ÷ (drafted + 1) in releases before pull request 23530: give gamma=`,
    );
  return found;
}

// TensorRT-LLM ------------------------------------------------------------------------------------

function tensorrtBench(text) {
  const tau = lastNumber(re`\[AR\]\s+AVERAGE\s*:?\s+${NUMBER}`, text);
  if (tau === null) return null;
  const notes = ["its “acceptance rate” [AR] is a length: tokens per target pass"];
  return counts("TensorRT-LLM, trtllm-bench", { tau, notes });
}

// JSON --------------------------------------------------------------------------------------------

// The JSON object that begins at the first brace of a text; text after its end is ignored.
function firstObject(text) {
  const begin = text.indexOf("{");
  let depth = 0;
  let isString = false;
  for (let i = begin; begin >= 0 && i < text.length; i++) {
    if (isString) {
      if (text[i] === "\\") i++;
      else if (text[i] === '"') isString = false;
    } else if (text[i] === '"') isString = true;
    else if (text[i] === "{") depth++;
    else if (text[i] === "}" && --depth === 0) {
      try {
        return JSON.parse(text.slice(begin, i + 1));
      } catch {
        return null;
      }
    }
  }
  return null;
}

// The first object, at any depth, that has a key whose value is not null.
function objectWith(content, key) {
  const waiting = [content];
  while (waiting.length) {
    const value = waiting.shift();
    if (value === null || typeof value !== "object") continue;
    if (!Array.isArray(value) && Object.hasOwn(value, key) && value[key] !== null) return value;
    waiting.push(...Object.values(value));
  }
  return null;
}

const given = (value) => value ?? null;

function ratesOf(histogram) {
  const keys = Object.keys(histogram).sort((a, b) => a - b);
  const rounds = keys.map((key) => Number(histogram[key]));
  const all = sum(rounds);
  if (rounds.length < 2 || !(all > 0)) return [];
  return rounds.slice(1).map((_, i) => sum(rounds.slice(i + 1)) / all);
}

const JSON_READERS = {
  numDraftTokens: (s) =>
    counts("TensorRT-LLM, iteration statistics", {
      drafts: given(s.numRequestsWithDraftTokens),
      drafted: s.numDraftTokens,
      accepted: given(s.numAcceptedTokens),
      tau: given(s.acceptanceLength),
      notes: ["this is one iteration: sum the counts of many before you conclude anything"],
    }),
  draft_n_accepted: (s) =>
    counts("llama.cpp, timings", {
      drafts: given(s.predicted_n) === null ? null : s.predicted_n - s.draft_n_accepted,
      drafted: given(s.draft_n),
      accepted: s.draft_n_accepted,
      notes: ["passes = predicted_n − draft_n_accepted, which includes rounds without a draft"],
    }),
  acceptance_histogram: (s) =>
    counts("vLLM, metrics of a request", {
      tau: given(s.mean_acceptance_length),
      share: given(s.draft_acceptance_rate),
      rates: ratesOf(s.acceptance_histogram),
      notes: ["steps without a draft are left out"],
    }),
  spec_verify_ct(s) {
    const [passes, tokens] = [s.spec_verify_ct, s.completion_tokens];
    return counts("SGLang, meta_info", {
      drafts: passes || null,
      drafted: given(s.spec_draft_token_num ?? s.spec_num_proposed_drafts),
      accepted: given(s.spec_accept_token_num ?? s.spec_num_correct_drafts),
      rates: ratesOf(s.spec_correct_drafts_histogram ?? []),
      tau: given(s.spec_accept_length) ?? (tokens && passes ? tokens / passes : null),
      notes: ["the length is completion_tokens ÷ spec_verify_ct, the bonus token included"],
    });
  },
};

function jsonObject(text) {
  const content = firstObject(text);
  if (!content) return null;
  for (const [key, reader] of Object.entries(JSON_READERS)) {
    const statistics = objectWith(content, key);
    if (statistics) return reader(statistics);
  }
  return null;
}

// A number with two digits; a tie, which only a multiple of 1/8 can be, goes to the even digit as in Python.
const twoDigits = (value) =>
  (value * 8 === Math.round(value * 8) ? roundEven(value * 100) / 100 : value).toFixed(2);

// What follows ------------------------------------------------------------------------------------

const READERS = [
  vllmLog,
  vllmV0Log,
  vllmCounters,
  vllmBench,
  vllmExample,
  llamaServer,
  llamaStatistics,
  llamaExample,
  sglangMetrics,
  tensorrtBench,
  jsonObject,
  sglangLog,
];
const KNOWN =
  "a line with 'SpecDecoding metrics:', counters 'spec_decode_num_…' or the output of `vllm bench serve` (vLLM); 'accept len: …', 'sglang:spec_accept_length' or a 'meta_info' object (SGLang); 'draft acceptance = … ( … accepted / … generated)' or a 'timings' object (llama.cpp); a 'specDecodingStats' object or '[AR] AVERAGE' (TensorRT-LLM)";

class Unreadable extends Error {}

function check(found) {
  for (const name of ["drafts", "drafted", "accepted", "tau", "share", "gamma"]) {
    const value = found[name];
    if (value !== null && !(typeof value === "number" && value >= 0)) {
      const shown = typeof value === "string" ? `'${value}'` : String(value);
      throw new Unreadable(`${found.engine}: ${name} is ${shown}: must be a number ≥ 0`);
    }
  }
  if (found.accepted !== null && found.drafted) found.share = found.accepted / found.drafted;
  if (found.share !== null && found.share > 1)
    throw new Unreadable(`accepted ÷ drafted is ${found.share.toFixed(3)}: must be in [0, 1]`);
  if (found.tau !== null && found.tau < 1)
    throw new Unreadable(`the acceptance length is ${found.tau.toFixed(3)}: with its bonus token it is ≥ 1`);
}

function lengthOf({ tau, accepted, drafts, rates }) {
  if (tau !== null) return tau;
  if (accepted !== null && drafts) return 1 + accepted / drafts;
  return rates.length ? 1 + sum(rates) : null;
}

function impliedGamma(found, tau) {
  if (found.gamma !== null) return found.gamma;
  if (found.rates.length) return found.rates.length;
  if (found.drafted && found.drafts) return found.drafted / found.drafts;
  return tau !== null && found.share ? (tau - 1) / found.share : null;
}

// The α whose expected tokens at γ (rounded) are τ, by halving an interval.
function fittedAlpha(tau, gamma) {
  const steps = Math.max(1, roundEven(gamma));
  if (tau >= steps + 1) return 1;
  let [low, high] = [0, 1];
  for (let i = 0; i < 60; i++) {
    const middle = (low + high) / 2;
    if (expectedTokens(middle, steps) < tau) low = middle;
    else high = middle;
  }
  return (low + high) / 2;
}

// Accepted ÷ tested: [by position, over all positions].
function conditional(rates) {
  const tested = [1, ...rates.slice(0, -1)];
  if (rates.some((rate) => rate < 0 || rate > 1)) throw new Unreadable(`rates must be in [0, 1]: ${rates}`);
  if (rates.some((rate, i) => rate > tested[i]))
    throw new Unreadable(`rates must not rise: a draft accepted at i was accepted before, ${rates}`);
  return [rates.map((rate, i) => (tested[i] > 0 ? rate / tested[i] : 0)), sum(rates) / sum(tested)];
}

function conclude(found, stated) {
  const { engine, rates } = found;
  const notes = [...found.notes];
  const tau = lengthOf(found);
  const gamma = stated ?? impliedGamma(found, tau);
  if (rates.length && tau !== null && Math.abs(tau - 1 - sum(rates)) > TOLERANCE)
    notes.push(
      `1 + Σ rates by position = ${twoDigits(1 + sum(rates))}, but the printed length is ${twoDigits(tau)}: not all drafts had the same length, or the two cover different periods`,
    );
  const share = found.share ?? (tau !== null && gamma ? (tau - 1) / gamma : null);
  let [profile, alpha] = [[], null];
  if (rates.length) [profile, alpha] = conditional(rates);
  else if (tau !== null && gamma && gamma >= 1) alpha = fittedAlpha(tau, gamma);
  if (share !== null && alpha !== null && alpha - share > 0.02)
    notes.push(
      `accepted ÷ drafted (${twoDigits(share)}) is below α (${twoDigits(alpha)}), since drafts after a rejection are counted but never tested`,
    );
  const idle = rates.findLastIndex((rate) => rate > 0) + 1;
  if (idle > 0 && idle < rates.length)
    notes.push(
      `no draft is accepted from position ${idle + 1} on: γ is too large, or the draft has a fault there`,
    );
  const missing = [];
  if (tau === null) missing.push("the number of drafts (rounds), without which τ does not follow");
  if (tau !== null && !gamma) missing.push("γ, the drafted tokens per round: give gamma=");
  if (!rates.length) missing.push("rates by position, without which one α must stand for all positions");
  return {
    engine,
    tau,
    gamma,
    rates,
    profile,
    alpha,
    alpha_is_fitted: alpha !== null && !rates.length,
    drafted_acceptance: share,
    missing,
    notes,
  };
}

// What an engine printed, in the book's terms; { error } for a text that cannot be read.
function explain(text, gamma = null) {
  try {
    if (typeof text !== "string" || !text.trim()) throw new Unreadable(`text: must contain ${KNOWN}`);
    let found = null;
    for (const reader of READERS) found ??= reader(text);
    if (!found) throw new Unreadable(`text: has none of the known formats: ${KNOWN}`);
    check(found);
    return conclude(found, gamma);
  } catch (error) {
    if (error instanceof Unreadable) return { error: error.message };
    throw error;
  }
}

// The page ----------------------------------------------------------------------------------------

const EXAMPLES = [
  {
    label: "vLLM",
    text: "SpecDecoding metrics: Mean acceptance length: 2.37, Accepted: 89 tokens, Drafted: 975 tokens, Per-position acceptance rate: 0.600, 0.385, 0.215, 0.108, 0.062, 0.000, 0.000, 0.000, 0.000, 0.000, 0.000, 0.000, 0.000, 0.000, 0.000, Avg Draft acceptance rate: 9.1%",
  },
  {
    label: "llama.cpp",
    text: "draft acceptance = 0.64479 (  167 accepted /   259 generated), mean acceptance length =  2.92, acceptance rate per position = (0.805, 0.632, 0.483)",
  },
  {
    label: "SGLang",
    text: "Decode batch. #running-req: 32, accept len: 2.54, accept rate: 0.39, gen throughput (token/s): 39.33",
  },
  { label: "TensorRT-LLM", text: "[AR] MINIMUM: 1.00\n[AR] MAXIMUM: 4.00\n[AR] AVERAGE: 2.41", gamma: 3 },
];
const ADVICE =
  "Compare τ with what a round costs in plain passes: below that number drafting loses, however high the acceptance.";

const shown = (value, digits = 2) => (value === null ? "–" : String(Number(value.toFixed(digits))));

// Bars by position: what the engine prints (of all drafts), and what tells about the draft (of those tested).
function drawPositions(svg, width, { rates, profile }) {
  const box = { left: 34, right: width - 8, top: 10, bottom: 96 };
  const y = (v) => box.bottom - v * (box.bottom - box.top);
  const step = (box.right - box.left) / rates.length;
  for (const v of [0, 0.5, 1])
    svg.append(
      make("line", { class: "sdl-grid", x1: box.left, x2: box.right, y1: y(v), y2: y(v) }),
      make("text", { class: "sdl-faint", x: box.left - 6, y: y(v) + 4, "text-anchor": "end" }, String(v)),
    );
  const bar = (i, share, value, fill) =>
    svg.append(
      make("rect", {
        x: box.left + (i + share) * step,
        y: y(value),
        width: Math.max(1, 0.32 * step),
        height: Math.max(0, box.bottom - y(value)),
        fill,
      }),
    );
  rates.forEach((rate, i) => {
    bar(i, 0.16, rate, "var(--sdl-muted)");
    bar(i, 0.52, profile[i], "var(--sdl-accepted)");
    svg.append(
      make(
        "text",
        { class: "sdl-faint", x: box.left + (i + 0.5) * step, y: 113, "text-anchor": "middle" },
        String(i + 1),
      ),
    );
  });
}

function render({ model, el }) {
  const id = newId("log-line");
  const box = make("textarea", { id, rows: 4, spellcheck: "false" });
  const gammaBox = make("input", {
    id: `${id}-gamma`,
    type: "number",
    min: 1,
    max: 64,
    "data-name": "gamma",
  });
  const options = [{ label: "your own" }, ...EXAMPLES];
  const examples = indexMenu(`${id}-example`, options, (choice) => {
    const { text = "", gamma = 0 } = options[choice];
    assign(model, { text, gamma });
  });
  examples.dataset.name = "example";
  const numbers = make("dl", { class: "sdl-readouts" });
  const notes = make("ul", { class: "sdl-notes" });
  const verdict = make("p", { class: "sdl-summary", "aria-live": "polite" });
  const positionsChart = chart(
    "Acceptance by position",
    "Gray: of all drafts, as printed. Green: of those tested there.",
    "",
    { height: 118 },
  );
  const onward = make("p", { class: "sdl-note" });
  const root = make(
    "section",
    { class: "sdl sdl-low sdl-log-line", "aria-label": "Read a log line" },
    make(
      "div",
      { class: "sdl-controls" },
      field(`${id}-example`, "Example", examples),
      field(`${id}-gamma`, ["γ ", make("small", {}, "if the text lacks it")], gammaBox),
    ),
    field(id, "Log line, counters or JSON", box),
    numbers,
    verdict,
    make("div", { class: "sdl-frame" }, positionsChart.node),
    notes,
    onward,
  );
  box.addEventListener("input", () => assign(model, { text: box.value }));
  gammaBox.addEventListener("input", () => assign(model, { gamma: Number(gammaBox.value) || 0 }));
  root.addEventListener("keydown", (event) => event.stopPropagation());
  root.sdlState = {
    key: "line",
    get: () => model.get("text") ?? "",
    set: (text) => assign(model, { text }),
  };
  const draw = () => {
    const text = model.get("text") ?? "";
    const gamma = model.get("gamma") || null;
    if (box.value !== text) box.value = text;
    if (document.activeElement !== gammaBox) gammaBox.value = gamma ?? "";
    examples.value = String(
      Math.max(
        0,
        options.findIndex((option) => option.text === text),
      ),
    );
    const reading = text.trim() ? explain(text, gamma) : { error: "Paste a line, or choose an example." };
    const isRead = !reading.error;
    positionsChart.node.hidden = !isRead || !reading.rates.length;
    define(
      numbers,
      isRead
        ? [
            ["engine", reading.engine],
            ["τ, tokens per target pass", shown(reading.tau)],
            ["γ, drafted per round", shown(reading.gamma)],
            ["α, accepted ÷ tested", shown(reading.alpha)],
            ["accepted ÷ drafted", shown(reading.drafted_acceptance)],
          ]
        : [],
    );
    verdict.textContent = isRead ? ADVICE : reading.error;
    const lines = isRead ? [...reading.missing.map((each) => `missing: ${each}`), ...reading.notes] : [];
    notes.replaceChildren(...lines.map((line) => make("li", {}, line)));
    onward.replaceChildren();
    if (isRead && reading.alpha !== null && document.querySelector('[data-module="payoff"]')) {
      const settings = `alpha=${reading.alpha.toFixed(2)},gamma=${Math.min(16, Math.max(1, Math.round(reading.gamma)))}`;
      onward.append(make("a", { href: `#payoff:${settings}` }, "Use this α and γ in the calculator"));
    }
    if (positionsChart.node.hidden) positionsChart.svg.replaceChildren();
    else drawPositions(...blank(positionsChart), reading);
  };
  return live({ model, el }, root, ["text", "gamma"], draw, () => {});
}

export default { render, formulas: { explain }, presets: EXAMPLES };
