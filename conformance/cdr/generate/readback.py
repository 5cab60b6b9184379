"""Lets Cyclone DDS read the vectors that it did not write, including those to refuse, and prints
where it decodes them differently. `generate.sh` calls it.
`readback.py offer FOLDER` prints a C file with the vectors, to be compiled with `readback.c`.
`readback.py compare FOLDER FILE` compares the program's output in FILE with the model."""

import json
import os
import sys

import idl
import xcdr
from cyclone import UNKNOWN_TO_IDLC


def offers(folder):
    """The vectors to read, each with the type to read it as and the expected value: those that Cyclone
    DDS did not write, as their own type, and all that have `read_as`, as that version of the type."""
    for file in ("vectors.jsonl", "refused.jsonl"):
        with open(os.path.join(folder, file)) as lines:
            vectors = [json.loads(line) for line in lines]
        for vector in vectors:
            foreign = not vector["by"].startswith("cyclonedds")
            if os.path.basename(vector["idl"]) in UNKNOWN_TO_IDLC:
                continue
            if foreign:
                yield vector, vector["type"], vector.get("value")
            if "read_as" in vector:
                yield vector, vector["read_as"]["type"], vector["read_as"]["value"]


def offer(folder):
    found = list(offers(folder))
    print('#include "readback.h"')
    for file in sorted({os.path.basename(vector["idl"]) for vector, _, _ in found}):
        print(f'#include "{file.removesuffix(".idl")}.h"')
    print("void all_offers(void) {")
    for line, (vector, type_, _) in enumerate(found):
        octets = "".join(f"\\x{vector['hex'][at:at + 2]}" for at in range(0, len(vector["hex"]), 2))
        print(f"  offer({line}, DDS_DATA_REPRESENTATION_{vector['encoding'].upper()}, &{type_.replace('::', '_')}_desc, "
              f'(const unsigned char *) "{octets}", {len(vector["hex"]) // 2});')
    print("}")


def compare(folder, output):
    found = list(offers(folder))
    with open(output) as lines:
        for line, answer in map(str.split, lines):
            vector, type_, value = found[int(line)]
            expected = "refused"
            if value is not None:
                definitions = idl.read(os.path.join(folder, vector["idl"]))
                expected = xcdr.encode(definitions, type_, value, vector["encoding"], "le").hex()
            if answer != expected:
                print(f"{vector['name']} as {type_}: Cyclone DDS reads {answer}", file=sys.stderr)


if __name__ == "__main__":
    {"offer": offer, "compare": compare}[sys.argv[1]](*sys.argv[2:])
