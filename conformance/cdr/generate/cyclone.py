"""Prints the C file with which `cyclone.c` encodes the cases: for each case, a function that fills
the structure that `idlc` declares. `generate.sh` calls it."""

import json
import os
import sys

import idl
from cases import CASES

UNKNOWN_TO_IDLC = ("wide.idl", "bitset.idl", "maps.idl", "avenue.idl")


class Filler:
    def __init__(self, definitions):
        self.definitions = definitions
        self.lines = []

    def set(self, path, type_, value):
        type_ = idl.resolve(self.definitions, type_)
        getattr(self, type_[0])(path, type_, value)

    def assign(self, path, literal):
        self.lines.append(f"{path} = {literal};")

    def prim(self, path, type_, value):
        if isinstance(value, str):
            special = {"NaN": "NAN", "Infinity": "INFINITY", "-Infinity": "-INFINITY"}
            literal = special[value] if type_[1] in ("float", "double") else str(ord(value))
        elif type_[1] == "int64":
            literal = "INT64_MIN" if value == -(1 << 63) else f"INT64_C({value})"
        else:
            literal = {"uint64": f"UINT64_C({value})", "bool": str(value).lower()}.get(type_[1], repr(value))
        self.assign(path, literal)

    def string(self, path, type_, value):
        if type_[1] is None:
            self.assign(path, f"dds_string_dup({c_string(value)})")
        else:
            self.lines.append(f"strcpy({path}, {c_string(value)});")

    def seq(self, path, type_, value):
        self.assign(f"{path}._length", f"{path}._maximum = {len(value)}")
        if value:
            self.assign(f"{path}._buffer", f"calloc({len(value)}, sizeof *{path}._buffer)")
        self.elements(f"{path}._buffer", type_[1], value)

    def array(self, path, type_, value):
        element = type_[1] if len(type_[2]) == 1 else ("array", type_[1], type_[2][1:])
        self.elements(path, element, value)

    def elements(self, path, type_, value):
        for index, element in enumerate(value):
            self.set(f"{path}[{index}]", type_, element)

    def ref(self, path, type_, value):
        definition = self.definitions[type_[1]]
        getattr(self, definition["kind"])(path, definition, value)

    def enum(self, path, definition, value):
        self.assign(path, definition["literals"][value])

    def bitmask(self, path, _definition, value):
        self.assign(path, f"UINT64_C({value})")

    def union(self, path, definition, value):
        discriminator, case = idl.select(self.definitions, definition, value)
        kind = idl.resolve(self.definitions, definition["discriminator"])
        if kind[0] == "prim":
            self.prim(f"{path}._d", kind, discriminator)
        else:
            self.assign(f"{path}._d", discriminator)
        if case:
            self.set(f"{path}._u.{case['name']}", case["type"], value[case["name"]])

    def struct(self, path, definition, value):
        if definition["base"]:
            self.struct(f"{path}.parent", self.definitions[definition["base"]], value)
        for member in definition["members"]:
            if member["name"] in value:
                self.member(f"{path}.{member['name']}", member, value[member["name"]])

    def member(self, path, member, value):
        if member["optional"] and idl.resolve(self.definitions, member["type"]) != ("string", None):
            self.assign(path, f"calloc(1, sizeof *{path})")
            path = f"(*{path})"
        self.set(path, member["type"], value)


def c_string(value):
    """A string literal of C. Bytes outside printable ASCII are octal escapes of three digits, so a
    digit that follows is not part of them."""
    return '"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:03o}" for b in value.encode()) + '"'


def main(folder):
    print('#include "cyclone.h"')
    usable = [case for case in CASES if os.path.basename(case["idl"]) not in UNKNOWN_TO_IDLC]
    for file in sorted({case["idl"] for case in usable}):
        print(f'#include "{os.path.basename(file).removesuffix(".idl")}.h"')
    for number, case in enumerate(usable):
        filler = Filler(idl.read(os.path.join(folder, case["idl"])))
        filler.ref("v", ("ref", case["type"]), case["value"])
        c_type = case["type"].replace("::", "_")
        print(f"static void case_{number}(void) {{\n  {c_type} v;\n  memset(&v, 0, sizeof v);")
        print("".join(f"  {line}\n" for line in filler.lines), end="")
        print(f"  emit({json.dumps(case['name'])}, &{c_type}_desc, &v);\n}}")
    print("void all_cases(void) {")
    print("".join(f"  case_{number}();\n" for number in range(len(usable))) + "}")


if __name__ == "__main__":
    main(sys.argv[1])
