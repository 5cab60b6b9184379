#!/bin/sh
# generate.sh: regenerates vectors.jsonl with idlc of Cyclone DDS 0.10 (Debian: cyclonedds-tools).
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=$(mktemp -d)
trap 'rm -r "$build"' EXIT
cd "$build"
idlc -f case-sensitive -Wno-enum-consecutive "$here/types.idl"
python3 - types.c > "$here/vectors.jsonl" <<'PYTHON'
import json, re, sys

arrays = r"#define TYPE_(INFO|MAP)_CDR_plant_(\w+) \(unsigned char \[\]\)\{(.*?)\n\}"
types = {}
for part, name, text in re.findall(arrays, open(sys.argv[1]).read(), re.S):
    types.setdefault(name, {})[part] = bytes(int(byte, 16) for byte in re.findall("0x(..)", text)).hex()
for name, parts in types.items():
    print(json.dumps({"type": f"plant::{name}", "information": parts["INFO"], "mapping": parts["MAP"]}))
PYTHON
