// node evaluate.mjs MODULE.js < JSON: a list of {name, args}, each evaluated with the module's own formulas; prints the results.
import { readFileSync } from "node:fs";

const source = readFileSync(process.argv[2], "utf8");
const module = await import(`data:text/javascript;base64,${Buffer.from(source).toString("base64")}`);
const calls = JSON.parse(readFileSync(0, "utf8"));
const results = calls.map(({ name, args }) => (name === "presets" ? module.default.presets : module.default.formulas[name](...args)));
process.stdout.write(JSON.stringify(results));
