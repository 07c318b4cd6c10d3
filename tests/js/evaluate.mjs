// node evaluate.mjs: reads one line of JSON {source, calls} after another, a module's text and a list of {name, args}.
// For each line it calls the module's formulas with these arguments and prints {results} or {error} as one line of JSON.
import { createInterface } from "node:readline";

async function evaluate(line) {
  const { source, calls } = JSON.parse(line);
  const text = Buffer.from(source).toString("base64");
  const { default: module } = await import(`data:text/javascript;base64,${text}`);
  return calls.map(({ name, args }) =>
    name === "presets" ? module.presets : module.formulas[name](...args),
  );
}

for await (const line of createInterface({ input: process.stdin })) {
  const answer = await evaluate(line).then(
    (results) => ({ results }),
    (error) => ({ error: error.stack }),
  );
  process.stdout.write(`${JSON.stringify(answer)}\n`);
}
