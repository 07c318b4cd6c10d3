// What an engine prints about speculative decoding, read in the book's terms. `explain` is the function of
// specdec_lite/diagnosis/metrics.py; parts/log_line reads the rows of the library's formats.json.

// A value as Python shows it, for numbers and texts.
const shownValue = (value) =>
  typeof value === "string" ? `'${value}'` : isNumber(value) ? short(value) : String(value);

function check(found) {
  for (const name of COUNTS) {
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
  if (found.drafted === 0)
    // some print 0 or 1 for a mean over nothing
    Object.assign(found, { tau: null, share: null, drafts: null, rates: [] });
  if (found.tau !== null && found.tau < 1)
    throw new Unreadable(
      `the acceptance length is ${found.tau.toFixed(3)}: with its bonus token it is ≥ 1, so add 1 to a length without it`,
    );
  for (const [name, most] of Object.entries({ gamma: MOST_GAMMA, tau: MOST_GAMMA + 1 }))
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
  if (gamma === null && tau !== null && tau > 1.05 && found.share) gamma = (tau - 1) / found.share;
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
  if (isShorter || !rates.length)
    [profile, alpha] = [[], found.testsAll ? share : solvedAlpha(found, tau, gamma)];
  if (share !== null && alpha !== null && alpha - share > 0.02 && !found.testsAll)
    notes.push(
      `accepted ÷ drafted (${twoDigits(share)}) is below α (${twoDigits(alpha)}), since drafts after a rejection are counted but never tested`,
    );
  const idle = rates.findLastIndex((rate) => rate > 0) + 1;
  if (idle > 0 && idle < rates.length)
    notes.push(
      `no draft is accepted from position ${idle + 1} on: γ is too large, or the drafter has a fault there`,
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
    tau_all: found.steps && found.accepted !== null ? 1 + found.accepted / found.steps : null,
    gamma,
    rates,
    profile,
    alpha,
    alpha_is_fitted: alpha !== null && !profile.length && !found.testsAll,
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
    const found = read(text);
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
  "Compare τ over all steps with what a step costs in plain steps: below that number drafting loses, however high the acceptance.";

const shown = (value, digits = 2) => (value === null ? "–" : String(Number(value.toFixed(digits))));

// Bars by position: what the engine prints (of all drafts), and what tells about the draft (of those tested).
function drawPositions(svg, width, s, { rates = [], profile }) {
  if (!rates.length) return;
  const box = { left: 34, right: width - 8, top: 10, bottom: 82 };
  const y = (v) => box.bottom - v * (box.bottom - box.top);
  const step = (box.right - box.left) / rates.length;
  rulings(svg, box, y, [0, 0.5, 1]);
  const bar = (i, share, value, fill) => {
    const [from, wide] = [box.left + (i + share) * step, Math.max(1, 0.32 * step)];
    svg.append(block(from, y(value), wide, Math.max(0, box.bottom - y(value)), fill));
  };
  rates.forEach((rate, i) => {
    bar(i, 0.16, rate, "muted");
    if (profile.length) bar(i, 0.52, profile[i], "accepted");
    const middle = { class: "sdl-faint", "text-anchor": "middle" };
    svg.append(svgText(box.left + (i + 0.5) * step, 99, String(i + 1), middle));
  });
}

function render(context) {
  const { model } = context;
  const options = [{ label: "your own", text: "" }, ...EXAMPLES];
  const id = newId("log-line");
  const box = make("textarea", { id, rows: 4, spellcheck: "false" });
  box.addEventListener("input", () => assign(model, { text: box.value }));
  const notes = make("ul", { class: "sdl-notes" });
  const onward = make("p", { class: "sdl-note" });
  const draw = (s, { charts }) => {
    const { text = "", gamma } = s;
    if (box.value !== text) box.value = text;
    const at = options.findIndex((option) => option.text === text);
    Object.assign(s, { example: Math.max(0, at) });
    const reading = text.trim()
      ? explain(text, gamma || null)
      : { error: "Paste a line, or choose an example." };
    const isRead = !reading.error;
    charts.positions.node.hidden = !isRead || !reading.rates.length;
    const pairs = isRead && [
      ...(reading.tau_all === null ? [] : [["τ over all steps, which decides", shown(reading.tau_all)]]),
      ["τ, per round that drafted", shown(reading.tau)],
      ["γ, drafted per round", shown(reading.gamma)],
      ["α, accepted ÷ tested", shown(reading.alpha)],
      ["accepted ÷ drafted", shown(reading.drafted_acceptance)],
      ["engine", reading.engine],
    ];
    const lines = isRead ? [...reading.missing.map((each) => `missing: ${each}`), ...reading.notes] : [];
    if (isRead && reading.tau !== null) lines.unshift(`τ is ${reading.definition}`);
    notes.replaceChildren(...lines.map((line) => make("li", {}, line)));
    onward.replaceChildren();
    if (isRead && reading.alpha !== null && document.querySelector('[data-module="payoff"]')) {
      const settings = `alpha=${reading.alpha.toFixed(2)},gamma=${Math.min(16, Math.max(1, Math.round(reading.gamma)))}`;
      onward.append(make("a", { href: `#payoff:${settings}` }, "Use this α and γ in the calculator"));
    }
    return [pairs || [], () => [isRead ? ADVICE : reading.error, ""], reading];
  };
  const spec = {
    name: "log-line",
    label: "Read a log line",
    delay: 0,
    values: ["text", "gamma"],
    change({ example, ...changes }) {
      const { text, gamma = 0 } = options[example] ?? {};
      assign(model, example === undefined ? changes : { text, gamma });
    },
    controls: [
      { name: "example", text: "Example", options: options.map(({ label }) => ({ label })) },
      { isTyped: true, name: "gamma", text: "γ", note: "if the text lacks it", max: 64 },
    ],
    charts: {
      positions: {
        title: "Acceptance by position",
        caption: "Gray: of all drafts, as printed. Green: of those tested there.",
        height: 104,
        draw: drawPositions,
      },
    },
    shared: { key: "line", get: () => model.get("text") ?? "", set: (text) => assign(model, { text }) },
  };
  const layout = ({ spoken, tiles, controls, charts }) => [
    controlRow(...Object.values(controls)),
    field(id, "Log line, counters or JSON", box),
    ...tiles,
    spoken,
    make("div", { class: "sdl-frame" }, charts.positions.node),
    notes,
    onward,
  ];
  return panel(context, spec, layout, draw);
}

export default { render, formulas: { explain }, presets: EXAMPLES };
