"""A model of XCDR1 and XCDR2 by DDS-XTypes 1.3, section 7.4. `vectors.py` compares it with the bytes of
the tools, and uses its bytes for the vectors that no tool makes."""

import struct

import idl

SCALARS = {"bool": "?", "octet": "B", "int8": "b", "uint8": "B", "int16": "h", "uint16": "H", "int32": "i",
           "uint32": "I", "int64": "q", "uint64": "Q", "float": "f", "double": "d"}
FLOATS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
KINDS = {("xcdr1", "plain"): 0x00, ("xcdr1", "mutable"): 0x02, ("xcdr2", "final"): 0x06,
         ("xcdr2", "appendable"): 0x08, ("xcdr2", "mutable"): 0x0A}
PID_EXTENDED, PID_LIST_END, PID_MUST_UNDERSTAND = 0x3F01, 0x3F02, 0x4000
EM_MUST_UNDERSTAND = 0x80000000


def encapsulate(encoding, order, extensibility, body):
    """Header, body, and padding to a multiple of four, which the header's last two bits count."""
    if encoding == "xcdr1" and extensibility != "mutable":
        extensibility = "plain"
    pad = -len(body) % 4
    return bytes([0, KINDS[encoding, extensibility] | (order == "le"), 0, pad]) + body + bytes(pad)


def encode(definitions, type_name, value, encoding, order, share_headers=False):
    writer = Writer(definitions, encoding, order, share_headers)
    writer.value(("ref", type_name), value)
    return encapsulate(encoding, order, definitions[type_name]["extensibility"], bytes(writer.out))


class Writer:
    """Writes values. With `share_headers`, the DHEADER of an appendable or mutable value also serves
    as the NEXTINT of its EMHEADER (LC 5). The specification allows both; Cyclone DDS writes both
    words (LC 4)."""

    def __init__(self, definitions, encoding, order, share_headers=False):
        self.definitions = definitions
        self.share_headers = share_headers
        self.two = encoding == "xcdr2"
        self.order = "<" if order == "le" else ">"
        self.out = bytearray()
        self.origin = 0

    def align(self, size):
        self.out += bytes(-(len(self.out) - self.origin) % min(size, 4 if self.two else 8))

    def number(self, code, value):
        self.align(struct.calcsize(code))
        self.out += struct.pack(self.order + code, value)

    def integer(self, bits, value):
        self.number("BHIQ"[(bits > 8) + (bits > 16) + (bits > 32)], value)

    def patch(self, at, value):
        self.out[at:at + 4] = struct.pack(self.order + "I", value)

    def value(self, type_, value):
        type_ = idl.resolve(self.definitions, type_)
        getattr(self, type_[0])(type_, value)

    def prim(self, type_, value):
        kind = type_[1]
        if kind == "longdouble":
            self.align(8)
            binary128 = bytes.fromhex(value[2:])
            self.out += binary128[::-1] if self.order == "<" else binary128
        elif kind in ("char", "wchar"):
            self.number("B" if kind == "char" else "H", ord(value))
        else:
            self.number(SCALARS[kind], FLOATS.get(value, value) if kind in ("float", "double") else value)

    def string(self, _type, value):
        text = value.encode() + b"\0"
        self.number("I", len(text))
        self.out += text

    def wstring(self, _type, value):
        text = value.encode("utf-16-le" if self.order == "<" else "utf-16-be")
        self.number("I", len(text))
        self.out += text

    def is_primitive(self, type_):
        return idl.resolve(self.definitions, type_)[0] == "prim"

    def delimited(self, needed, write):
        """Runs `write`, after a DHEADER if one is needed."""
        if not (self.two and needed):
            return write()
        self.number("I", 0)
        start = len(self.out)
        write()
        self.patch(start - 4, len(self.out) - start)

    def seq(self, type_, value):
        def write():
            self.number("I", len(value))
            for element in value:
                self.value(type_[1], element)
        self.delimited(not self.is_primitive(type_[1]), write)

    def array(self, type_, value):
        def write(value, dimensions):
            assert len(value) == dimensions[0]
            for element in value:
                write(element, dimensions[1:]) if dimensions[1:] else self.value(type_[1], element)
        self.delimited(not self.is_primitive(type_[1]), lambda: write(value, type_[2]))

    def map(self, type_, value):
        def write():
            self.number("I", len(value))
            for key, element in value.items():
                text_key = idl.resolve(self.definitions, type_[1])[0] != "prim"
                self.value(type_[1], key if text_key else int(key))
                self.value(type_[2], element)
        self.delimited(not (self.is_primitive(type_[1]) and self.is_primitive(type_[2])), write)

    def ref(self, type_, value):
        definition = self.definitions[type_[1]]
        getattr(self, definition["kind"])(definition, value)

    def enum(self, definition, value):
        code = {8: "b", 16: "h", 32: "i"}[8 if definition["bits"] <= 8 else 16 if definition["bits"] <= 16 else 32]
        self.number(code, definition["literals"][value])

    def bitmask(self, definition, value):
        self.integer(definition["bits"], value)

    def bitset(self, definition, value):
        packed, at = 0, 0
        for name, width in definition["fields"]:
            if name is not None:
                assert value[name] < 1 << width
                packed |= value[name] << at
            at += width
        self.integer(at, packed)

    def union(self, definition, value):
        def write():
            discriminator, case = idl.select(self.definitions, definition, value)
            self.discriminator(definition["discriminator"], discriminator)
            if case:
                self.value(case["type"], value[case["name"]])
        self.delimited(definition["extensibility"] == "appendable", write)

    def discriminator(self, type_, value):
        type_ = idl.resolve(self.definitions, type_)
        self.prim(type_, value) if type_[0] == "prim" else self.number("i", value)

    def struct(self, definition, value):
        members = idl.members(self.definitions, definition)
        unknown = set(value) - {m["name"] for m in members}
        assert not unknown, f"{definition['name']} has no {unknown}"
        if definition["extensibility"] == "mutable":
            return self.mutable(members, value)

        def write():
            for member in members:
                self.member(member, value)
        self.delimited(definition["extensibility"] == "appendable", write)

    def member(self, member, value):
        present = member["name"] in value
        assert present or member["optional"], f"{member['name']} is missing"
        if member["optional"] and not self.two:
            self.parameter(member, value.get(member["name"]))
        else:
            if member["optional"]:
                self.number("B", int(present))
            if present:
                self.value(member["type"], value[member["name"]])

    def mutable(self, members, value):
        present = [m for m in members if m["name"] in value]
        if self.two:
            return self.delimited(True, lambda: [self.emember(m, value[m["name"]]) for m in present])
        for member in present:
            self.parameter(member, value[member["name"]])
        self.align(4)
        self.number("H", PID_LIST_END)
        self.number("H", 0)

    def parameter(self, member, value):
        """Writes an XCDR1 parameter. Without a value, it writes the header of an absent member. Alignment
        restarts after the header."""
        flag = PID_MUST_UNDERSTAND if member["must"] else 0
        self.align(4)
        if member["id"] <= 0x3F00:
            self.number("H", member["id"] | flag)
            self.number("H", 0)
            length = ("H", len(self.out) - 2)
        else:
            self.number("H", PID_EXTENDED | flag)
            self.number("H", 8)
            self.number("I", member["id"])
            self.number("I", 0)
            length = ("I", len(self.out) - 4)
        origin, self.origin = self.origin, len(self.out)
        if value is not None:
            self.value(member["type"], value)
        size = len(self.out) - self.origin
        self.origin = origin
        self.out[length[1]:length[1] + struct.calcsize(length[0])] = struct.pack(self.order + length[0], size)

    def emember(self, member, value):
        """Writes an XCDR2 member of a mutable type: EMHEADER, NEXTINT if the length code is 4, and value."""
        code = self.length_code(member["type"])
        self.number("I", (EM_MUST_UNDERSTAND if member["must"] or member["key"] else 0) | code << 28 | member["id"])
        if code == 4:
            self.number("I", 0)
        start = len(self.out)
        self.value(member["type"], value)
        if code == 4:
            self.patch(start - 4, len(self.out) - start)

    def length_code(self, type_):
        """The length code: 0..3 for values of 1, 2, 4 or 8 bytes; 5 if the value begins with its length in
        bytes; 6 or 7 if it begins with the count of its elements of 4 or 8 bytes; otherwise 4."""
        type_ = idl.resolve(self.definitions, type_)
        size = self.scalar_size(type_)
        if size in (1, 2, 4, 8):
            return (1, 2, 4, 8).index(size)
        if type_[0] == "string" or type_[0] == "wstring":
            return 5
        if type_[0] in ("seq", "array", "map") and not self.is_primitive(type_[1]):
            return 5
        if type_[0] == "seq":
            return {1: 5, 4: 6, 8: 7}.get(self.scalar_size(type_[1]), 4)
        own_header = type_[0] == "ref" and self.definitions[type_[1]].get("extensibility", "final") != "final"
        return 5 if own_header and self.share_headers else 4

    def scalar_size(self, type_):
        type_ = idl.resolve(self.definitions, type_)
        if type_[0] == "prim":
            return {"char": 1, "wchar": 2, "longdouble": 16}.get(type_[1]) or struct.calcsize(SCALARS[type_[1]])
        if type_[0] != "ref" or self.definitions[type_[1]]["kind"] not in ("enum", "bitmask", "bitset"):
            return None
        definition = self.definitions[type_[1]]
        bits = definition["bits"] if "bits" in definition else sum(width for _, width in definition["fields"])
        return next(size for size in (1, 2, 4, 8) if bits <= 8 * size)
