// The process that `javascript.py` starts. Each line of standard input is a JSON array [format,
// text]. The program parses the text, and answers with a line {"ok": TEXT}, the value in the same
// format, or {"error": MESSAGE}.
const readline = require("node:readline");
const yaml = require("js-yaml");

const formats = {
  json: (text) => JSON.stringify(JSON.parse(text)),
  yaml: (text) => yaml.dump(yaml.load(text)),
  "yaml-flow": (text) => yaml.dump(yaml.load(text), { flowLevel: 0 }),
};

readline.createInterface({ input: process.stdin, crlfDelay: Infinity }).on("line", (line) => {
  const [format, text] = JSON.parse(line);
  let answer;
  try {
    answer = { ok: formats[format](text) };
  } catch (error) {
    answer = { error: String(error.message) };
  }
  process.stdout.write(JSON.stringify(answer) + "\n");
});
