// Typesets TeX as drawings. Reads pages as JSON from stdin, each a list of [TeX, whether it is on a line of its own],
// and writes { formulas, glyphs } for each page to stdout. A page's formulas share its glyphs. TeX that MathJax does not
// understand is an error.
import { createRequire } from "node:module";

const [nodeModules] = process.argv.slice(2);
const MathJax = await createRequire(`${nodeModules}/`)("mathjax").init({
  loader: { load: ["input/tex", "output/svg", "a11y/assistive-mml"] },
  startup: { typeset: false },
  svg: { fontCache: "global" },
});
const { adaptor, output } = MathJax.startup;
const SURPLUS = / (?:data-[\w-]+|xmlns:xlink|xmlns|role|focusable)="[^"]*"/g; // attributes that no page uses

function typeset([tex, display]) {
  const formula = adaptor.outerHTML(MathJax.tex2svg(tex, { display }));
  const fault = formula.match(/data-mjx-error="([^"]*)"/);
  if (fault) throw new Error(`${fault[1]}: ${tex}`);
  return formula.replace(SURPLUS, "").replaceAll("xlink:href", "href");
}

function page(formulas) {
  output.clearFontCache();
  const drawings = formulas.map(typeset);
  const glyphs = adaptor.outerHTML(output.fontCache.getCache());
  return { formulas: drawings, glyphs: `<svg style="display: none" aria-hidden="true">${glyphs}</svg>` };
}

const chunks = [];
for await (const chunk of process.stdin) chunks.push(chunk);
process.stdout.write(JSON.stringify(JSON.parse(Buffer.concat(chunks)).map(page)));
