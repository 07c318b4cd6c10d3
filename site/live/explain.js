// Explains the numbers of a run: pure functions from a worker's result to a prediction and to sentences.

import { expectedTokens, plural, times } from "../../specdec_book/viz/static/kit.js";
import { median } from "./median.js";

/** Returns Wilson's 95 % interval of a rate, from a number of successes and of trials. */
export function interval(successes, trials) {
  if (!trials) return [0, 1];
  const z = 1.959964,
    rate = successes / trials,
    scale = 1 + (z * z) / trials;
  const middle = (rate + (z * z) / (2 * trials)) / scale,
    half = (z / scale) * Math.sqrt((rate * (1 - rate)) / trials + (z * z) / (4 * trials * trials));
  return [Math.max(0, middle - half), Math.min(1, middle + half)];
}

/** Returns a round's cost in plain passes, and the speedup that follows from it, at each γ. costs: measured by the
 *  worker. */
export function prediction({ costs, stats, options }) {
  const single = costs.target[0],
    c = costs.inLoop / single;
  const cost = (gamma) => costs.target[gamma] / single + gamma * c;
  const gammas = costs.target.slice(1).map((_, i) => i + 1);
  return {
    c,
    verify: costs.target[options.gamma] / single,
    cost: cost(options.gamma),
    speedup: stats.tau / cost(options.gamma),
    curve: gammas.map((gamma) => expectedTokens(stats.alpha || 0, gamma) / cost(gamma)),
    free: gammas.map((gamma) => expectedTokens(stats.alpha || 0, gamma) / (1 + gamma * c)),
  };
}

const ms = (value) =>
  value < 0.995
    ? `${value.toFixed(2)} ms`
    : value < 1000
      ? `${value.toFixed(value < 100 ? 1 : 0)} ms`
      : `${(value / 1000).toFixed(2)} s`;
const NEARLY_FREE = 0.15; // of T(1): the page calls a smaller extra cost of verification nearly free
const DISTURBED = 1.3; // a larger ratio of prediction and measurement means that the load changed in between

/** Explains a measured speedup above its ceiling: the round's tokens divided by the cost of its verification, or
 *  of its drafts and one plain pass. Returns null if the speedup is possible. */
export function doubtAbout({ costs, stats, options, speedup, plain }) {
  const p = prediction({ costs, stats, options }),
    checking = stats.tau / p.verify,
    drafting = stats.tau / (1 + options.gamma * p.c),
    ceiling = Math.min(checking, drafting);
  if (speedup <= ceiling) return null;
  const why = ceiling === checking ? "its verification alone" : "its drafts and one plain pass";
  return (
    `${times(speedup)} is above its ceiling of ${times(ceiling)}: a round gave ${stats.tau.toFixed(2)} tokens, and ${why} cost more than such a speedup allows. ` +
    `In the comparison, plain decoding took ${ms(median(plain))} per token; a single pass took ${ms(costs.target[0])}. These two times are measured separately, and another program disturbed one of them. Run it again.`
  );
}

/** Returns sentences that explain the measured speedup with the measured costs. */
export function explanation(result) {
  const { costs, stats, options, speedup, simd } = result,
    p = prediction(result),
    { gamma } = options;
  const [one, many] = [costs.target[0], costs.target[gamma]],
    best = p.curve.indexOf(Math.max(...p.curve)) + 1;
  const doubt = doubtAbout(result);
  const sentences = [
    ...(doubt ? [doubt] : []),
    `On this device, a target pass takes ${ms(one)} for one token and ${ms(many)} for ${gamma + 1} tokens (${times(p.verify)} as long). Each draft pass takes ${p.c.toFixed(2)} of a target pass.`,
    `So a round costs ${p.cost.toFixed(2)} plain passes and gives ${stats.tau.toFixed(2)} tokens. This predicts a speedup of ${times(p.speedup)}; ${times(speedup)} was measured.`,
  ];
  const drafting = gamma * p.c,
    checking = p.verify - 1,
    free = times(stats.tau / (1 + drafting));
  if (Math.max(speedup / p.speedup, p.speedup / speedup) > DISTURBED)
    return `${sentences.join(" ")} These two differ too much to explain either of them. Another program probably used this device during part of the run. Press Run again when the device is idle.`;
  if (speedup < 1)
    sentences.push(
      stats.tau < 1 + drafting
        ? `Speculation is slower here: with α = ${(stats.alpha || 0).toFixed(2)} a round gives too few tokens to pay for its drafts.`
        : `Speculation is slower here: the drafts would pay for themselves, but verifying ${gamma + 1} tokens in one pass costs this processor too much${simd ? "" : ", mainly because it runs without SIMD"}.`,
    );
  else if (checking < NEARLY_FREE)
    sentences.push(
      `Verifying ${gamma + 1} tokens is nearly free, because the pass mostly waits for its weights. Only a better or smaller draft can raise the speedup further.`,
    );
  else if (checking > drafting)
    sentences.push(
      `If verification were free, the speedup would be ${free}. It is not free, because this processor computes for every extra token and does not only wait for weights.`,
    );
  else
    sentences.push(
      `If verification were free, the speedup would be ${free}. But the drafts cost more than verification here, so a smaller draft or a different γ would help more.`,
    );
  if (best !== gamma && p.curve[best - 1] > 1.03 * p.curve[gamma - 1])
    sentences.push(
      p.curve[best - 1] > 1
        ? `For this α and these costs, the formula predicts the highest speedup at γ = ${best}.`
        : "For this α and these costs, no γ is faster than plain decoding.",
    );
  return sentences.join(" ");
}

/** Returns a sentence for the status line, which screen readers announce when a run has ended. */
export function announcement({ stats, speedup, plainTokens }) {
  const [low, high] = interval(stats.accepted, stats.tested);
  return (
    `Done: ${plural(stats.tokens, "token")} in ${stats.passes} target passes, ${speedup.toFixed(2)} times as fast as plain decoding of ${plural(plainTokens, "token")}. ` +
    `Acceptance rate ${Number.isNaN(stats.alpha) ? "not measured" : `${stats.alpha.toFixed(2)}, between ${low.toFixed(2)} and ${high.toFixed(2)}`}.`
  );
}

/** Returns name, value and note of each number under the replay. */
export function readouts(result) {
  const { stats, plain, speculative, plainTokens, speedup, costs, options, same, memory } = result,
    p = prediction(result);
  const [low, high] = interval(stats.accepted, stats.tested),
    ratios = plain.map((time, i) => time / speculative[i]);
  const range = (values, digits) =>
    `${Math.min(...values).toFixed(digits)} … ${Math.max(...values).toFixed(digits)}`;
  return [
    ["speedup, measured", times(speedup), `range of ${ratios.length} repeats: ${range(ratios, 2)}`],
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
      ms(median(plain) * plainTokens),
      `${plainTokens} tokens, ${median(plain).toFixed(2)} ms each`,
    ],
    [
      "time, speculative",
      ms(median(speculative) * stats.tokens),
      `${stats.tokens} tokens, ${median(speculative).toFixed(2)} ms each`,
    ],
    ["T(1)", ms(costs.target[0]), "target, one token"],
    [`T(γ+1) = T(${options.gamma + 1})`, ms(costs.target[options.gamma]), `${times(p.verify)} T(1)`],
    ["c, draft ÷ target", p.c.toFixed(3), `${ms(costs.inLoop)} during decoding, ${ms(costs.draft)} alone`],
    [
      "text",
      same ? "identical" : "a different draw",
      options.temperature === 0
        ? same
          ? "to plain greedy decoding"
          : "differs: rounding decided a near tie"
        : "from the same distribution as plain decoding",
    ],
    ["memory", `${(memory / 1e6).toFixed(0)} MB`, `target's weights in ${options.format}`],
  ];
}
