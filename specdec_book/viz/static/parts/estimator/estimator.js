// The estimator of specdec_lite/simulation/estimate.py; a test compares both on a grid.

// Costs of a round and of a plain step in seconds, for one engine.
function costs({ target, draft, machine, gamma, batch, context }, engine) {
  const pass = (tokens) => passSeconds(target, machine, engine, batch, tokens, context);
  const [passes, tokens] = draft.block ? [1, gamma + 1] : [gamma, 1];
  const drafting = passes * draftSeconds(draft, machine, engine, batch, context, tokens);
  const [verify, plain] = [pass(gamma + 1), pass(1)];
  const [overhead, rest] = [gamma, 0].map((length) => restSeconds(engine, batch, length));
  const host = draft.parameters ? 0 : engine.per_host;
  const round = drafting + verify + overhead + host;
  return { draft: drafting, verify, overhead: overhead + host, plain, round, step: plain + rest };
}

const [UNSPLIT, SHORT] = [10, 2048];

// The same with the speedup, the ends of its band of 80 %, and why the sizes cannot promise a gain.
function estimate(setting, engine, tokens) {
  const speedup = (which) => {
    const { round, step } = costs(setting, which);
    return (tokens * step) / round;
  };
  const likely = speedup(engine);
  let ends;
  if (engine.batch) {
    const margin = 0.06 + 0.04 * Math.abs(Math.log2(setting.batch / engine.batch));
    ends = [likely * (1 - margin), likely * (1 + margin)];
  } else {
    const away = Math.exp(1.2816 * engine.spread);
    const at = (f, changed) => speedup({ ...engine, factor: engine.factor * f, ...changed });
    const unsplit = setting.context > SHORT ? UNSPLIT : 1;
    ends = [at(away, { unsplit }) * (1 - engine.error), at(1 / away, { per_host: 0 }) * (1 + engine.error)];
  }
  const [low, high] = ends;
  const doubts = doubtsAbout(setting, engine);
  return { ...costs(setting, engine), tokens, speedup: likely, low, high, doubts };
}

function doubtsAbout({ target, draft, machine, batch, context, trained = Infinity }, engine) {
  if (engine.batch) return [];
  const isOnCards = machine.gpus > 1 && draft.layers > 1 && !draft.block;
  return [
    target.experts > 1 && "mixtures of experts rest on two sources",
    batch > 64 && "no batch above 64 was tested",
    isOnCards && "a draft model on several cards lost by half where vLLM measured it",
    draft.parameters === 0 && "drafts from the host: one source measured their cost",
    context > trained && `the context is longer than the ${trained} tokens that the draft was trained for`,
  ].filter(Boolean);
}

const verdict = (r) => (r.high < 0.95 ? "loses" : r.low > 1.05 && !r.doubts?.length ? "pays" : "measure");

// The engine whose factor makes a measured round come out right; null if the sizes contradict it.
function calibrate(setting, engine, tau, speedup) {
  const [free, full] = [0, 1].map((factor) => costs(setting, { ...engine, factor }));
  const factor = ((tau / speedup) * full.step - free.round) / (full.round - free.round);
  return factor > 0 ? { ...engine, factor, batch: setting.batch } : null;
}

// First batches at which the lower and the upper end of the band are below 1; null if there are none.
function switchOff(setting, engine, tokens, largest = 512) {
  const found = [null, null];
  for (let batch = 1; batch <= largest; batch++) {
    const { low, high } = estimate({ ...setting, batch }, engine, tokens);
    [low, high].forEach((end, i) => {
      if (found[i] === null && end < 1) found[i] = batch;
    });
  }
  return found;
}

// The best γ by batch as ranges [first batch, last batch, γ].
function schedule(setting, engine, alpha, longest) {
  let most = longest;
  const ranges = Object.entries({ 1: 7, 8: 31, 32: 64 }).map(([begin, end]) => {
    const gain = (gamma) =>
      gamma ? estimate({ ...setting, gamma, batch: end }, engine, expectedTokens(alpha, gamma)).speedup : 1;
    const gains = [...Array(most + 1).keys()].map((gamma) => Number(gain(gamma).toFixed(2)));
    most = gains.indexOf(Math.max(...gains));
    return [Number(begin), end, most];
  });
  return [...ranges, [65, 512, 0]];
}

// The controls of numbers that a reader has measured, of rows of a name, its label, a note, the largest number and whether
// it counts.
const boxesOf = (rows) =>
  rows.map(([name, text, note, max, isWhole]) => ({ isTyped: true, name, text, note, max, isWhole }));
