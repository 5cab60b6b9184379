"""The types of types.idl, generated values of them, and their representation in Polywire's JSON. All
checks use this module.
Values are Python objects: numbers, `str` (also for characters, and for enums the name of the
literal), `bytes` for octets, lists, and dictionaries for structures (without absent members), maps
and bitsets. A `long double` is `"0x"` and 32 digits. A union is a dictionary of `$discriminator`
and, if a case is selected, its member.
"""

import base64
import json
import math
import pathlib
import struct
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "cdr" / "generate"))

import idl

DEFINITIONS = idl.read(HERE / "types.idl")
BITS = {"octet": 8, "int8": 8, "uint8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64, "uint64": 64}
TEXTS = [
    "", "a", "two words", " blanks around ", "Zürich", "日本語", "\U0001F600", "e\u0301", "\t", "line\nbreak", "\r\n", "'", '"', "\\",
    "<&>\"'", "]]>", "<![CDATA[x]]>", "_x0000_", "_x005F_", "_x0041_", "null", "~", "yes", "No", "true", "1e3", "0o7", "0x10", "1_000",
    "12:30:45", "2026-01-01", ".nan", "-.inf", "=", "<<", "- a", "a: b", "#c", "a #c", "{", "[", "&a", "*a", "!t", "%d", "@", "`", "?",
    "$discriminator", "nul\0", "\x01", "\x1f", "\x7f", "\x85", "\xa0", "\u2028", "\ufeff", "\ufffd", "\ufffe", "\uffff", "x" * 300,
]
FLOATS = [0.0, -0.0, 1.0, -1.5, 0.1, 1e16, 1e-7, 1e22, 123456789.0, math.inf, -math.inf, math.nan]


def type_of(name):
    return ("ref", "Foreign::" + name)


def resolve(type_):
    return idl.resolve(DEFINITIONS, type_)


def definition(type_):
    """The definition to which a resolved type refers, or None."""
    return DEFINITIONS[type_[1]] if type_[0] == "ref" else None


def members(struct_):
    return idl.members(DEFINITIONS, struct_)


def is_octets(type_):
    """Whether it is a sequence or an array of one dimension of octets."""
    one_row = type_[0] == "seq" or type_[0] == "array" and len(type_[2]) == 1
    return one_row and resolve(type_[1]) == ("prim", "octet")


def case_of(union, discriminator):
    case = next((c for c in union["cases"] if discriminator in c["labels"]), None)
    return case or next((c for c in union["cases"] if c["default"]), None)


def is_implied(case, discriminator):
    """Whether the discriminator is the first label of the case, so that the case's member implies it."""
    return case is not None and case["labels"][:1] == [discriminator]


def packed(bitset, value):
    """A bitset as one number."""
    number, at = 0, 0
    for name, width in bitset["fields"]:
        number |= value.get(name, 0) << at
        at += width
    return number


def unpacked(bitset, number):
    value, at = {}, 0
    for name, width in bitset["fields"]:
        if name is not None:
            value[name] = number >> at & (1 << width) - 1
        at += width
    return value


def bits_of(definition_):
    return definition_["bits"] if "bits" in definition_ else sum(width for _, width in definition_["fields"])


def single(number):
    """The nearest number in single precision."""
    return struct.unpack("<f", struct.pack("<f", number))[0]


def flatten(rows, dimensions):
    """The elements of an array of several dimensions in row-major order."""
    return rows if len(dimensions) == 1 else [x for row in rows for x in flatten(row, dimensions[1:])]


def shaped(elements, dimensions):
    if len(dimensions) == 1:
        return elements
    size = len(elements) // dimensions[0]
    return [shaped(elements[i * size:(i + 1) * size], dimensions[1:]) for i in range(dimensions[0])]


class Values:
    """Generates values. `texts` and `letters` are the strings and characters to choose from."""

    def __init__(self, random, texts=TEXTS, letters=range(256)):
        self.random, self.texts, self.letters = random, texts, list(letters)

    def of(self, type_, depth=0):
        type_ = resolve(type_)
        return getattr(self, type_[0])(type_, depth)

    def prim(self, type_, _depth):
        kind, random = type_[1], self.random
        if kind == "bool":
            return random.random() < 0.5
        if kind in ("float", "double"):
            number = random.choice(FLOATS) if random.random() < 0.6 else random.uniform(-1, 1) * 10 ** random.randint(-30, 30)
            return single(number) if kind == "float" else number
        if kind == "longdouble":
            return binary128(self.prim(("prim", "double"), 0))
        if kind == "char":
            return chr(random.choice(self.letters))
        if kind == "wchar":
            return random.choice("aZ\x01é€日\ud7ff\ue000\ufffd")
        low, high = (0, 2 ** BITS[kind] - 1) if kind[0] in "uo" else (-2 ** (BITS[kind] - 1), 2 ** (BITS[kind] - 1) - 1)
        extremes = [low, high, low + 1, high - 1, high // 2, high // 2 + 1, 0, 1, 2 ** 53 + 1]
        number = random.choice(extremes) if random.random() < 0.6 else random.randint(low, high)
        return number if low <= number <= high else high

    def string(self, type_, _depth):
        return self.random.choice([text for text in self.texts if type_[1] is None or len(text.encode()) <= type_[1]])

    def wstring(self, type_, _depth):
        fits = [text for text in self.texts if type_[1] is None or len(text.encode("utf-16-le")) // 2 <= type_[1]]
        return self.random.choice(fits)

    def count(self, bound, depth):
        return min(self.random.choice([0, 1, 2, 5] if depth < 2 else [0, 1, 2]), bound or 5)

    def seq(self, type_, depth):
        elements = [self.of(type_[1], depth + 1) for _ in range(self.count(type_[2], depth))]
        return bytes(elements) if is_octets(type_) else elements

    def array(self, type_, depth):
        count = math.prod(type_[2])
        elements = [self.of(type_[1], depth + 1) for _ in range(count)]
        return bytes(elements) if is_octets(type_) else shaped(elements, type_[2])

    def map(self, type_, depth):
        return {self.of(type_[1], depth + 1): self.of(type_[2], depth + 1) for _ in range(self.count(type_[3], depth))}

    def ref(self, type_, depth):
        found = definition(type_)
        return getattr(self, found["kind"])(found, depth)

    def enum(self, found, _depth):
        return self.random.choice(list(found["literals"]))

    def bitmask(self, found, _depth):
        return sum(self.random.choice([0, 1]) << position for position in found["flags"].values())

    def bitset(self, found, _depth):
        return unpacked(found, self.random.choice([0, 2 ** bits_of(found) - 1, self.random.getrandbits(bits_of(found))]))

    def struct(self, found, depth):
        present = [m for m in members(found) if not m["optional"] or self.random.random() < 0.6]
        return {m["name"]: self.of(m["type"], depth + 1) for m in present}

    def union(self, found, depth):
        labels = [label for case in found["cases"] for label in case["labels"]]
        others = {"bool": [False, True], "int32": [-7, 6, 2 ** 31 - 1], "int64": [-7, 2 ** 62 + 1]}
        discriminator = self.random.choice(labels + others.get(resolve(found["discriminator"])[1], []))
        case = case_of(found, discriminator)
        return {"$discriminator": discriminator} | ({case["name"]: self.of(case["type"], depth + 1)} if case else {})


def binary128(number):
    """The binary128 with the value of a double, as `"0x"` and its digits."""
    bits = struct.unpack(">Q", struct.pack(">d", number))[0]
    sign, exponent, fraction = bits >> 63, bits >> 52 & 0x7FF, bits & 2 ** 52 - 1
    if exponent == 0x7FF:
        wide = 0x7FFF
    elif exponent:
        wide = exponent - 1023 + 16383
    elif fraction:
        shift = 53 - fraction.bit_length()
        fraction, wide = fraction << shift & 2 ** 52 - 1, 1 - shift - 1023 + 16383
    else:
        wide = 0
    return f"0x{sign << 127 | wide << 112 | fraction << 60:032x}"


class Json:
    """Converts values to the trees of Polywire's JSON and back. `finite` is false for formats that can
    represent NaN and infinities as numbers."""

    def __init__(self, finite=True):
        self.finite = finite

    def tree(self, type_, value):
        type_ = resolve(type_)
        kind, found = type_[0], definition(type_)
        if kind == "prim" and type_[1] in ("float", "double") and self.finite and not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        if isinstance(value, bytes):
            return base64.b64encode(value).decode()
        if kind == "array":
            return shaped([self.tree(type_[1], element) for element in flatten(value, type_[2])], type_[2])
        if kind == "seq":
            return [self.tree(type_[1], element) for element in value]
        if kind == "map":
            return {key_text(key): self.tree(type_[2], element) for key, element in value.items()}
        if found and found["kind"] == "struct":
            return {m["name"]: self.tree(m["type"], value[m["name"]]) for m in members(found) if m["name"] in value}
        if found and found["kind"] == "union":
            case = case_of(found, value["$discriminator"])
            tree = {} if is_implied(case, value["$discriminator"]) else {"$discriminator": value["$discriminator"]}
            return tree | ({case["name"]: self.tree(case["type"], value[case["name"]])} if case else {})
        return value

    def value(self, type_, tree):
        """The value of a tree. Raises an error if a part of the tree has the wrong kind."""
        type_ = resolve(type_)
        return getattr(self, "from_" + type_[0])(type_, tree)

    def from_prim(self, type_, tree):
        kind = type_[1]
        if kind in ("float", "double"):
            named = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
            number = named[tree] if self.finite and isinstance(tree, str) else expect((int, float), tree)
            return single(number) if kind == "float" else float(number)
        if kind == "bool":
            return expect(bool, tree)
        if kind in ("char", "wchar", "longdouble"):
            return expect(str, tree)
        return int(tree) if isinstance(tree, str) and BITS[kind] == 64 else expect(int, tree)

    def from_string(self, _type, tree):
        return expect(str, tree)

    from_wstring = from_string

    def from_seq(self, type_, tree):
        if is_octets(type_):
            return base64.b64decode(expect(str, tree), validate=True)
        return [self.value(type_[1], element) for element in expect(list, tree)]

    def from_array(self, type_, tree):
        if is_octets(type_):
            return self.from_seq(type_, tree)
        return shaped([self.value(type_[1], element) for element in flatten(tree, type_[2])], type_[2])

    def from_map(self, type_, tree):
        is_number = resolve(type_[1])[0] == "prim"
        entries = expect(dict, tree).items()
        return {int(key) if is_number else str(key): self.value(type_[2], element) for key, element in entries}

    def from_ref(self, type_, tree):
        found = definition(type_)
        if found["kind"] == "struct":
            types = {m["name"]: m["type"] for m in members(found)}
            return {name: self.value(types[name], part) for name, part in expect(dict, tree).items()}
        if found["kind"] == "union":
            return self.from_union(found, expect(dict, tree))
        if found["kind"] == "bitset":
            return expect(dict, tree)
        return expect(str if found["kind"] == "enum" else int, tree)

    def from_union(self, found, tree):
        name = next((name for name in tree if name != "$discriminator"), None)
        case = next((c for c in found["cases"] if c["name"] == name), None)
        discriminator = tree["$discriminator"] if "$discriminator" in tree else case["labels"][0]
        if resolve(found["discriminator"]) == ("prim", "int64"):
            discriminator = int(discriminator)
        return {"$discriminator": discriminator} | ({name: self.value(case["type"], tree[name])} if case else {})


def key_text(key):
    return str(key).lower() if isinstance(key, bool) else str(key)


def expect(kinds, tree):
    if not isinstance(tree, kinds) or isinstance(tree, bool) and kinds is not bool:
        raise ValueError(f"{tree!r} is not one of {kinds}")
    return tree


def exact(tree):
    """A text that is equal for equal values only. The order of members does not matter, but the sign of
    zero and the kind of a number do."""
    if isinstance(tree, dict):
        return "{" + ",".join(sorted(f"{exact(key)}:{exact(element)}" for key, element in tree.items())) + "}"
    if isinstance(tree, (list, tuple)):
        return "[" + ",".join(exact(element) for element in tree) + "]"
    return repr(tree)


def difference(got, wanted, path=""):
    """The first difference of two values as a text, or None."""
    if exact(got) == exact(wanted):
        return None
    if isinstance(got, dict) and isinstance(wanted, dict):
        for name in [*wanted, *got]:
            found = difference(got.get(name, ...), wanted.get(name, ...), f"{path}.{name}")
            if found:
                return found
    if isinstance(got, list) and isinstance(wanted, list) and len(got) == len(wanted):
        for i, pair in enumerate(zip(got, wanted)):
            found = difference(*pair, f"{path}[{i}]")
            if found:
                return found
    return f"{path or 'the value'}: expected {wanted!r:.200}, got {got!r:.200}"


def json_text(tree):
    return json.dumps(tree, ensure_ascii=False, separators=(",", ":"))


def json_tree(text):
    return json.loads(text)
