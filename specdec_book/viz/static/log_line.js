// What an engine prints about speculative decoding, read in the book's terms. `explain` is the function of
// specdec_lite/diagnosis/metrics.py with the readers of formats.py and json_formats.py; a test compares both on its texts.

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
  const line = re`draft acceptance(?: rate)?\s*=\s*(?:${NUMBER}|-?nan)\s*\(\s*(\d+) accepted /\s*(\d+) generated.*`;
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
      drafts: difference(s.predicted_n, s.draft_n_accepted),
      drafted: given(s.draft_n),
      accepted: s.draft_n_accepted,
      definition: REQUEST,
      notes: ["passes = predicted_n − draft_n_accepted, which includes rounds without a draft"],
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

// A value as Python shows it, for numbers and texts.
const shownValue = (value) =>
  typeof value === "string" ? `'${value}'` : isNumber(value) ? short(value) : String(value);

function check(found) {
  for (const name of ["drafts", "drafted", "accepted", "tau", "share", "gamma"]) {
    const value = found[name];
    if (value !== null && !(isNumber(value) && value >= 0))
      throw new Unreadable(`${found.engine}: ${name} is ${shownValue(value)}: must be a number ≥ 0`);
  }
  if (found.accepted !== null && found.drafted) {
    const printed = found.share;
    found.share = found.accepted / found.drafted;
    if (printed !== null && Math.abs(printed - found.share) > 0.01 && !found.testsAll)
      found.notes.push(
        `the printed rate ${printed.toFixed(3)} is not accepted ÷ drafted, ${found.share.toFixed(3)}`,
      );
  }
  if (found.share !== null && found.share > 1)
    throw new Unreadable(`accepted ÷ drafted is ${found.share.toFixed(3)}: must be in [0, 1]`);
  if (found.tau !== null && found.tau < 1)
    throw new Unreadable(
      `the acceptance length is ${found.tau.toFixed(3)}: with its bonus token it is ≥ 1, so add 1 to a length without it`,
    );
  for (const [name, most] of [
    ["gamma", MOST_GAMMA],
    ["tau", MOST_GAMMA + 1],
  ])
    if (found[name] !== null && found[name] > most)
      throw new Unreadable(`${found.engine}: ${name} is too large: must be at most ${most}`);
}

function lengthOf({ tau, accepted, drafts, rates }) {
  if (tau !== null) return tau;
  if (accepted !== null && drafts) return 1 + accepted / drafts;
  return rates.length ? 1 + sum(rates) : null;
}

// [mean drafted tokens per round, its relative error]; null if it does not follow.
function meanGamma({ drafted, drafts, accepted, rates }, tau) {
  if (drafted && drafts) return [drafted / drafts, 0.01];
  if (!drafted || !accepted) return [null, 0];
  const perRound = rates.length ? sum(rates) : (tau || 1) - 1;
  const error = rates.length ? 5e-4 * rates.length : 5e-3;
  if (perRound <= error) return [null, 0];
  return [(drafted * perRound) / accepted, 0.02 + error / perRound];
}

// The drafted tokens per round: of the text, as given, or as they follow.
function knownGamma(found, tau, stated, mean, slack) {
  const own = found.rates.length || found.gamma;
  if (stated !== null && own !== null && Math.abs(own - stated) > 0.01) {
    const what = found.rates.length ? `${own} rates by position` : `γ = ${short(own)}`;
    throw new Unreadable(`gamma=${stated}: the text has ${what}`);
  }
  let gamma = stated ?? own ?? mean;
  if (gamma === null && tau !== null && found.share) gamma = (tau - 1) / found.share;
  if (gamma === null) return null;
  if (mean !== null && mean > gamma * (1 + slack) + 0.05)
    throw new Unreadable(`γ = ${short(gamma)}, but the text has ${twoDigits(mean)} drafted tokens per round`);
  if (tau !== null && tau > gamma * 1.02 + 1.05)
    throw new Unreadable(
      `γ = ${short(gamma)} allows a length of ${short(gamma + 1)}, and it is ${twoDigits(tau)}`,
    );
  return gamma;
}

// The α whose expected tokens are τ, or those of the whole block if it is stated.
function solvedAlpha({ whole, verified }, tau, gamma) {
  if (whole !== null) return gamma === null || gamma < 1 ? null : fittedAlpha(whole, gamma);
  const limit = verified ?? gamma;
  return tau === null || limit === null || limit < 1 ? null : fittedAlpha(tau, limit);
}

// The α whose expected tokens are τ for drafts of γ tokens on average, by halving an interval. A mean between two
// whole numbers is a mixture of drafts of these two lengths.
function fittedAlpha(tau, gamma) {
  if (tau >= gamma + 1) return 1;
  const shorter = Math.floor(gamma);
  const part = gamma - shorter;
  const tokens = (alpha) => {
    const least = expectedTokens(alpha, shorter);
    return least + part * (expectedTokens(alpha, shorter + 1) - least);
  };
  let [low, high] = [0, 1];
  for (let i = 0; i < 50; i++) {
    const middle = (low + high) / 2;
    if (tokens(middle) < tau) low = middle;
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
  const { engine, rates, definition } = found;
  const notes = [...found.notes];
  const tau = lengthOf(found);
  const [mean, slack] = meanGamma(found, tau);
  let gamma = knownGamma(found, tau, stated, mean, slack);
  const isShorter = mean !== null && gamma !== null && mean < gamma * (1 - slack);
  if (isShorter) {
    notes.push(
      `drafts had ${twoDigits(mean)} tokens on average, at most ${short(gamma)}: a schedule, a threshold or a short match ended them early`,
    );
    gamma = mean;
    if (rates.length)
      notes.push(
        "with such drafts the rates by position do not give accepted ÷ tested, except at position 1; α is solved from τ and the mean length",
      );
  }
  if (rates.length && tau !== null && Math.abs(tau - 1 - sum(rates)) > TOLERANCE)
    notes.push(
      `1 + Σ rates by position = ${twoDigits(1 + sum(rates))}, but the printed length is ${twoDigits(tau)}: the two cover different periods`,
    );
  const share = found.share ?? (tau !== null && gamma ? (tau - 1) / gamma : null);
  let [profile, alpha] = [[], null];
  if (rates.length) [profile, alpha] = conditional(rates);
  if (isShorter || !rates.length) [profile, alpha] = [[], solvedAlpha(found, tau, gamma)];
  if (share !== null && alpha !== null && alpha - share > 0.02 && !found.testsAll)
    notes.push(
      `accepted ÷ drafted (${twoDigits(share)}) is below α (${twoDigits(alpha)}), since drafts after a rejection are counted but never tested`,
    );
  const idle = rates.findLastIndex((rate) => rate > 0) + 1;
  if (idle > 0 && idle < rates.length)
    notes.push(
      `no draft is accepted from position ${idle + 1} on: γ is too large, or the draft has a fault there`,
    );
  const missing = [];
  if (found.drafted === 0) missing.push("drafts: nothing was drafted, so no rate follows");
  else if (tau === null) missing.push("the number of drafts (rounds), without which τ does not follow");
  if (tau !== null && !gamma && found.drafted !== 0)
    missing.push("γ, the drafted tokens per round: give gamma=");
  if (!rates.length) missing.push("rates by position, without which one α must stand for all positions");
  return {
    engine,
    tau,
    definition,
    gamma,
    rates,
    profile,
    alpha,
    alpha_is_fitted: alpha !== null && !profile.length,
    drafted_acceptance: share,
    missing,
    notes,
  };
}

// What an engine printed, in the book's terms; { error } for a text that cannot be read.
function explain(text, gamma = null) {
  try {
    if (typeof text !== "string" || !text.trim()) throw new Unreadable(`text: must contain ${KNOWN}`);
    if (text.length > MOST_TEXT)
      throw new Unreadable(`text has ${text.length} characters: at most ${MOST_TEXT}; give its last lines`);
    if (gamma !== null && !(Number.isInteger(gamma) && gamma >= 1 && gamma <= MOST_GAMMA))
      throw new Unreadable(`gamma=${shownValue(gamma)}: must be a whole number in 1 … ${MOST_GAMMA}`);
    let found = null;
    for (const reader of READERS) found ??= reader(text);
    for (const [words, reason] of Object.entries(REFUSED))
      if (!found && text.toLowerCase().includes(words.toLowerCase()))
        throw new Unreadable(`text has '${words}': ${reason}`);
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
  {
    label: "SGLang with DSpark",
    text: "Decode batch. #running-req: 32, accept len: 2.10, accept rate: 0.16, cap len: 4.20, block accept len: 3.40, gen throughput (token/s): 39.33",
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
    if (profile.length) bar(i, 0.52, profile[i], "var(--sdl-accepted)");
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
    if (isRead && reading.tau !== null) lines.unshift(`τ is ${reading.definition}`);
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
