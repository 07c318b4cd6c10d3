// What the numbers of a run mean: pure functions, from a worker's result to a prediction and to sentences. It
// imports nothing.

/** Tokens per pass if every test succeeds with chance alpha, independently: 1 + α + … + α^γ. */
export function expectedTokens(alpha, gamma) {
  let sum = 0;
  for (let i = 0, chance = 1; i <= gamma; i++, chance *= alpha) sum += chance;
  return sum;
}

/** Wilson's 95 % interval of a rate, from successes out of trials. */
export function interval(successes, trials) {
  if (!trials) return [0, 1];
  const z = 1.959964,
    rate = successes / trials,
    scale = 1 + (z * z) / trials;
  const middle = (rate + (z * z) / (2 * trials)) / scale,
    half = (z / scale) * Math.sqrt((rate * (1 - rate)) / trials + (z * z) / (4 * trials * trials));
  return [Math.max(0, middle - half), Math.min(1, middle + half)];
}

/** The round's price in plain passes at each γ, and the speedup that follows. costs: what the worker
 *  measured. */
export function prediction({ costs, stats, options }) {
  const single = costs.target[0],
    c = costs.inLoop / single;
  const price = (gamma) => costs.target[gamma] / single + gamma * c;
  const gammas = costs.target.slice(1).map((_, i) => i + 1);
  return {
    c,
    verify: costs.target[options.gamma] / single,
    price: price(options.gamma),
    speedup: stats.tau / price(options.gamma),
    curve: gammas.map((gamma) => expectedTokens(stats.alpha || 0, gamma) / price(gamma)),
    free: gammas.map((gamma) => expectedTokens(stats.alpha || 0, gamma) / (1 + gamma * c)),
  };
}

const times = (value) => `${value.toFixed(2)}×`;
const ms = (value) =>
  value < 0.995
    ? `${value.toFixed(2)} ms`
    : value < 1000
      ? `${value.toFixed(value < 100 ? 1 : 0)} ms`
      : `${(value / 1000).toFixed(2)} s`;
const CHEAP = 0.15; // of T(1): a longer check that adds less is called nearly free
const APART = 1.3; // prediction and measurement that differ by more were not made under one load
const tokens = (count) => `${count} token${count === 1 ? "" : "s"}`;

/** A measured speedup that cannot be: above what a round's tokens over its check, or over its drafts, allow.
 *  Null where it may be true. */
export function beyond({ costs, stats, options, speedup, plain }) {
  const p = prediction({ costs, stats, options }),
    checking = stats.tau / p.verify,
    drafting = stats.tau / (1 + options.gamma * p.c),
    ceiling = Math.min(checking, drafting);
  if (speedup <= ceiling) return null;
  const why = ceiling === checking ? "its check alone" : "its drafts and one plain pass";
  const each = [...plain].sort((a, b) => a - b)[plain.length >> 1];
  return (
    `${times(speedup)} is above its ceiling of ${times(ceiling)}: a round brought ${stats.tau.toFixed(2)} tokens, and ${why} cost more than that allows. ` +
    `In the race plain decoding took ${ms(each)} a token; a pass alone took ${ms(costs.target[0])}. The two are timed apart, and one of them was disturbed: run it again.`
  );
}

/** Why the measured speedup is what it is, in sentences made of the measurements. */
export function explanation(result) {
  const { costs, stats, options, speedup, simd } = result,
    p = prediction(result),
    { gamma } = options;
  const [one, many] = [costs.target[0], costs.target[gamma]],
    best = p.curve.indexOf(Math.max(...p.curve)) + 1;
  const doubt = beyond(result);
  const sentences = [
    ...(doubt ? [doubt] : []),
    `Here a pass of the target over one token takes ${ms(one)}, over ${gamma + 1} tokens ${ms(many)} (${times(p.verify)} as long), and each draft pass adds ${p.c.toFixed(2)} of a target pass.`,
    `So a round costs ${p.price.toFixed(2)} plain passes and brings ${stats.tau.toFixed(2)} tokens: that predicts ${times(p.speedup)}, and ${times(speedup)} was measured.`,
  ];
  const drafting = gamma * p.c,
    checking = p.verify - 1,
    free = times(stats.tau / (1 + drafting));
  if (Math.max(speedup / p.speedup, p.speedup / speedup) > APART)
    return `${sentences.join(" ")} The two are too far apart to explain either: something else probably kept this device busy during part of the run. Press Run again when it is quiet.`;
  if (speedup < 1)
    sentences.push(
      stats.tau < 1 + drafting
        ? `Speculation loses here: with α = ${(stats.alpha || 0).toFixed(2)} a round brings too few tokens to pay even for its own drafts.`
        : `Speculation loses here: the drafts would pay for themselves, but checking ${gamma + 1} tokens at once costs this processor too much${simd ? "" : ", above all without SIMD"}.`,
    );
  else if (checking < CHEAP)
    sentences.push(
      `Checking ${gamma + 1} tokens is nearly free, the mark of a pass that mostly waits for its weights: what is left to gain lies in the draft.`,
    );
  else if (checking > drafting)
    sentences.push(
      `Were checking free, it would be ${free}: this processor has arithmetic to do for every extra token, not only weights to wait for.`,
    );
  else
    sentences.push(
      `Were checking free, it would be ${free}; but the drafts are the dearer part of a round here, so a smaller draft or another γ would gain more.`,
    );
  if (best !== gamma && p.curve[best - 1] > 1.03 * p.curve[gamma - 1])
    sentences.push(
      p.curve[best - 1] > 1
        ? `For this α and these costs the formula favours γ = ${best}.`
        : "For this α and these costs no γ pays.",
    );
  return sentences.join(" ");
}

/** One line for a screen reader when a run has ended. */
export function announcement({ stats, speedup, plainTokens }) {
  const [low, high] = interval(stats.accepted, stats.tested);
  return (
    `Done: ${tokens(stats.tokens)} in ${stats.passes} target passes, ${speedup.toFixed(2)} times as fast as plain decoding of ${tokens(plainTokens)}. ` +
    `Acceptance rate ${Number.isNaN(stats.alpha) ? "not measured" : `${stats.alpha.toFixed(2)}, between ${low.toFixed(2)} and ${high.toFixed(2)}`}.`
  );
}

/** Name and value of each number under the replay. */
export function readouts(result) {
  const { stats, plain, speculative, plainTokens, speedup, costs, options, same, memory } = result,
    p = prediction(result);
  const middle = (values) => [...values].sort((a, b) => a - b)[values.length >> 1];
  const [low, high] = interval(stats.accepted, stats.tested),
    ratios = plain.map((time, i) => time / speculative[i]);
  const range = (values, digits) =>
    `${Math.min(...values).toFixed(digits)} … ${Math.max(...values).toFixed(digits)}`;
  return [
    ["speedup, measured", times(speedup), `in ${ratios.length} turns ${range(ratios, 2)}`],
    ["speedup, predicted", times(p.speedup), "τ ÷ (T(γ+1)/T(1) + γc)"],
    [
      "α, accepted ÷ tested",
      Number.isNaN(stats.alpha) ? "–" : stats.alpha.toFixed(2),
      `95 %: ${low.toFixed(2)} … ${high.toFixed(2)}`,
    ],
    ["τ, tokens per target pass", stats.tau.toFixed(2), `${stats.tokens} tokens, ${stats.passes} passes`],
    ["target passes saved", `${stats.tokens - stats.passes}`, `of ${stats.tokens}`],
    [
      "time, plain",
      ms(middle(plain) * plainTokens),
      `${plainTokens} tokens, ${middle(plain).toFixed(2)} ms each`,
    ],
    [
      "time, speculative",
      ms(middle(speculative) * stats.tokens),
      `${stats.tokens} tokens, ${middle(speculative).toFixed(2)} ms each`,
    ],
    ["T(1)", ms(costs.target[0]), "target, one token"],
    [`T(γ+1) = T(${options.gamma + 1})`, ms(costs.target[options.gamma]), `${times(p.verify)} T(1)`],
    ["c, draft ÷ target", p.c.toFixed(3), `${ms(costs.inLoop)} in the loop, ${ms(costs.draft)} alone`],
    [
      "text",
      same ? "identical" : "another draw",
      options.temperature === 0
        ? same
          ? "to plain greedy decoding"
          : "rounding met a near tie"
        : "from the same law as plain",
    ],
    ["memory", `${(memory / 1e6).toFixed(0)} MB`, `target's weights in ${options.format}`],
  ];
}
