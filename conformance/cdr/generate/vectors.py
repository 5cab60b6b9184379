"""Writes `vectors.jsonl` and `refused.jsonl`. `generate.sh` calls it.
Each case gets a vector with the bytes of the model `xcdr.py`, and the names of the tools that made
the same bytes. If a tool made other bytes, they become a further vector, which must be listed in
`expected-failures.txt`."""

import json
import os
import sys

import idl
import keyhash
import xcdr
from by_hand import READABLE, REFUSED
from cases import CASES

TOOLS = (("cyclone.txt", "cyclonedds 0.10.2"), ("fastcdr.txt", "fastcdr 1.0.26"))


def tool_output(build):
    """The hex of each tool, and Cyclone DDS's key hash, each by (case, encoding, order)."""
    encodings, key_hashes = {}, {}
    for file, tool in TOOLS:
        with open(os.path.join(build, file)) as lines:
            for name, encoding, order, hex_, *key_hash in map(str.split, lines):
                encodings.setdefault((name, encoding, order), {})[tool] = hex_
                if key_hash:
                    key_hashes[name, encoding, order] = key_hash[0]
    return encodings, key_hashes


def vector(case, suffix, encoding, order, hex_, by, key_hash=None, also=()):
    found = {"name": f"{case['name']}.{suffix}", "idl": case["idl"], "type": case["type"], "encoding": encoding,
             "order": order, "value": case["value"]}
    if "read_as" in case:
        found["read_as"] = case["read_as"]
    if key_hash:
        found["keyhash"] = key_hash
    return {**found, "hex": hex_, "by": by, **({"also": list(also)} if also else {})}


def vectors_of(case, definitions, encodings, key_hashes):
    for encoding in ("xcdr1", "xcdr2"):
        key_hash = keyhash.key_hash(definitions, case["type"], case["value"], encoding)
        for order in ("le", "be"):
            if key_hashes.get((case["name"], encoding, order), key_hash) != key_hash:
                print(f"{case['name']}.{encoding}.{order}: Cyclone DDS has another key hash", file=sys.stderr)
            model = xcdr.encode(definitions, case["type"], case["value"], encoding, order).hex()
            tools = encodings.get((case["name"], encoding, order), {})
            agreeing = [tool for tool, hex_ in tools.items() if hex_ == model] or ["specification"]
            yield vector(case, f"{encoding}.{order}", encoding, order, model, agreeing[0], key_hash, agreeing[1:])
            for tool, hex_ in tools.items():
                if hex_ != model:
                    yield vector(case, f"{encoding}.{order}.{tool.split()[0]}", encoding, order, hex_, tool, key_hash)


def shared_headers(case, definitions):
    """The other legal encoding of nested types in mutable ones: `share_headers` of `xcdr.Writer`."""
    for order in ("le", "be"):
        plain = xcdr.encode(definitions, case["type"], case["value"], "xcdr2", order)
        shared = xcdr.encode(definitions, case["type"], case["value"], "xcdr2", order, share_headers=True)
        if shared != plain:
            found = vector(case, f"shared-headers.xcdr2.{order}", "xcdr2", order, shared.hex(), "specification")
            yield {**found, "decode_only": True}


def located(found):
    """The vector with its path relative to the folder of the vectors."""
    return {**found, "idl": os.path.normpath(os.path.join("idl", found["idl"]))}


def write(path, found):
    with open(path, "w") as file:
        for one in found:
            file.write(json.dumps(located(one)) + "\n")


def main(folder, build):
    encodings, key_hashes = tool_output(build)
    found = []
    for case in CASES:
        definitions = idl.read(os.path.join(folder, "idl", case["idl"]))
        found += vectors_of(case, definitions, encodings, key_hashes)
        found += shared_headers(case, definitions)
    write(os.path.join(folder, "vectors.jsonl"), found + READABLE)
    write(os.path.join(folder, "refused.jsonl"), REFUSED)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
