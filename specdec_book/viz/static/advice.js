// How to serve a target with drafts: six inputs, and one card of seven rows. The rules are the library's advice.json
// (TABLE), which specdec_lite/simulation/advice.py reads too; a test compares both.

const { inputs: INPUTS, rows: ROWS } = TABLE;
const UNKNOWN_LONG = 32768; // context from which a head of unstated training length is not recommended
const LARGEST = INPUTS.batch.at(-1);

const choice = (name, key) => INPUTS[name].find((entry) => entry.key === key);

function matches(when, state) {
  return Object.entries(when).every(([name, wanted]) => {
    if (wanted?.least !== undefined) return state[name] >= wanted.least;
    return [wanted].flat().includes(state[name]);
  });
}

const first = (rules, state, key = "text") => rules.find((rule) => matches(rule.when, state))[key];

// The facts that rules ask for, from the six inputs.
function stateFrom(inputs) {
  const [target, machine] = [choice("target", inputs.target), choice("machine", inputs.machine)];
  const draft = target.drafts.find((each) => !each.except?.includes(inputs.kind));
  const { method, trained = 0 } = draft;
  const long = method !== "mtp" && inputs.context > (trained || UNKNOWN_LONG - 1);
  const network = TABLE.networks.target[target.sizes] ?? TABLE.networks.none;
  const memory = inputs.engine === "llama.cpp" ? Infinity : (machine.memory ?? Infinity);
  const state = {
    ...inputs,
    place: ["laptop", "apple"].includes(machine.key) ? machine.key : "gpu",
    experts: target.experts ?? false,
    bits: target.bits ?? 16,
    draft,
    method,
    trained,
    positions: draft.positions ?? 0,
    long: long && (trained > 0 || "unstated"),
    fits: weightBytes(network) / 1e9 <= 0.9 * memory,
  };
  return { ...state, use: first(TABLE.do, state, "use") };
}

// The sizes of the target, its draft and the cards; null if they are not in the lists.
function networks(state) {
  const [target, machine] = [choice("target", state.target), choice("machine", state.machine)];
  const head = TABLE.networks[state.method]?.[target.sizes];
  if (!head || !machine.card || !["head", "ngram"].includes(state.use)) return null;
  return {
    target: TABLE.networks.target[target.sizes],
    draft: state.use === "ngram" ? TABLE.networks.none : head,
    machine: { ...TABLE.cards[machine.card], gpus: machine.gpus },
    batch: state.batch,
    context: state.context,
  };
}

function engineFor(state, known) {
  const engine = TABLE.engines[state.engine] ?? TABLE.engines.fitted;
  if (!known || !state.tau || !state.speedup) return engine;
  return calibrate({ ...known, gamma: state.gamma || 3 }, engine, state.tau, state.speedup) ?? engine;
}

const spaced = (value) => JSON.stringify(value).replace(/[,:]/g, "$& "); // as Python writes it

function gainText(state, known, ranges) {
  const published = first(TABLE.gains, state);
  const { inside, rows } = TABLE.band;
  if (!known) return `Not computed: ${first(TABLE.uncomputed, state)}. Published: ${published}`;
  if (state.use === "ngram") return `${TABLE.ngram} Published: ${published}`;
  const engine = engineFor(state, known);
  const [{ context, tau }, alpha] = [state, state.alpha || TABLE.alpha];
  let [lead, batch] = ["Likely", state.batch];
  let gamma = ranges.find(([begin, end]) => begin <= batch && batch <= end)[2];
  if (!gamma) {
    lead = `The schedule drafts nothing at ${plural(batch, "request")}. With drafts, likely`;
    [, batch, gamma] = ranges.findLast((range) => range[2]) ?? [0, batch, 1];
  }
  const trained = state.trained || Infinity;
  const e = estimate({ ...known, batch, gamma, trained }, engine, expectedTokens(alpha, gamma));
  e.doubts.push(...TABLE.doubts.filter(({ when }) => matches(when, state)).map(({ text }) => text));
  let [outcome, origin] = [`**${verdict(e)}**`, "given"];
  if (!state.alpha) {
    const least = e.tokens / e.low;
    const sure = `if your α is at least ${fittedAlpha(least, gamma).toFixed(2)}`;
    outcome = e.doubts.length ? `**measure**; by its sizes it pays ${sure}` : `**pays ${sure}**`;
    if (least >= gamma + 1) outcome = "**measure**: no α is sure to pay";
    origin = "assumed, not measured";
    const found = tau && fittedAlpha(tau, state.gamma || 3).toFixed(2);
    if (tau) origin += `; if drafts made your τ, not a coin, enter α = ${found}`;
  }
  let doubts = e.doubts.map((doubt) => ` Doubt: ${doubt}.`).join("");
  const caches = state.batch * context * known.target.cache_bytes;
  const need = (weightBytes(known.target) + weightBytes(known.draft) + caches) / 1e9;
  const { memory } = choice("machine", state.machine);
  if (need > 0.9 * memory)
    doubts += ` Weights and caches: ${need.toFixed(0)} of ${memory} GB, so fewer requests run at once.`;
  const record = engine.batch
    ? "One measured round set this band."
    : `With a measured τ, such bands held ${inside} of ${rows} unseen rows.`;
  return `${lead} ${e.speedup.toFixed(2)}× at ${plural(batch, "request")} with γ = ${gamma}, band ${e.low.toFixed(2)} to ${e.high.toFixed(2)}×: ${outcome}. α = ${alpha.toFixed(2)} is ${origin}.${doubts} ${record} Published: ${published}`;
}

// The seven rows [name, Markdown] for six inputs.
function card(inputs) {
  const state = stateFrom(inputs);
  const known = networks(state);
  const [target, machine] = [choice("target", state.target), choice("machine", state.machine)];
  let [ranges, off] = [[], {}];
  const quoting = networks({ ...state, use: "ngram" });
  if (known && state.use === "head") {
    const [engine, alpha] = [engineFor(state, known), state.alpha || TABLE.alpha];
    ranges = schedule(known, engine, alpha, TABLE.longest[state.method]);
    const least = ranges.findLast((range) => range[2])?.[2] ?? 1;
    const found = switchOff({ ...known, gamma: least }, engine, expectedTokens(alpha, least), LARGEST);
    const [sure, lost] = found.map((batch) => (batch ? batch - 1 : `${LARGEST} or more`));
    off = { least, sure, lost };
  } else if (quoting) {
    const { round, step, low } = estimate({ ...quoting, gamma: 4 }, engineFor(state, quoting), 1);
    off = { cost: (round / step).toFixed(2), surely: (1 / low).toFixed(2) };
  }
  const gamma = ranges.length ? Math.max(1, ranges[0][2]) : state.kind === "batch" ? 1 : 3;
  const { draft, method } = state;
  const values = {
    ...state,
    target: target.repo,
    draft: draft.repo,
    trained: state.trained.toLocaleString("en-US"),
    gamma,
    root: gamma + 1,
    tp: machine.gpus > 1 ? ` \\\n  --tensor-parallel-size ${machine.gpus}` : "",
    tp_size: machine.gpus > 1 ? ` --tp-size ${machine.gpus}` : "",
    slots: Math.max(64, state.batch),
    sampled: first(TABLE.sampled, state),
    beyond: first(TABLE.beyond, state),
    vllm_schedule: spaced(ranges),
    sglang_schedule: spaced(Object.fromEntries(ranges.map(([b, , g]) => [b, { candidate_steps: [g] }]))),
    vllm_positions: TABLE.vllm_positions,
    ...off,
  };
  const filled = (text) => text.replace(/\{(\w+)\}/g, (whole, name) => values[name] ?? whole);
  let checkpoint = "None.";
  if (!["none", "ngram"].includes(state.use)) {
    const link = draft.repo.includes("/") ? `[${draft.repo}](${TABLE.hub}/${draft.repo})` : "";
    const stated = state.trained ? `trained at ${values.trained} tokens` : "trained length not stated";
    const parts = [link, method === "mtp" ? "" : stated, draft.note];
    checkpoint = `${parts.filter(Boolean).join("; ")}.${first(TABLE.notes, state)}`;
  }
  const troubles = TABLE.wrong.filter((rule) => matches(rule.when, state)).slice(0, 3);
  const texts = [
    filled(first(TABLE.do, state)),
    `\`\`\`bash\n${filled(first(TABLE.lines, state))}\n\`\`\`\n${filled(first(TABLE.starts, state))}`,
    checkpoint,
    filled(gainText(state, known, ranges)),
    filled(first(TABLE.schedules, { ...state, computed: Object.keys(off).length > 0 })),
    filled(first(TABLE.measure, state)),
    troubles.map(({ text }, i) => `${i + 1}. ${filled(text)}`).join("\n"),
  ];
  return ROWS.map((name, i) => [name, texts[i]]);
}

// Drawing -----------------------------------------------------------------------------------------

// The nodes of a line of Markdown: `code`, **bold** and links.
function inline(text) {
  const parts = text.split(/(`[^`]+`|\*\*[^*]+\*\*|\*[^*]+\*|\[[^\]]+\]\([^)]+\))/);
  return parts.map((part) => {
    const link = /^\[([^\]]+)\]\(([^)]+)\)$/.exec(part);
    if (link) return make("a", { href: link[2] }, link[1]);
    const [, sign, words] = /^(`|\*\*?)([^]*)\1$/.exec(part) ?? [];
    return sign ? make({ "`": "code", "**": "strong", "*": "em" }[sign], {}, words) : part;
  });
}

function nodesOf(text) {
  const code = /^```bash\n([\s\S]*?)\n```\n([\s\S]*)$/.exec(text);
  if (code)
    return [make("pre", { tabindex: 0 }, make("code", {}, code[1])), make("p", {}, ...inline(code[2]))];
  const items = text.split("\n").map((line) => line.replace(/^\d\. /, ""));
  if (items.length === 1) return inline(text);
  return [make("ol", {}, ...items.map((item) => make("li", {}, ...inline(item))))];
}

function render(context) {
  const menuOf = ([name, text]) => {
    const keys = INPUTS[name].map((entry) => entry.key ?? entry);
    const options = INPUTS[name].map((entry) => ({ label: entry.name ?? String(entry) }));
    return { name, text, options, read: (i) => keys[i], place: (key) => keys.indexOf(key) };
  };
  const answer = make("dl", { class: "sdl-card", "aria-live": "polite", tabindex: 0 });
  const rowOf = ([name, text]) => [make("dt", {}, name), make("dd", {}, ...nodesOf(text))];
  const draw = (s) => {
    answer.replaceChildren(...card(s).flatMap(rowOf));
    const { batch, factor } = engineFor(s, networks(stateFrom(s)));
    const note = batch
      ? `Calibrated: your engine’s overheads are ${factor.toFixed(2)} times the fitted ones. Gain and schedule follow.`
      : "After the first run, synthetic or not, enter its τ and its speedup at this number of requests: they set the cost of a round. α comes from your own text.";
    return [[], () => [note, ""]];
  };
  const spec = {
    name: "advice",
    label: "How to serve your target",
    values: [...Object.keys(TABLE.menus), ...TABLE.measured.map(([name]) => name)],
    controls: [...Object.entries(TABLE.menus).map(menuOf), ...boxesOf(TABLE.measured)],
  };
  const layout = ({ spoken, controls }) => {
    const nodes = Object.values(controls);
    const count = Object.keys(TABLE.menus).length;
    return [controlRow(...nodes.slice(0, count)), answer, controlRow(...nodes.slice(count)), spoken];
  };
  return panel(context, spec, layout, draw);
}

export default { render, formulas: { card } };
