"""Checks of Protobuf with Google's package. `protoc` compiles the output of `polywire idl proto`."""

import pathlib
import tempfile

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_tools import protoc

import model

TYPES = ["Scalars", "Texts", "Lists", "Arrays", "Tables", "Nested", "Choices", "Levels", "Optionals", "Unions", "Growing", "Grown", "Loose",
         "Bits", "Numbers", "Maps", "Wide", "Quads"]


def check(checks):
    for name in TYPES:
        made = compiled(checks, name)

        def reads(value):
            message = made()
            message.ParseFromString(checks.payloads.encode(name, "protobuf", value))
            return structure(model.type_of(name), message), value

        def writes(value):
            message = made()
            fill(model.type_of(name), message, value)
            return checks.payloads.decode(name, "protobuf", message.SerializeToString()), value
        checks.case(f"protobuf/protobuf/reads/{name}", checks.values(name), reads)
        checks.case(f"protobuf/protobuf/writes/{name}", checks.values(name), writes)
    merged(checks)


def compiled(checks, name):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder)
        (path / "types.proto").write_text(checks.payloads.emit(name, "proto"))
        status = protoc.main(["protoc", f"-I{folder}", f"--descriptor_set_out={path / 'set'}", str(path / "types.proto")])
        assert status == 0, f"protoc refuses {name}"
        files = descriptor_pb2.FileDescriptorSet.FromString((path / "set").read_bytes())
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"Foreign.{name}"))


def is_collection(type_):
    return type_[0] in ("seq", "array", "map") and not (type_[0] != "map" and is_octets(type_))


def is_octets(type_):
    return model.resolve(type_[1]) == ("prim", "octet")


def fill(type_, message, value):
    """Sets the fields of a message to the value of a structure or union."""
    found = model.definition(model.resolve(type_))
    if found["kind"] == "union":
        return fill_union(found, message, value)
    for member in model.members(found):
        if member["name"] in value:
            put(member["type"], message, member["name"], value[member["name"]], member["optional"])


def fill_union(found, message, value):
    discriminator = value["$discriminator"]
    case = model.case_of(found, discriminator)
    if not model.is_implied(case, discriminator):
        message.discriminator = number_of(found["discriminator"], discriminator)
    if case:
        put(case["type"], message, case["name"], value[case["name"]], True)


def number_of(type_, discriminator):
    type_ = model.resolve(type_)
    if type_[0] == "ref":
        return model.definition(type_)["literals"][discriminator]
    return ord(discriminator) if isinstance(discriminator, str) else int(discriminator)


def put(type_, message, name, value, wrapped=False):
    """Sets a field to the value of a member. If `wrapped`, a collection is field 1 of a message of its
    own."""
    type_ = model.resolve(type_)
    if is_collection(type_):
        if wrapped:
            message = getattr(message, name)
            message.SetInParent()
            name = first(message)
        return put_all(type_, getattr(message, name), value)
    if is_message(type_):
        inner = getattr(message, name)
        inner.SetInParent()
        return fill(type_, inner, value)
    setattr(message, name, scalar(type_, value))


def put_all(type_, target, value):
    if type_[0] == "map":
        for key, element in value.items():
            put_entry(type_, target, scalar(model.resolve(type_[1]), key), element)
        return
    inner = model.resolve(type_[1])
    for element in model.flatten(value, type_[2]) if type_[0] == "array" else value:
        if is_collection(inner):
            added = target.add()
            put_all(inner, getattr(added, first(added)), element)
        elif is_message(inner):
            fill(inner, target.add(), element)
        else:
            target.append(scalar(inner, element))


def put_entry(type_, target, key, element):
    inner = model.resolve(type_[2])
    if is_collection(inner):
        put_all(inner, getattr(target[key], first(target[key])), element)
    elif is_message(inner):
        fill(inner, target[key], element)
    else:
        target[key] = scalar(inner, element)


def is_message(type_):
    return type_[0] == "ref" and model.definition(type_)["kind"] in ("struct", "union")


def first(message):
    return message.DESCRIPTOR.fields_by_number[1].name


def scalar(type_, value):
    found = model.definition(type_)
    if type_ == ("prim", "longdouble"):
        return bytes.fromhex(value[2:])[::-1]
    if type_[0] == "prim" and type_[1] in ("char", "wchar"):
        return ord(value)
    if found and found["kind"] == "bitset":
        return model.packed(found, value)
    if type_[0] == "array":
        return bytes(model.flatten(value, type_[2])) if len(type_[2]) > 1 else value
    return found["literals"][value] if found and found["kind"] == "enum" else value


def structure(type_, message):
    found = model.definition(model.resolve(type_))
    if found["kind"] == "union":
        return union(found, message)
    present = [m for m in model.members(found) if not m["optional"] or message.HasField(m["name"])]
    return {m["name"]: part(m["type"], getattr(message, m["name"]), m["optional"]) for m in present}


def union(found, message):
    name = message.WhichOneof("value")
    case = next((c for c in found["cases"] if c["name"] == name), None)
    type_ = model.resolve(found["discriminator"])
    if not message.HasField("discriminator"):
        discriminator = case["labels"][0]
    elif type_[0] == "ref":
        discriminator = plain(type_, message.discriminator)
    else:
        discriminator = {"char": chr, "bool": bool}.get(type_[1], int)(message.discriminator)
    return {"$discriminator": discriminator} | ({name: part(case["type"], getattr(message, name), True)} if case else {})


def part(type_, theirs, wrapped=False):
    type_ = model.resolve(type_)
    if is_collection(type_):
        return collection(type_, getattr(theirs, first(theirs)) if wrapped else theirs)
    return structure(type_, theirs) if is_message(type_) else plain(type_, theirs)


def collection(type_, theirs):
    if type_[0] == "map":
        return {plain(model.resolve(type_[1]), key): part(type_[2], theirs[key], True) for key in theirs}
    elements = [part(type_[1], element, True) for element in theirs]
    return model.shaped(elements, type_[2]) if type_[0] == "array" else elements


def plain(type_, theirs):
    found = model.definition(type_)
    if type_ == ("prim", "longdouble"):
        return "0x" + theirs[::-1].hex()
    if type_[0] == "prim" and type_[1] in ("char", "wchar"):
        return chr(theirs)
    if type_[0] == "array" and len(type_[2]) > 1:
        return model.shaped(list(theirs), type_[2])
    if found and found["kind"] == "bitset":
        return model.unpacked(found, theirs)
    if found and found["kind"] == "enum":
        return next(name for name, number in found["literals"].items() if number == theirs)
    return theirs


def merged(checks):
    """A message that consists of two pieces: Google's package and Polywire must merge them to the same
    value."""
    made = compiled(checks, "Unions")

    def both(pieces):
        whole = b"".join(bytes.fromhex(piece) for piece in pieces)
        message = made()
        message.ParseFromString(whole)
        return checks.payloads.decode("Unions", "protobuf", whole), structure(model.type_of("Unions"), message)
    others = ["1202" "1200", "1a02" "1001", "2202" "1007", "2a02" "1007"]
    ways = {"union-empty-first": ["0a00", "0a021006"], "union-other-case": ["0a021006", "0a031a0178"],
            "union-discriminator-first": ["0a020804", "0a031a0178"]}
    for way, pieces in ways.items():
        checks.case(f"protobuf/protobuf/merged/{way}", [others + pieces], both)

    made_of_optionals = compiled(checks, "Optionals")

    def wrapped(pieces):
        whole = b"".join(bytes.fromhex(piece) for piece in pieces)
        message = made_of_optionals()
        message.ParseFromString(whole)
        return checks.payloads.decode("Optionals", "protobuf", whole), structure(model.type_of("Optionals"), message)
    checks.case("protobuf/protobuf/merged/sequence-empty-first", [["2a00", "2a040a020406"]], wrapped)
    checks.case("protobuf/protobuf/merged/sequence-twice", [["2a040a020406", "2a030a0108"]], wrapped)
