"""Checks of CDR and XCDR2 in both byte orders with the Python package of Cyclone DDS.
Its classes are generated here from the model, like those of its own IDL compiler. It supports only
ASCII characters, and neither bit sets, wide characters nor `long double`. Its maps have no DHEADER
in XCDR2.
"""

from cyclonedds.idl._support import Endianness

import model

TYPES = ["Scalars", "Texts", "Lists", "Arrays", "Tables", "Nested", "Choices", "Levels", "Optionals", "Unions", "Growing", "Grown", "Loose", "Numbers", "Maps"]
ORDERS = [("le", Endianness.Little), ("be", Endianness.Big)]
HEAD = """
from dataclasses import dataclass
from enum import auto
from typing import Dict, Optional
import cyclonedds.idl as idl
import cyclonedds.idl.annotations as annotate
import cyclonedds.idl.types as types
"""
PRIMITIVES = {"bool": "bool", "octet": "types.uint8", "char": "types.char", "float": "types.float32", "double": "types.float64"}
TEXTS = [text for text in model.TEXTS if "\0" not in text]


def check(checks):
    classes = Classes()
    for name in TYPES:
        for version, codec in [(1, "cdr"), (2, "xcdr2")]:
            for order, endianness in ORDERS:
                Both(checks, classes, name, codec, version, order, endianness).check()


class Both:
    def __init__(self, checks, classes, name, codec, version, order, endianness):
        self.checks, self.classes, self.name = checks, classes, name
        self.codec, self.version, self.order, self.endianness = codec, version, order, endianness

    def check(self):
        values = self.checks.values(self.name, texts=TEXTS, letters=range(1, 127))
        for direction in ("reads", "writes"):
            self.checks.case(f"cyclonedds/{self.codec}.{self.order}/{direction}/{self.name}", values, getattr(self, direction))

    def reads(self, value):
        payload = self.checks.payloads.encode(self.name, f"{self.codec}:{self.order},header", value)
        theirs = self.classes.named(self.name).deserialize(payload)
        return self.classes.value(model.type_of(self.name), theirs), value

    def writes(self, value):
        theirs = self.classes.theirs(model.type_of(self.name), value)
        payload = theirs.serialize(endianness=self.endianness, use_version_2=self.version == 2)
        return self.checks.payloads.decode(self.name, f"{self.codec}:header", payload), value


class Classes:
    def __init__(self):
        source = HEAD + "".join(getattr(self, found["kind"])(found) for found in model.DEFINITIONS.values() if self.has(found))
        self.scope = {}
        exec(source, self.scope)

    @staticmethod
    def has(found):
        return found["kind"] not in ("alias", "bitset") and found["name"] not in ("Foreign::Bits", "Foreign::Wide", "Foreign::Quads")

    def named(self, name):
        return self.scope[name]

    def head(self, found, base, more=""):
        return f'(idl.{base}, typename="{found["name"].replace("::", ".")}"{more}):\n'

    def enum(self, found):
        lines = "".join(f"    {name} = {number}\n" for name, number in found["literals"].items())
        bound = f'@annotate.bit_bound({found["bits"]})\n' if found["bits"] != 32 else ""
        default = f', default="{next(iter(found["literals"]))}"'
        return bound + "class " + short(found) + self.head(found, "IdlEnum", default) + lines

    def bitmask(self, found):
        lines = "".join(f'    {name}: bool = False\n    annotate.position("{name}", {position})\n' for name, position in found["flags"].items())
        # The decorator would set the bound after the class is built, which is too late for more
        # than 32 flags.
        bound = f'    __idl_annotations__["bit_bound"] = {found["bits"]}\n'
        return f"@dataclass\nclass {short(found)}" + self.head(found, "IdlBitmask") + bound + lines

    def struct(self, found):
        lines = ""
        for member in model.members(found):
            ty = self.hint(member["type"])
            lines += f'    {member["name"]}: {f"Optional[{ty}]" if member["optional"] else ty}\n'
            lines += f'    annotate.member_id("{member["name"]}", {member["id"]})\n'
        return f'@dataclass\n@annotate.{found["extensibility"]}\nclass {short(found)}' + self.head(found, "IdlStruct") + lines

    def union(self, found):
        lines = ""
        for case in found["cases"]:
            labels = [self.label(found, label) for label in case["labels"]]
            ty = self.hint(case["type"])
            kind = f'types.default[{ty}]' if case["default"] else f'types.case[[{", ".join(labels)}], {ty}]'
            lines += f'    {case["name"]}: {kind}\n'
        more = f', discriminator={self.hint(found["discriminator"])}'
        return f'@annotate.{found["extensibility"]}\nclass {short(found)}' + self.head(found, "IdlUnion", more) + lines

    def label(self, found, label):
        kind = model.resolve(found["discriminator"])
        return f"{short(model.definition(kind))}.{label}" if kind[0] == "ref" else repr(label)

    def hint(self, type_):
        type_ = model.resolve(type_)
        kind = type_[0]
        if kind == "prim":
            return PRIMITIVES.get(type_[1], "types." + type_[1])
        if kind == "string":
            return "str" if type_[1] is None else f"types.bounded_str[{type_[1]}]"
        if kind == "seq":
            return f"types.sequence[{self.hint(type_[1])}" + ("]" if type_[2] is None else f", {type_[2]}]")
        if kind == "array":
            hint = self.hint(type_[1])
            for size in reversed(type_[2]):
                hint = f"types.array[{hint}, {size}]"
            return hint
        if kind == "map":
            return f"Dict[{self.hint(type_[1])}, {self.hint(type_[2])}]"
        return short(model.definition(type_))

    def theirs(self, type_, value):
        type_ = model.resolve(type_)
        found = model.definition(type_)
        if type_[0] in ("seq", "array"):
            return list(value) if model.is_octets(type_) else rows(self.theirs, type_, value)
        if type_[0] == "map":
            return {self.theirs(type_[1], key): self.theirs(type_[2], element) for key, element in value.items()}
        if not found:
            return value
        kind, named = found["kind"], self.named(short(found))
        if kind == "enum":
            return named[value]
        if kind == "bitmask":
            return named.from_mask(value)
        if kind == "struct":
            parts = {m["name"]: self.theirs(m["type"], value[m["name"]]) if m["name"] in value else None for m in model.members(found)}
            return named(**parts)
        case = model.case_of(found, value["$discriminator"])
        discriminator = self.theirs(found["discriminator"], value["$discriminator"])
        return named(discriminator=discriminator, value=self.theirs(case["type"], value[case["name"]]) if case else None)

    def value(self, type_, theirs):
        type_ = model.resolve(type_)
        found = model.definition(type_)
        if type_[0] in ("seq", "array"):
            return bytes(theirs) if model.is_octets(type_) else rows(self.value, type_, theirs)
        if type_[0] == "map":
            return {self.value(type_[1], key): self.value(type_[2], element) for key, element in theirs.items()}
        if not found:
            return theirs
        if found["kind"] == "enum":
            return theirs.name
        if found["kind"] == "bitmask":
            return theirs.as_mask()
        if found["kind"] == "struct":
            parts = {m["name"]: (m["type"], getattr(theirs, m["name"])) for m in model.members(found)}
            return {name: self.value(ty, part) for name, (ty, part) in parts.items() if part is not None}
        discriminator = self.value(found["discriminator"], theirs.discriminator)
        case = model.case_of(found, discriminator)
        return {"$discriminator": discriminator} | ({case["name"]: self.value(case["type"], theirs.value)} if case else {})


def rows(convert, type_, values, dimension=0):
    """Converts each element of a sequence, or of an array of one or more dimensions."""
    if type_[0] == "array" and dimension + 1 < len(type_[2]):
        return [rows(convert, type_, row, dimension + 1) for row in values]
    return [convert(type_[1], element) for element in values]


def short(found):
    return found["name"].rpartition("::")[2]
