"""Checks of BSON with pymongo, MessagePack with msgpack, CBOR with cbor2, UBJSON with py-ubjson.
A library must read Polywire's bytes as the tree that the format's page in spec/ describes. Polywire
must read the library's bytes of that tree as the original value, also if the members are in another
order, and if unions contain their discriminators.
"""

import decimal
import math
import random

import bson
import cbor2
import msgpack
import ubjson
from bson.binary import Binary
from bson.codec_options import CodecOptions

import model

TYPES = ["Scalars", "Texts", "Lists", "Arrays", "Tables", "Nested", "Choices", "Levels", "Optionals", "Unions", "Growing", "Grown", "Loose",
         "Bits", "Numbers", "Maps", "Wide", "Quads"]
SUBTYPE = 0x80


class Format:
    """The mapping of a format and the limits of its library. This class is for MessagePack and CBOR."""

    names_are_keys = False

    def __init__(self, library, codec, loads, dumps):
        self.library, self.codec, self.loads, self.dumps = library, codec, loads, dumps

    def integer(self, _kind, number):
        return number

    def quad(self, octets):
        return octets

    def discriminator(self, value):
        """A discriminator as a number. A character is its code."""
        return ord(value) if isinstance(value, str) else value

    def read(self, tree):
        """Converts a tree that the library read, for comparison."""
        return tree

    def can_write(self, _value):
        return True

    def texts(self, _name):
        return model.TEXTS


class Bson(Format):
    names_are_keys = True

    def integer(self, kind, number):
        return Binary(number.to_bytes(8, "little"), SUBTYPE) if kind == "uint64" and number >= 2 ** 63 else number

    def quad(self, octets):
        return Binary(octets[::-1], SUBTYPE)

    def discriminator(self, value):
        """A boolean is a number, too."""
        return int(super().discriminator(value))

    def texts(self, name):
        """Names in BSON cannot contain NUL."""
        return [text for text in model.TEXTS if "\0" not in text] if name == "Maps" else model.TEXTS

    def read(self, tree):
        if isinstance(tree, dict):
            return {key: self.read(element) for key, element in tree.items()}
        if isinstance(tree, list):
            return [self.read(element) for element in tree]
        return int(tree) if isinstance(tree, int) and not isinstance(tree, bool) else tree


class Ubjson(Format):
    names_are_keys = True

    def read(self, tree):
        """py-ubjson reads every array of type `U` (`[$U#`) as bytes, and large numbers as decimals."""
        if isinstance(tree, dict):
            return {key: self.read(element) for key, element in tree.items()}
        if isinstance(tree, list):
            return [self.read(element) for element in tree]
        if isinstance(tree, decimal.Decimal):
            return int(tree)
        return list(tree) if isinstance(tree, bytes) else tree

    def can_write(self, value):
        """Whether all numbers are finite. py-ubjson writes others as null; the cases `nan-as-null`
        check that."""
        return "nan" not in model.exact(value) and "inf" not in model.exact(value)


FORMATS = [
    Bson("pymongo", "bson", lambda data: bson.decode(data, CodecOptions(tz_aware=True)), bson.encode),
    Format("msgpack", "msgpack", lambda data: msgpack.unpackb(data, strict_map_key=False), msgpack.packb),
    Format("cbor2", "cbor", cbor2.loads, cbor2.dumps),
    Format("cbor2", "cbor:deterministic", cbor2.loads, lambda tree: cbor2.dumps(tree, canonical=True)),
    Ubjson("py-ubjson", "ubjson", ubjson.loadb, ubjson.dumpb),
]


def check(checks):
    for format_ in FORMATS:
        for name in TYPES:
            One(checks, format_, name).check()
        unions(checks, format_)
    indefinite(checks)
    null_for_nan(checks)


class One:
    def __init__(self, checks, format_, name):
        self.checks, self.format, self.name = checks, format_, name
        self.type = model.type_of(name)

    def check(self):
        values = self.checks.values(self.name, texts=self.format.texts(self.name))
        label = f"{self.format.library}/{self.format.codec}"
        self.checks.case(f"{label}/reads/{self.name}", values, self.reads)
        values = [value for value in values if self.format.can_write(value)]
        for way, change in [("writes", lambda tree: tree), ("writes-reversed", backwards)]:
            self.checks.case(f"{label}/{way}/{self.name}", values, lambda value: self.writes(value, change))
        if self.name == "Unions":
            self.checks.case(f"{label}/writes-discriminators/{self.name}", values, lambda value: self.writes(value, lambda tree: tree, True))

    def reads(self, value):
        payload = self.checks.payloads.encode(self.name, self.format.codec, value)
        return self.format.read(self.format.loads(payload)), self.format.read(tree(self.format, self.type, value))

    def writes(self, value, change, says=False):
        payload = self.format.dumps(change(tree(self.format, self.type, value, says)))
        return self.checks.payloads.decode(self.name, self.format.codec, payload), value


def tree(format_, type_, value, says=False):
    """The tree of a value, as the format's page describes it. If `says`, unions always contain their
    discriminators."""
    type_ = model.resolve(type_)
    found = model.definition(type_)
    if isinstance(value, bytes):
        return value
    if type_[0] == "array":
        elements = [tree(format_, type_[1], element, says) for element in model.flatten(value, type_[2])]
        return bytes(elements) if model.resolve(type_[1]) == ("prim", "octet") else elements
    if type_[0] == "seq":
        return [tree(format_, type_[1], element, says) for element in value]
    if type_[0] == "map":
        return {key(format_, type_[1], name): tree(format_, type_[2], element, says) for name, element in value.items()}
    if type_ == ("prim", "longdouble"):
        return format_.quad(bytes.fromhex(value[2:]))
    if type_[0] == "prim":
        return format_.integer(type_[1], value)
    return getattr(Trees, found["kind"])(format_, found, value, says) if found else value


def key(format_, type_, name):
    name = tree(format_, type_, name)
    return model.key_text(name) if format_.names_are_keys else name


class Trees:
    @staticmethod
    def enum(_format, found, value, _says):
        return found["literals"][value]

    @staticmethod
    def bitmask(format_, found, value, _says):
        return format_.integer("uint64" if found["bits"] > 32 else "uint32", value)

    @staticmethod
    def bitset(format_, found, value, _says):
        return format_.integer("uint64" if model.bits_of(found) > 32 else "uint32", model.packed(found, value))

    @staticmethod
    def struct(format_, found, value, says):
        return {m["name"]: tree(format_, m["type"], value[m["name"]], says) for m in model.members(found) if m["name"] in value}

    @staticmethod
    def union(format_, found, value, says):
        discriminator = value["$discriminator"]
        case = model.case_of(found, discriminator)
        implied = model.is_implied(case, discriminator) and not says
        number = tree(format_, found["discriminator"], discriminator)
        said = {} if implied else {"$discriminator": format_.discriminator(number)}
        return said | ({case["name"]: tree(format_, case["type"], value[case["name"]], says)} if case else {})


def backwards(tree_):
    if isinstance(tree_, dict):
        return {key_: backwards(element) for key_, element in reversed(tree_.items())}
    return [backwards(element) for element in tree_] if isinstance(tree_, list) else tree_


def unions(checks, format_):
    """Unions as a person who knows Polywire's JSON might write them."""
    base = model.Values(random.Random(1), texts=["x"]).of(model.type_of("Unions"))
    plain = tree(format_, model.type_of("Unions"), base | {"list": []})
    ways = {
        "default-without-discriminator": ("number", {"precise": 1.5}, {"$discriminator": 0, "precise": 1.5}),
        "discriminator-by-name": ("name", {"$discriminator": "RED", "list": [1]}, {"$discriminator": "RED", "list": [1]}),
        "discriminator-by-letter": ("letter", {"$discriminator": "b", "raw": 7}, {"$discriminator": "b", "raw": 7}),
    }
    for way, (member, written, wanted) in ways.items():
        def check_way(written):
            payload = format_.dumps(plain | {member: written})
            return checks.payloads.decode("Unions", format_.codec, payload)[member], wanted
        checks.case(f"{format_.library}/{format_.codec}/unions/{way}", [written], check_way)


def indefinite(checks):
    """A `long double` as a CBOR byte string of indefinite length, in two pieces."""
    def check_pieces(octets):
        pieces = b"\x5f\x48" + octets[:8] + b"\x48" + octets[8:] + b"\xff"
        assert cbor2.loads(pieces) == octets
        whole = cbor2.dumps({"before": 1, "number": 0, "list": [], "pair": [octets, octets], "behind": 2})
        payload = whole.replace(b"fnumber\x00", b"fnumber" + pieces)
        return checks.payloads.decode("Quads", "cbor", payload)["number"], "0x" + octets.hex()
    checks.case("cbor2/cbor/pieces/Quads", [bytes(range(16))], check_pieces)


def null_for_nan(checks):
    def check_null(value):
        payload = ubjson.dumpb(value)
        return checks.payloads.decode("Optionals", "ubjson", payload), {"behind": 1}
    checks.case("py-ubjson/ubjson/nan-as-null/optional", [{"precise": math.nan, "behind": 1}], check_null)

    def check_mandatory(value):
        scalars = model.Values(random.Random(3), letters=[65]).of(model.type_of("Scalars")) | {"single": 0.5, "precise": value}
        return checks.payloads.decode("Scalars", "ubjson", ubjson.dumpb(scalars)), scalars
    checks.case("py-ubjson/ubjson/nan-as-null/mandatory", [math.nan], check_mandatory)
