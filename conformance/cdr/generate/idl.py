"""A small reader of IDL for the files of the vectors, the workloads and the checks with other
libraries. It supports only the IDL that these files use.

Types are tuples: ("prim", "int32"), ("string", bound), ("wstring", bound), ("seq", element, bound),
("map", key, value, bound), ("array", element, dimensions), ("ref", name).
Definitions are dictionaries with a "kind": struct, union, enum, bitmask, bitset, alias.
"""

import re

PRIMITIVES = {
    "boolean": "bool", "octet": "octet", "char": "char", "wchar": "wchar",
    "int8": "int8", "uint8": "uint8", "int16": "int16", "uint16": "uint16",
    "int32": "int32", "uint32": "uint32", "int64": "int64", "uint64": "uint64",
    "short": "int16", "long": "int32", "long long": "int64",
    "unsigned short": "uint16", "unsigned long": "uint32", "unsigned long long": "uint64",
    "float": "float", "double": "double", "long double": "longdouble",
}
TOKEN = re.compile(r"//[^\n]*|'(?:\\.|[^'])'|0[xX][0-9a-fA-F]+|-?\d+|::|\w+|@\w+|[{}();<>,\[\]:=]")


class Reader:
    """A recursive descent parser for the tokens of one file. It fills `definitions` by qualified name."""

    def __init__(self, text):
        self.tokens = [t for t in TOKEN.findall(text) if not t.startswith("//")]
        self.at = 0
        self.definitions = {}
        self.scope = []

    def peek(self):
        return self.tokens[self.at] if self.at < len(self.tokens) else None

    def next(self, expected=None):
        token = self.tokens[self.at]
        if expected is not None and token != expected:
            raise SyntaxError(f"expected {expected}, found {token}")
        self.at += 1
        return token

    def accept(self, token):
        if self.peek() == token:
            self.at += 1
            return True
        return False

    def file(self):
        while self.peek() is not None:
            self.definition()
        return self.definitions

    def annotations(self):
        found = {}
        while self.peek().startswith("@"):
            name = self.next()[1:]
            found[name] = None
            if self.accept("("):
                found[name] = self.next()
                self.next(")")
        return found

    def definition(self):
        notes = self.annotations()
        kind = self.next()
        if kind == "module":
            self.scope.append(self.next())
            self.next("{")
            while not self.accept("}"):
                self.definition()
            self.scope.pop()
        elif kind == "typedef":
            base = self.type()
            name, type_ = self.declarator(base)
            self.define(name, {"kind": "alias", "type": type_})
        else:
            getattr(self, kind)(self.next(), notes)
        self.next(";")

    def define(self, name, definition):
        definition["name"] = "::".join(self.scope + [name])
        self.definitions[definition["name"]] = definition

    def extensibility(self, notes):
        return next((e for e in ("final", "mutable") if e in notes), "appendable")

    def struct(self, name, notes):
        if self.peek() == ";":
            return
        base = self.scoped(self.next()) if self.accept(":") else None
        self.next("{")
        members = []
        following = self.last_id(base) + 1
        while not self.accept("}"):
            member_notes = self.annotations()
            member, type_ = self.declarator(self.type())
            self.next(";")
            number = int(member_notes["id"], 0) if "id" in member_notes else following
            following = number + 1
            members.append({"name": member, "type": type_, "id": number, "key": "key" in member_notes,
                            "optional": "optional" in member_notes, "must": "must_understand" in member_notes})
        self.define(name, {"kind": "struct", "base": base, "members": members,
                           "extensibility": self.extensibility(notes)})

    def last_id(self, base):
        if base is None:
            return -1
        definition = self.definitions[base]
        return definition["members"][-1]["id"] if definition["members"] else self.last_id(definition["base"])

    def union(self, name, notes):
        self.next("switch")
        self.next("(")
        discriminator = self.type()
        self.next(")")
        self.next("{")
        cases = []
        while not self.accept("}"):
            labels, default = [], False
            while self.peek() in ("case", "default"):
                if self.next() == "default":
                    default = True
                else:
                    labels.append(self.label())
                self.next(":")
            member, type_ = self.declarator(self.type())
            self.next(";")
            cases.append({"name": member, "type": type_, "labels": labels, "default": default})
        self.define(name, {"kind": "union", "discriminator": discriminator, "cases": cases,
                           "extensibility": self.extensibility(notes)})

    def label(self):
        token = self.next()
        if token[0] == "'":
            return token[1:-1]
        return {"TRUE": True, "FALSE": False}.get(token, int(token, 0) if re.match(r"-?\d", token) else token)

    def enum(self, name, notes):
        literals, value = {}, 0
        for literal, literal_notes in self.names():
            value = int(literal_notes.get("value", value))
            literals[literal] = value
            value += 1
        self.define(name, {"kind": "enum", "literals": literals, "bits": int(notes.get("bit_bound", 32))})

    def bitmask(self, name, notes):
        flags, position = {}, 0
        for flag, flag_notes in self.names():
            position = int(flag_notes.get("position", position))
            flags[flag] = position
            position += 1
        self.define(name, {"kind": "bitmask", "flags": flags, "bits": int(notes.get("bit_bound", 32))})

    def names(self):
        self.next("{")
        found = []
        while not self.accept("}"):
            notes = self.annotations()
            found.append((self.next(), notes))
            self.accept(",")
        return found

    def bitset(self, name, _notes):
        self.next("{")
        fields = []
        while not self.accept("}"):
            self.next("bitfield")
            self.next("<")
            width = int(self.next())
            if self.accept(","):
                self.type()
            self.next(">")
            fields.append((None if self.peek() == ";" else self.next(), width))
            self.next(";")
        self.define(name, {"kind": "bitset", "fields": fields})

    def declarator(self, base):
        name = self.next()
        dimensions = []
        while self.accept("["):
            dimensions.append(int(self.next()))
            self.next("]")
        return name, ("array", base, dimensions) if dimensions else base

    def type(self):
        token = self.next()
        if token in ("string", "wstring"):
            return (token, self.bound())
        if token == "sequence":
            self.next("<")
            element = self.type()
            bound = int(self.next()) if self.accept(",") else None
            self.next(">")
            return ("seq", element, bound)
        if token == "map":
            self.next("<")
            key = self.type()
            self.next(",")
            value = self.type()
            bound = int(self.next()) if self.accept(",") else None
            self.next(">")
            return ("map", key, value, bound)
        while f"{token} {self.peek()}" in PRIMITIVES or token == "unsigned":
            token += " " + self.next()
        return ("prim", PRIMITIVES[token]) if token in PRIMITIVES else ("ref", self.scoped(token))

    def bound(self):
        if not self.accept("<"):
            return None
        bound = int(self.next())
        self.next(">")
        return bound

    def scoped(self, name):
        while self.accept("::"):
            name += "::" + self.next()
        return "::".join(self.scope + [name])


def read(path):
    with open(path) as file:
        return Reader(file.read()).file()


def resolve(definitions, type_):
    """The type with its typedefs replaced, but not those of its elements."""
    while type_[0] == "ref" and definitions[type_[1]]["kind"] == "alias":
        type_ = definitions[type_[1]]["type"]
    if type_[0] == "array":
        element = resolve(definitions, type_[1])
        if element[0] == "array":
            return ("array", element[1], type_[2] + element[2])
    return type_


def members(definitions, struct):
    """The members of a struct, after those of its bases."""
    base = members(definitions, definitions[struct["base"]]) if struct["base"] else []
    return base + struct["members"]


def select(definitions, union, value):
    """The discriminator of a union's JSON value as a number, and the case that it selects, or None."""
    named = [name for name in value if name != "$discriminator"]
    if "$discriminator" in value:
        discriminator = value["$discriminator"]
    else:
        discriminator = next(c for c in union["cases"] if c["name"] == named[0])["labels"][0]
    kind = resolve(definitions, union["discriminator"])
    if kind[0] == "ref" and isinstance(discriminator, str):
        number = definitions[kind[1]]["literals"][discriminator]
    else:
        number = discriminator
    case = next((c for c in union["cases"] if discriminator in c["labels"]), None)
    case = case or next((c for c in union["cases"] if c["default"]), None)
    assert [case["name"]] == named if case else not named, f"{value} does not fit {union['name']}"
    return number, case
