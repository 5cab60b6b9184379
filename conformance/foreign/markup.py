"""Checks of XML with lxml, and of Polywire's XML Schemas with the validators of lxml and xmlschema."""

import base64
import re

import xmlschema
from lxml import etree

import model

TYPES = ["Scalars", "Texts", "Lists", "Arrays", "Tables", "Nested", "Choices", "Levels", "Optionals", "Unions", "Growing", "Grown", "Loose",
         "Bits", "Numbers", "Maps", "Wide", "Quads"]
CODECS = ["xml", "xml-dom"]
ENCODINGS = ["UTF-8", "ASCII", "utf8"]
NEVER = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]|_(?=x[0-9A-Fa-f]{4}_)")
ESCAPE = re.compile("_x([0-9A-Fa-f]{4})_")


def check(checks):
    for name in TYPES:
        schema = checks.payloads.emit(name, "xsd").encode()
        theirs, others = etree.XMLSchema(etree.fromstring(schema)), xmlschema.XMLSchema(schema.decode().partition("?>")[2])
        for codec in CODECS:
            Document(checks, name, codec, theirs, others).check()
    escapes(checks)


class Document:
    def __init__(self, checks, name, codec, theirs, others):
        self.checks, self.name, self.codec, self.theirs, self.others = checks, name, codec, theirs, others
        self.type = model.type_of(name)

    def check(self):
        values = self.checks.values(self.name)
        self.checks.case(f"lxml/{self.codec}/reads/{self.name}", values, self.reads)
        for option in ["members=attributes", "pretty", "declaration"]:
            self.checks.case(f"lxml/{self.codec}:{option}/reads/{self.name}", values, lambda value: self.reads(value, ":" + option))
        for encoding in ENCODINGS if self.name == "Texts" else ENCODINGS[:1]:
            self.checks.case(f"lxml/{self.codec}/writes-{encoding}/{self.name}", values, lambda value: self.writes(value, encoding))

    def reads(self, value, options=""):
        payload = self.checks.payloads.encode(self.name, self.codec + options, value)
        root = etree.fromstring(payload)
        if options != ":members=attributes":
            self.theirs.assertValid(root)
            self.others.validate(payload.decode())
        assert root.tag == f"Foreign.{self.name}"
        return read(self.type, root), value

    def writes(self, value, encoding):
        root = etree.Element(f"Foreign.{self.name}")
        write(self.type, root, value)
        payload = etree.tostring(root, encoding=encoding, xml_declaration=True)
        return self.checks.payloads.decode(self.name, self.codec, payload), value


def escaped(text):
    return NEVER.sub(lambda found: f"_x{ord(found[0]):04X}_", text)


def unescaped(text):
    def character(found):
        one = chr(int(found[1], 16))
        return one if one == "_" or NEVER.match(one) else found[0]
    return ESCAPE.sub(character, text)


def is_list(type_):
    """Whether the elements are words of a single text."""
    element = model.resolve(type_[1])
    return element[0] == "prim" and element[1] not in ("bool", "char", "wchar", "octet", "longdouble")


def number(kind, text):
    if kind not in ("float", "double"):
        return int(text)
    value = float(text.replace("INF", "inf"))
    return model.single(value) if kind == "float" else value


def text_of(type_, value):
    """The text of a value that has no parts."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(value).replace("inf", "INF").replace("nan", "NaN")
    return escaped(str(value))


def value_of(type_, text):
    type_ = model.resolve(type_)
    found = model.definition(type_)
    if type_ == ("prim", "bool"):
        return {"true": True, "false": False}[text]
    if type_[0] == "prim" and type_[1] not in ("char", "wchar", "longdouble"):
        return number(type_[1], text)
    return int(text) if found and found["kind"] == "bitmask" else unescaped(text)


def read(type_, element):
    type_ = model.resolve(type_)
    kind, found = type_[0], model.definition(type_)
    text = element.text or ""
    if kind in ("seq", "array"):
        return read_all(type_, element, text)
    if kind == "map":
        return {read(type_[1], entry[0]): read(type_[2], entry[1]) for entry in element}
    if not found or found["kind"] in ("enum", "bitmask"):
        return value_of(type_, text)
    if found["kind"] == "bitset":
        return {name: int(said) for name, said in element.attrib.items()}
    if found["kind"] == "union":
        return read_union(found, element)
    types = {member["name"]: member["type"] for member in model.members(found)}
    parts = {name: value_of(types[name], said) for name, said in element.attrib.items()}
    return parts | {part.tag: read(types[part.tag], part) for part in element}


def read_all(type_, element, text):
    if octets(type_):
        whole = base64.b64decode(text, validate=True)
        return whole if model.is_octets(type_) else model.shaped(list(whole), type_[2])
    if is_list(type_):
        elements = [number(model.resolve(type_[1])[1], word) for word in text.split()]
    else:
        elements = [read(type_[1], item) for item in element]
    return model.shaped(elements, type_[2]) if type_[0] == "array" else elements


def octets(type_):
    return model.resolve(type_[1]) == ("prim", "octet")


def read_union(found, element):
    case = next((c for c in found["cases"] if [c["name"]] == [part.tag for part in element]), None)
    said = element.get("discriminator")
    type_ = model.resolve(found["discriminator"])
    if said is None:
        discriminator = case["labels"][0]
    elif type_[0] == "ref":
        discriminator = said
    else:
        discriminator = {"bool": {"true": True, "false": False}.get, "char": lambda code: chr(int(code))}.get(type_[1], int)(said)
    return {"$discriminator": discriminator} | ({case["name"]: read(case["type"], element[0])} if case else {})


def write(type_, element, value):
    type_ = model.resolve(type_)
    kind, found = type_[0], model.definition(type_)
    if kind in ("seq", "array"):
        write_all(type_, element, value)
    elif kind == "map":
        for key, part in value.items():
            entry = etree.SubElement(element, "entry")
            write(type_[1], etree.SubElement(entry, "key"), key)
            write(type_[2], etree.SubElement(entry, "value"), part)
    elif not found or found["kind"] in ("enum", "bitmask"):
        element.text = text_of(type_, value)
    elif found["kind"] == "bitset":
        element.attrib.update({name: str(part) for name, part in value.items()})
    elif found["kind"] == "union":
        discriminator = value["$discriminator"]
        case = model.case_of(found, discriminator)
        if not model.is_implied(case, discriminator):
            letter = model.resolve(found["discriminator"]) == ("prim", "char")
            element.set("discriminator", str(ord(discriminator)) if letter else text_of(found["discriminator"], discriminator))
        if case:
            write(case["type"], etree.SubElement(element, case["name"]), value[case["name"]])
    else:
        for member in model.members(found):
            if member["name"] in value:
                write(member["type"], etree.SubElement(element, member["name"]), value[member["name"]])


def write_all(type_, element, value):
    elements = model.flatten(value, type_[2]) if type_[0] == "array" and not model.is_octets(type_) else value
    if octets(type_):
        element.text = base64.b64encode(bytes(elements)).decode()
    elif is_list(type_):
        element.text = " ".join(text_of(type_[1], part) for part in elements)
    else:
        for part in elements:
            write(type_[1], etree.SubElement(element, "item"), part)


def escapes(checks):
    """An escape `_xHHHH_` is an escape even if the document writes some of its characters as character
    references or as CDATA, because parsers resolve these first."""
    for codec in CODECS:
        def check_reference(text):
            payload = f"<Foreign.Texts><text>{text}</text><pair><item/><item/></pair></Foreign.Texts>".encode()
            return checks.payloads.decode("Texts", codec, payload)["text"], unescaped(etree.fromstring(payload)[0].text)
        checks.case(f"lxml/{codec}/escape-with-a-reference/Texts", ["&#95;x0001_", "_&#120;0001_", "_x<![CDATA[0001]]>_"], check_reference)
