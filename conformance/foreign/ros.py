"""Checks of CDR in both byte orders with rosbags, a library that reads and writes ROS 2 recordings.
The types are those that a ROS message can express."""

import numpy
from rosbags.typesys import Stores, get_types_from_msg, get_typestore

import model

TYPES = ["Scalars", "Texts", "Lists", "Arrays", "Nested"]
NAMES = {"octet": "uint8", "char": "uint8", "float": "float32", "double": "float64"}
TEXTS = [text for text in model.TEXTS if "\0" not in text]


def check(checks):
    store = get_typestore(Stores.EMPTY)
    for name in TYPES:
        store.register(get_types_from_msg(message(name), full(name)))
    for name in TYPES:
        values = checks.values(name, texts=TEXTS)
        for order, little in [("le", True), ("be", False)]:
            def reads(value):
                payload = checks.payloads.encode(name, f"cdr:{order},header", value)
                return plain(model.type_of(name), store.deserialize_cdr(payload, full(name))), value

            def writes(value):
                payload = store.serialize_cdr(theirs(store, model.type_of(name), value), full(name), little_endian=little)
                return checks.payloads.decode(name, "cdr:header", bytes(payload)), value
            checks.case(f"rosbags/cdr.{order}/reads/{name}", values, reads)
            checks.case(f"rosbags/cdr.{order}/writes/{name}", values, writes)


def full(name):
    return f"foreign_msgs/msg/{name}"


def short(type_):
    return type_[1].rpartition("::")[2]


def message(name):
    """The type as the text of a ROS message definition."""
    return "".join(f"{field(member['type'])} {member['name']}\n" for member in model.members(model.definition(model.type_of(name))))


def field(type_):
    type_ = model.resolve(type_)
    if type_[0] == "seq":
        return field(type_[1]) + ("[]" if type_[2] is None else f"[<={type_[2]}]")
    if type_[0] == "array":
        return f"{field(type_[1])}[{type_[2][0]}]"
    if type_[0] == "string":
        return "string" if type_[1] is None else f"string<={type_[1]}"
    return NAMES.get(type_[1], type_[1]) if type_[0] == "prim" else short(type_)


def theirs(store, type_, value):
    type_ = model.resolve(type_)
    if type_[0] in ("seq", "array"):
        element = model.resolve(type_[1])
        values = [theirs(store, element, part) for part in value]
        return numpy.array(values, dtype=NAMES.get(element[1], element[1])) if element[0] == "prim" else values
    if type_[0] == "ref":
        parts = {m["name"]: theirs(store, m["type"], value[m["name"]]) for m in model.members(model.definition(type_))}
        return store.types[full(short(type_))](**parts)
    return ord(value) if type_ == ("prim", "char") else value


def plain(type_, value):
    type_ = model.resolve(type_)
    if type_[0] in ("seq", "array"):
        return bytes(value.tolist()) if model.is_octets(type_) else [plain(type_[1], part) for part in value]
    if type_[0] == "ref":
        return {m["name"]: plain(m["type"], getattr(value, m["name"])) for m in model.members(model.definition(type_))}
    if type_[0] == "prim":
        value = value.item() if isinstance(value, numpy.generic) else value
        return chr(value) if type_[1] == "char" else value
    return value
