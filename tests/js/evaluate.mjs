// node evaluate.mjs < JSON {source, calls}: a module's text and a list of {name, args}. Calls the module's formulas
// with these arguments and prints the results as JSON.
import { readFileSync } from "node:fs";

const { source, calls } = JSON.parse(readFileSync(0, "utf8"));
const { default: module } = await import(
  `data:text/javascript;base64,${Buffer.from(source).toString("base64")}`
);
const results = calls.map(({ name, args }) =>
  name === "presets" ? module.presets : module.formulas[name](...args),
);
process.stdout.write(JSON.stringify(results));
