"""JSON with Node's own, YAML with js-yaml. Node's numbers are doubles: 64-bit integers travel as strings (`int64=string`) in JSON, and its
minus zero is written as zero."""

import json
import os
import subprocess

import model

# js-yaml takes a type of 64-bit integers only where they are no more than a double holds.
TYPES = ["Texts", "Tables", "Choices", "Levels", "Bits", "Wide", "Quads"]
JSON_TYPES = ["Scalars", "Lists", "Arrays", "Nested", "Optionals", "Unions", "Growing", "Grown", "Loose", "Numbers", "Maps", *TYPES]


class Node:
    """A process that reads a line with a format and a text, parses it, and answers with what it writes in the same format."""

    def __init__(self, build):
        environment = {"NODE_PATH": str(build / "node" / "node_modules"), "PATH": os.environ["PATH"]}
        pipe = subprocess.PIPE
        command = ["node", model.HERE / "node.cjs"]
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, encoding="utf-8", env=environment)

    def ask(self, kind, text):
        self.process.stdin.write(json.dumps([kind, text]) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        if "error" in answer:
            raise ValueError("node: " + answer["error"])
        return answer["ok"]


def check(checks):
    node = Node(checks.build)
    for name in JSON_TYPES:
        for options in ["int64=string", "int64=string,enum=number,bytes=array,bitmask=names,null=write,pretty"]:
            def both(value):
                payload = checks.payloads.encode(name, f"json:{options}", value).decode()
                return checks.payloads.decode(name, "json", node.ask("json", payload).encode()), unsigned_zero(value)
            label = "options" if "," in options else "plain"
            checks.case(f"node/json/{label}/{name}", checks.values(name), both)
    for name in TYPES:
        for codec in ["yaml", "yaml-flow"]:
            def yaml_both(value):
                payload = checks.payloads.encode(name, codec, value).decode()
                return checks.payloads.decode(name, codec, node.ask(codec, payload).encode()), value
            checks.case(f"js-yaml/{codec}/both/{name}", checks.values(name), yaml_both)


def unsigned_zero(value):
    if isinstance(value, dict):
        return {key: unsigned_zero(part) for key, part in value.items()}
    if isinstance(value, list):
        return [unsigned_zero(part) for part in value]
    return 0.0 if isinstance(value, float) and value == 0 else value
