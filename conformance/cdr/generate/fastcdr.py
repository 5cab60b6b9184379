"""Prints the C++ file with which `fastcdr.cpp` encodes the cases: calls of Fast CDR in the order of
the members. This script determines the order; Fast CDR determines widths, alignment, lengths and
byte order. `generate.sh` calls it."""

import json
import os
import sys

import idl
from cases import CASES

C_TYPES = {"bool": "bool", "octet": "uint8_t", "char": "char", "wchar": "wchar_t", "int8": "int8_t", "uint8": "uint8_t",
           "int16": "int16_t", "uint16": "uint16_t", "int32": "int32_t", "uint32": "uint32_t", "int64": "int64_t",
           "uint64": "uint64_t", "float": "float", "double": "double"}


class NotSupported(Exception):
    """Fast CDR 1.0 has no parameter lists, optional members and bitsets. Its long double has the
    processor's format instead of binary128."""


class Caller:
    def __init__(self, definitions):
        self.definitions = definitions
        self.lines = []

    def put(self, type_, value):
        type_ = idl.resolve(self.definitions, type_)
        getattr(self, type_[0])(type_, value)

    def write(self, expression):
        self.lines.append(f"cdr << {expression};")

    def prim(self, type_, value):
        self.write(self.literal(type_[1], value))

    def literal(self, kind, value):
        if kind == "longdouble":
            raise NotSupported
        if isinstance(value, str):
            special = {"NaN": "NAN", "Infinity": "INFINITY", "-Infinity": "-INFINITY"}
            text = special[value] if kind in ("float", "double") else str(ord(value))
        elif kind in ("int64", "uint64"):
            text = "INT64_MIN" if value == -(1 << 63) else f"{'U' if kind[0] == 'u' else ''}INT64_C({value})"
        else:
            text = str(value).lower() if kind == "bool" else repr(value)
        return f"static_cast<{C_TYPES[kind]}>({text})"

    def string(self, _type, value):
        octets = "".join(f"\\{b:03o}" for b in value.encode())
        self.write(f'std::string("{octets}")')

    def wstring(self, _type, value):
        self.write('std::wstring(L"' + "".join(f"\\U{ord(c):08x}" if ord(c) > 0x9f else c for c in value) + '")')

    def seq(self, type_, value):
        element = idl.resolve(self.definitions, type_[1])
        if element[0] == "prim":
            values = ", ".join(self.literal(element[1], v) for v in value)
            return self.write(f"std::vector<{C_TYPES[element[1]]}>{{{values}}}")
        self.write(f"static_cast<uint32_t>({len(value)})")
        for element in value:
            self.put(type_[1], element)

    def array(self, type_, value):
        inner = type_[1] if len(type_[2]) == 1 else ("array", type_[1], type_[2][1:])
        for element in value:
            self.put(inner, element)

    def map(self, type_, value):
        self.write(f"static_cast<uint32_t>({len(value)})")
        for key, element in value.items():
            self.put(type_[1], key if idl.resolve(self.definitions, type_[1])[0] != "prim" else int(key))
            self.put(type_[2], element)

    def ref(self, type_, value):
        definition = self.definitions[type_[1]]
        getattr(self, definition["kind"])(definition, value)

    def enum(self, definition, value):
        self.write(self.literal(f"int{width(definition)}", definition["literals"][value]))

    def bitmask(self, definition, value):
        self.write(self.literal(f"uint{width(definition)}", value))

    def bitset(self, _definition, _value):
        raise NotSupported

    def union(self, definition, value):
        discriminator, case = idl.select(self.definitions, definition, value)
        kind = idl.resolve(self.definitions, definition["discriminator"])
        self.write(self.literal(kind[1] if kind[0] == "prim" else "int32", discriminator))
        if case:
            self.put(case["type"], value[case["name"]])

    def struct(self, definition, value):
        if definition["extensibility"] == "mutable":
            raise NotSupported
        for member in idl.members(self.definitions, definition):
            if member["optional"]:
                raise NotSupported
            self.put(member["type"], value[member["name"]])


def width(definition):
    return next(width for width in (8, 16, 32, 64) if definition["bits"] <= width)


def main(folder):
    print('#include "fastcdr.h"\n\nvoid all_cases()\n{')
    for case in CASES:
        caller = Caller(idl.read(os.path.join(folder, case["idl"])))
        try:
            caller.ref(("ref", case["type"]), case["value"])
        except NotSupported:
            continue
        print(f"    emit({json.dumps(case['name'])}, [](Cdr& cdr) {{")
        print("".join(f"        {line}\n" for line in caller.lines) + "    });")
    print("}")


if __name__ == "__main__":
    main(sys.argv[1])
