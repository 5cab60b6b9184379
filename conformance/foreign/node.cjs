// Reads lines of JSON, [format, text]: parses the text and writes what it found in the same format again.
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
