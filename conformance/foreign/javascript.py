"""Checks of JSON with Node and of YAML with js-yaml.
Node's numbers are doubles, so 64-bit integers are strings in JSON (`int64=string`). Node writes
minus zero as zero."""

import json
import os
import subprocess

import model

# Types without 64-bit integers: js-yaml reads only those that a double can represent exactly.
TYPES = ["Texts", "Tables", "Choices", "Levels", "Bits", "Wide", "Quads"]
JSON_TYPES = ["Scalars", "Lists", "Arrays", "Nested", "Optionals", "Unions", "Growing", "Grown", "Loose", "Numbers", "Maps", *TYPES]


class Node:
    """The process of `node.cjs`. It parses a text and writes the value in the same format again."""

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
