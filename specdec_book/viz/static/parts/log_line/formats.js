// The texts that engines print about speculative decoding, and the numbers in each: the readers of
// specdec_lite/diagnosis/formats.py and json_formats.py; a test compares both on its texts.

const NUMBER = String.raw`(\d+(?:\.\d+)?(?:[eE][-+]?\d+)?)`;
const ROW = String.raw`[\[(]?((?:\d+(?:\.\d+)?[,\s]*)+)`;
const TOLERANCE = 0.06;
const MOST_TEXT = 1e6;
const MOST_GAMMA = 1024;
const POOLED = "pooled: all accepted tokens ÷ all rounds, plus the bonus token";
const REQUEST = "of one request, with the bonus token; a mean over requests differs from a pooled length";
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
// The text from the last match of a pattern on, so that no older line is mixed in; null without a match.
function newest(pattern, text) {
  const last = matches(pattern, text, "i").at(-1);
  return last ? text.slice(last.index) : null;
}

// [name, labels, value] of the lines of a metrics page, one prefix per line.
function* metricLines(text, prefix) {
  const form = new RegExp(re`(\w+)(?:\{([^}]*)\})?[ :=]+${NUMBER}\s*$`, "y");
  for (const line of text.split(/\r\n|[\n\r]/)) {
    const begin = line.indexOf(prefix);
    if (begin < 0) continue;
    form.lastIndex = begin + prefix.length;
    const match = form.exec(line);
    if (match) yield [match[1].replace(/_total$/, ""), match[2] ?? "", Number(match[3])];
  }
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
  whole: null,
  verified: null,
  definition: POOLED,
  testsAll: false,
  notes: [],
  ...stated,
});

// vLLM --------------------------------------------------------------------------------------------

function vllmLog(text) {
  text = newest("specdecoding metrics", text);
  if (text === null) return null;
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
  text = newest("speculative metrics", text);
  if (text === null) return null;
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
    testsAll: true,
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
  const totals = new Map();
  const accepted = new Map();
  for (const [name, labels, value] of metricLines(text, "spec_decode_")) {
    totals.set(name, (totals.get(name) ?? 0) + value);
    const position = /position="(\d{1,4})"/.exec(labels);
    if (name !== "num_accepted_tokens_per_pos" || !position) continue;
    const at = Number(position[1]);
    accepted.set(at, (accepted.get(at) ?? 0) + value);
  }
  const total = (name) => totals.get(name) ?? null;
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
  const line = re`draft acceptance(?: rate)?\s*=\s*(?:${NUMBER}|-?nan(?:\(ind\))?)\s*\(\s*(\d+) accepted /\s*(\d+) generated.*`;
  const request = matches(line, text).at(-1);
  if (!request) return null;
  const tau = lastNumber(re`mean (?:acceptance length|len)\s*=\s*${NUMBER}`, request[0]);
  const statistics = llamaStatistics(text);
  if (tau === null && statistics) return statistics;
  return counts("llama.cpp, server", {
    accepted: Number(request[2]),
    drafted: Number(request[3]),
    tau,
    rates: lastRow(re`acc(?:eptance rate)? per pos(?:ition)?\s*=\s*${ROW}`, text.slice(request.index)),
    definition: REQUEST,
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
    notes: [
      "the statistics run since the server's start, over all requests",
      ...(newest.size > 1
        ? [`the rounds of several drafters are counted together: ${[...newest.keys()].join(", ")}`]
        : []),
    ],
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
    gamma: lastNumber(re`\bn_draft\s*=\s*(\d+)`, text),
    notes: ["every target pass emits one token that was not drafted: passes = n_predict − n_accept"],
    definition: REQUEST,
  });
}

// SGLang ------------------------------------------------------------------------------------------

function sglangLog(text) {
  text = newest("(?<!block )accept len", text) ?? "";
  const length = new RegExp(re`^accept len(?:gth)?:\s+${NUMBER}`, "i").exec(text);
  if (!length) return null;
  const rate = lastNumber(re`accept rate:\s+${NUMBER}`, text);
  const cap = lastNumber(re`\bcap len:\s+${NUMBER}`, text);
  const whole = lastNumber(re`block accept len:\s+${NUMBER}`, text);
  const isNew = cap !== null || whole !== null; // DSpark came after the rate changed
  const found = sglang("SGLang, log line", Number(length[1]), rate, 5e-3, isNew);
  found.whole = whole;
  if (cap !== null) {
    found.verified = Math.max(0, cap - 1);
    found.notes.push(
      `cap len ${short(cap)} counts the root: ${twoDigits(found.verified)} drafts per round were verified`,
    );
  }
  if (whole !== null)
    found.notes.push(
      `block accept len ${short(whole)} is the length if the whole block had been verified; with γ, α is solved from it`,
    );
  return found;
}

function sglangBench(text) {
  const tau =
    lastNumber(re`token/s, acceptance length:\s+${NUMBER}`, text) ??
    lastNumber(re`\b(?:avg_spec_accept_length|acc_length)["']?\s*[=:]\s*${NUMBER}`, text);
  return tau === null ? null : sglang("SGLang, benchmark", tau, null, 5e-3);
}

function sglangFinish(text) {
  const tau = lastNumber(re`spec_accept_length['"]\s*:\s*${NUMBER}`, text);
  if (tau === null) return null;
  const rate = lastNumber(re`spec_accept_rate['"]\s*:\s*${NUMBER}`, text);
  const found = sglang("SGLang, log line of a request", tau, rate, 5e-4);
  found.definition = REQUEST;
  return found;
}

function sglangMetrics(text) {
  const gauges = new Map();
  for (const [name, , value] of metricLines(text, "sglang:spec_accept_")) gauges.set(name, value);
  if (!gauges.has("length")) return null;
  return sglang("SGLang, metrics page", gauges.get("length"), gauges.get("rate") ?? null, 5e-4);
}

// A number with six significant digits, as Python's format "g".
const short = (value) => String(Number(value.toPrecision(6)));

// The nearest whole number; of two equally near ones the even one, as Python rounds.
function roundEven(value) {
  const below = Math.floor(value);
  if (value - below !== 0.5) return Math.round(value);
  return below % 2 ? below + 1 : below;
}

// The rate has had two meanings: accepted ÷ drafted, and (accepted + 1) ÷ (drafted + 1) in releases before pull
// request 23530 (April 2026). In most cases γ is a whole number under only one of them.
function sglang(engine, tau, rate, rounding, isNew = false) {
  const found = counts(engine, { tau });
  if (rate !== null && rate > 1)
    found.share = rate; // which is refused
  else if (rate && tau > 1 && tau < 1e6) found.gamma = sglangGamma(found, rate, rounding, isNew);
  if (found.gamma === null)
    found.notes.push("γ is --speculative-num-draft-tokens less one, since that number counts the root");
  return found;
}

// The only γ that a rate allows, or null; the rate's meaning is noted.
function sglangGamma(found, rate, rounding, isNew) {
  const meanings = { "accepted ÷ drafted": (length, printed) => (length - 1) / printed };
  if (!isNew) meanings["(accepted + 1) ÷ (drafted + 1)"] = (length, printed) => length / printed - 1;
  const gammas = new Map();
  for (const [meaning, gammaOf] of Object.entries(meanings)) {
    const low = gammaOf(found.tau - rounding, rate + rounding);
    const high = gammaOf(found.tau + rounding, Math.max(rate - rounding, rounding));
    const gamma = roundEven((low + high) / 2);
    if (gamma >= 1 && low <= gamma && gamma <= high) gammas.set(meaning, gamma);
  }
  const [meaning] = [...gammas.keys()].sort();
  if (gammas.size === 1)
    found.notes.push(
      `the printed rate ${short(rate)} is ${meaning}: γ is a whole number only under this meaning`,
    );
  if (new Set(gammas.values()).size === 1) return gammas.values().next().value;
  found.notes.push(
    `the printed rate ${short(rate)} is accepted ÷ drafted, or (accepted + 1) ÷ (drafted + 1) in releases before pull request 23530: give gamma=`,
  );
  return null;
}

// TensorRT-LLM ------------------------------------------------------------------------------------

function tensorrtBench(text) {
  const tau = lastNumber(re`\[AR\]\s+AVERAGE\s*:?\s+${NUMBER}`, text);
  if (tau === null) return null;
  const notes = ["its “acceptance rate” [AR] is a length: tokens per target pass"];
  return counts("TensorRT-LLM, trtllm-bench", { tau, notes });
}

// JSON --------------------------------------------------------------------------------------------

const MOST_SCAN = 4e6; // characters that are looked at for the ends of objects

// The JSON objects of a text, in order; what is between them is ignored.
function* jsonContents(text) {
  let left = MOST_SCAN;
  for (let begin = text.indexOf("{"); begin >= 0 && left > 0; begin = text.indexOf("{", begin)) {
    const end = objectEnd(text, begin, left);
    left -= Math.abs(end) - begin;
    let content;
    try {
      if (end > 0) content = JSON.parse(text.slice(begin, end));
    } catch {
      // not an object: the next brace may begin one
    }
    if (content !== undefined) yield content;
    begin = content === undefined ? begin + 1 : end;
  }
}

// The end of the object that begins at a brace; the negative end of the search if it has none.
function objectEnd(text, begin, most) {
  let depth = 0;
  let isString = false;
  const last = Math.min(text.length, begin + most);
  for (let i = begin; i < last; i++) {
    const sign = text[i];
    if (isString) {
      if (sign === "\\") i++;
      else if (sign === '"') isString = false;
    } else if (sign === '"') isString = true;
    else if (sign === "{") depth++;
    else if (sign === "}" && --depth === 0) return i + 1;
  }
  return -last;
}

// The objects, at any depth, that have a key whose value is not null.
function objectsWith(content, key) {
  const found = [];
  const waiting = [content];
  for (let i = 0; i < waiting.length; i++) {
    const value = waiting[i];
    if (!Array.isArray(value) && Object.hasOwn(value, key) && value[key] !== null) found.push(value);
    else for (const each of Object.values(value)) if (each && typeof each === "object") waiting.push(each);
  }
  return found;
}

const given = (value) => value ?? null;
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);
const difference = (first, second) => (isNumber(first) && isNumber(second) ? first - second : null);
const quotient = (first, second) => (isNumber(first) && isNumber(second) && second ? first / second : null);
const total = (values) => (values.every(isNumber) ? sum(values) : null);

// The counts of several requests or iterations, summed; those of one as they are.
function pooled(requests) {
  const [first] = requests;
  if (requests.length === 1) return first;
  const lengths = requests.map((each) =>
    each.tau === null && isNumber(each.accepted) && isNumber(each.drafts) && each.drafts
      ? 1 + each.accepted / each.drafts
      : each.tau,
  );
  const rounds = requests.map((each) => each.drafts);
  if (![...rounds, ...lengths].every(isNumber) || !sum(rounds)) {
    first.notes.push(`the text has ${requests.length} objects: only the first is read`);
    return first;
  }
  const drafts = sum(rounds);
  const tau = sum(lengths.map((length, i) => length * rounds[i])) / drafts;
  const width = Math.max(...requests.map((each) => each.rates.length));
  const rates = Array.from(
    { length: width },
    (_, i) =>
      sum(requests.filter((each) => i < each.rates.length).map((each) => each.rates[i] * each.drafts)) /
      drafts,
  );
  const note = `${requests.length} objects are pooled: ${twoDigits(tau)}; the mean of their lengths is ${twoDigits(sum(lengths) / lengths.length)}`;
  return counts(first.engine, {
    drafts,
    drafted: total(requests.map((each) => each.drafted)),
    accepted: total(requests.map((each) => each.accepted)),
    tau,
    rates,
    notes: [...first.notes.filter((each) => !each.includes("sum the counts")), note],
  });
}

function ratesOf(histogram) {
  const isObject = histogram && typeof histogram === "object" && !Array.isArray(histogram);
  const keys = isObject ? Object.keys(histogram) : null;
  if (keys?.every((key) => /^\d+$/.test(key)))
    histogram = keys.sort((a, b) => a - b).map((key) => histogram[key]);
  if (!Array.isArray(histogram) || !histogram.every((value) => isNumber(value) && value >= 0))
    throw new Unreadable("must be a list of counts");
  const all = sum(histogram);
  if (histogram.length < 2 || !(all > 0)) return [];
  let rest = all;
  return histogram.slice(0, -1).map((count) => (rest -= count) / all);
}

const TIMINGS_NOTE = "passes = predicted_n − draft_n_accepted, which includes rounds without a draft";

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
    counts(s.draft_rounds == null ? "llama.cpp, timings" : "mlx-vlm, timings", {
      drafts: s.draft_rounds ?? difference(s.predicted_n, s.draft_n_accepted),
      drafted: given(s.draft_n),
      accepted: s.draft_n_accepted,
      definition: REQUEST,
      notes: s.draft_rounds == null ? [TIMINGS_NOTE] : [],
    }),
  total_draft_tokens: (s) =>
    counts("TensorRT-LLM, metrics of a request", {
      drafts: given(s.num_spec_steps),
      drafted: s.total_draft_tokens,
      accepted: given(s.total_accepted_draft_tokens),
      rates: ratesOf(s.acceptance_histogram ?? []),
      definition: REQUEST,
    }),
  acceptance_histogram: (s) =>
    counts("vLLM, metrics of a request", {
      drafts: given(s.num_spec_steps),
      drafted: given(s.num_draft_tokens),
      accepted: given(s.num_accepted_draft_tokens),
      tau: given(s.mean_acceptance_length),
      share: given(s.draft_acceptance_rate),
      rates: ratesOf(s.acceptance_histogram),
      definition: REQUEST,
      notes: ["steps without a draft are left out"],
    }),
  spec_verify_ct: (s) =>
    counts("SGLang, meta_info", {
      drafts: s.spec_verify_ct || null,
      drafted: given(s.spec_draft_token_num ?? s.spec_num_proposed_drafts),
      accepted: given(s.spec_accept_token_num ?? s.spec_num_correct_drafts),
      rates: ratesOf(s.spec_correct_drafts_histogram ?? s.spec_accept_histogram ?? []),
      tau: given(s.spec_accept_length) ?? quotient(s.completion_tokens, s.spec_verify_ct),
      definition: REQUEST,
      notes: ["the length is completion_tokens ÷ spec_verify_ct, the bonus token included"],
    }),
};

function jsonText(text) {
  const contents = [...jsonContents(text)];
  for (const [key, reader] of Object.entries(JSON_READERS)) {
    const found = contents.flatMap((content) => objectsWith(content, key));
    if (found.length) return pooled(found.map(reader));
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
  jsonText,
  sglangLog,
  sglangBench,
  sglangFinish,
];
const REFUSED = {
  "DiffusionDecoding metrics": "a diffusion model has denoising steps, not drafts and verification",
};
const KNOWN =
  "a line with 'SpecDecoding metrics:', counters 'spec_decode_num_…' or the output of `vllm bench serve` (vLLM); 'accept len: …', 'sglang:spec_accept_length', a 'meta_info' object or '#questions: …' (SGLang); 'draft acceptance = … ( … accepted / … generated)' or a 'timings' object (llama.cpp); a 'specDecodingStats' or 'speculative_decoding' object or '[AR] AVERAGE' (TensorRT-LLM)";

class Unreadable extends Error {}
