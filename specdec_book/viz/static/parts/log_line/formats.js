// The texts that engines print about speculative decoding, read by the rows of the library's formats.json (TABLE),
// as specdec_lite/diagnosis/formats.py reads them; a test compares both on its texts.

const TOLERANCE = 0.06;
const MOST_TEXT = 1e6;
const MOST_GAMMA = 1024;
const COUNTS = ["drafts", "drafted", "accepted", "tau", "share", "gamma"];
const { definitions: DEFINITIONS, refused: REFUSED, known: KNOWN } = TABLE;

class Unreadable extends Error {}

const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

// All matches of a row's pattern, in which N is a number and ROW a row of numbers.
function matches(pattern, text) {
  const whole = pattern
    .replace(/\bROW\b/g, () => TABLE.row)
    .replace(/(?<![#A-Z\\])N(?![A-Z])/g, () => TABLE.number);
  return [...text.matchAll(new RegExp(whole, "gi"))];
}

// The last number that the first matching pattern finds, since the end of a log is the newest; null without one.
function lastNumber(patterns, text) {
  for (const pattern of [patterns].flat()) {
    const last = matches(pattern, text).at(-1);
    if (last) return Number(last[1]);
  }
  return null;
}

const isMissing = (value) => value === null || value === undefined || value.length === 0;
const mapped = (fields, of) =>
  Object.fromEntries(Object.entries(fields ?? {}).map(([name, each]) => [name, of(each)]));
const fieldsOf = (row, text) => mapped(row.fields, (patterns) => lastNumber(patterns, text));

// The counts that a row finds in a text; null if the text has another format.
function readText(row, text) {
  if (!(row.needs ?? []).every((pattern) => matches(pattern, text).length)) return null;
  if (row.begin) text = text.slice(matches(row.begin, text).at(-1)?.index ?? text.length);
  let values = row.each ? newestOfEach(row, text) : fieldsOf(row, text);
  if (row.counters) values = counters(row, text);
  if (row.rates) {
    const last = matches(row.rates, text).at(-1);
    values.rates = last ? [...last[1].matchAll(/\d+(?:\.\d+)?/g)].map(([number]) => Number(number)) : [];
  }
  if (row.positions)
    values.rates = inOrder(new Map(matches(row.positions, text).map(([, ...pair]) => pair.map(Number))));
  if (Object.values(values).every(isMissing) && !row.needs)
    return row.begin && text ? completed(row, values) : null;
  if ((row.required ?? []).some((name) => isMissing(values[name]))) return null;
  const counts = completed(row, values);
  if (counts.tau !== null || !row.without_tau) return counts;
  const other = TABLE.texts.find((each) => each.engine === row.without_tau);
  return readText(other, text) ?? counts;
}

// The fields summed over the newest complete line of each name.
function newestOfEach(row, text) {
  const newest = new Map();
  for (const [, name, line] of matches(row.each, text)) {
    const values = fieldsOf(row, line);
    if (!Object.values(values).includes(null)) newest.set(name, values);
  }
  const lines = [...newest.values()];
  const sums = {};
  for (const line of lines)
    for (const [name, value] of Object.entries(line)) sums[name] = (sums[name] ?? 0) + value;
  if (lines.length > 1)
    sums.note = `the rounds of several drafters are counted together: ${[...newest.keys()].join(", ")}`;
  return sums;
}

// [name, labels, value] of the lines of a metrics page, one prefix per line.
function* metricLines(text, prefix) {
  const form = new RegExp(String.raw`(\w+)(?:\{([^}]*)\})?[ :=]+${TABLE.number}\s*$`, "y");
  for (const line of text.split(/\r\n|[\n\r]/)) {
    const begin = line.indexOf(prefix);
    if (begin < 0) continue;
    form.lastIndex = begin + prefix.length;
    const match = form.exec(line);
    if (match) yield [match[1].replace(/_total$/, ""), match[2] ?? "", Number(match[3])];
  }
}

// The values of a metrics page, summed over labels, or the last of each gauge.
function counters(row, text) {
  const totals = new Map();
  const byPosition = new Map();
  const add = (map, key, value) => map.set(key, (row.last ? 0 : (map.get(key) ?? 0)) + value);
  for (const [name, labels, value] of metricLines(text, row.counters)) {
    add(totals, name, value);
    const position = /position="(\d{1,4})"/.exec(labels);
    if (name === row.by_position && position) add(byPosition, Number(position[1]), value);
  }
  const values = mapped(row.names, (name) => totals.get(name) ?? null);
  for (const [field, [prefix, wanted]] of Object.entries(row.also ?? {})) {
    const found = [...metricLines(text, prefix)].filter(([name]) => name === wanted);
    values[field] = found.length ? sum(found, ([, , value]) => value) : null;
  }
  if (values.drafts) values.rates = inOrder(byPosition).map((count) => count / values.drafts);
  return values;
}

// Values of positions 0, 1, …; empty if a position is missing.
function inOrder(values) {
  const ordered = Array.from({ length: values.size }, (_, i) => values.get(i));
  return ordered.includes(undefined) ? [] : ordered;
}

// A row's counts, with what follows from its other numbers.
function completed(row, values) {
  for (const [name, sign, first, second] of row.derived ?? [])
    values[name] ??= combined(sign, values[first], values[second]);
  for (const name of row.percent ?? [])
    if (!isMissing(values[name]))
      values[name] = name === "rates" ? values.rates.map((each) => each / 100) : values[name] / 100;
  const of = (name) => values[name] ?? null;
  const counts = {
    engine: row.engine,
    ...Object.fromEntries([...COUNTS, "whole", "steps"].map((name) => [name, of(name)])),
    rates: values.rates ?? [],
    verified: null,
    definition: DEFINITIONS[row.definition ?? "pooled"],
    testsAll: row.tests_all ?? false,
    notes: [...(row.notes ?? []), ...(values.note ? [values.note] : [])],
  };
  if (row.rounding) solveSglang(counts, row.rounding, of("rate"), of("cap"));
  return counts;
}

// A sum, difference or quotient; null if a part is no number or the divisor is 0.
function combined(sign, first, second) {
  if (!isNumber(first) || !isNumber(second) || (sign === "/" && !second)) return null;
  return { "+": first + second, "-": first - second, "/": first / second }[sign];
}

// SGLang ------------------------------------------------------------------------------------------

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
function solveSglang(found, rounding, rate, cap) {
  const isNew = cap !== null || found.whole !== null; // DSpark came after the rate changed
  if (rate !== null && rate > 1)
    found.share = rate; // which is refused
  else if (rate && found.tau > 1 && found.tau < 1e6) found.gamma = sglangGamma(found, rate, rounding, isNew);
  if (found.gamma === null)
    found.notes.push("γ is --speculative-num-draft-tokens less one, since that number counts the root");
  if (cap !== null) {
    found.verified = Math.max(0, cap - 1);
    found.notes.push(
      `cap len ${short(cap)} counts the root: ${twoDigits(found.verified)} drafts per round were verified`,
    );
  }
  if (found.whole !== null)
    found.notes.push(
      `block accept len ${short(found.whole)} is the length if the whole block had been verified; with γ, α is solved from it`,
    );
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

const total = (values) => (values.every(isNumber) ? sum(values) : null);

// The counts of several requests or iterations, summed; those of one as they are.
function pooled(requests) {
  const [first] = requests;
  if (requests.length === 1) return first;
  const lengths = requests.map(({ tau, accepted, drafts }) => {
    const share = combined("/", accepted, drafts);
    return tau !== null || share === null ? tau : 1 + share;
  });
  const rounds = requests.map((each) => each.drafts);
  if (![...rounds, ...lengths].every(isNumber) || !sum(rounds)) {
    first.notes.push(`the text has ${requests.length} objects: only the first is read`);
    return first;
  }
  const drafts = sum(rounds);
  const tau = sum(lengths.map((length, i) => length * rounds[i])) / drafts;
  const width = Math.max(...requests.map((each) => each.rates.length));
  const accepted = (i) => sum(requests, (each) => (each.rates[i] ?? 0) * each.drafts);
  const rates = Array.from({ length: width }, (_, i) => accepted(i) / drafts);
  const note = `${requests.length} objects are pooled: ${twoDigits(tau)}; the mean of their lengths is ${twoDigits(sum(lengths) / lengths.length)}`;
  return {
    ...first,
    share: null,
    drafts,
    drafted: total(requests.map((each) => each.drafted)),
    accepted: total(requests.map((each) => each.accepted)),
    tau,
    rates,
    definition: DEFINITIONS.pooled,
    notes: [...first.notes.filter((each) => !each.includes("sum the counts")), note],
  };
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

function readObject(row, content) {
  const known = (keys) => content[keys.find((key) => (content[key] ?? null) !== null)] ?? null;
  const values = mapped(row.fields, known);
  if (row.histogram) {
    const histogram = known(row.histogram);
    values.rates = histogram === null ? [] : ratesOf(histogram);
  }
  return completed(row, values);
}

function readObjects(text) {
  const contents = [...jsonContents(text)];
  for (const row of TABLE.objects) {
    const found = contents.flatMap((content) => objectsWith(content, row.key));
    if (found.length) return pooled(found.map((each) => readObject(row, each)));
  }
  return null;
}

// The counts of the first row that can read a text; null if none can.
function read(text) {
  for (const row of TABLE.texts) {
    const found = row.json ? readObjects(text) : readText(row, text);
    if (found) return found;
  }
  return null;
}

// A number with two digits; a tie, which only a multiple of 1/8 can be, goes to the even digit as in Python.
const twoDigits = (value) =>
  (value * 8 === Math.round(value * 8) ? roundEven(value * 100) / 100 : value).toFixed(2);
