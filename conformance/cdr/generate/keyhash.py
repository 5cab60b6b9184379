"""A model of key hashes by DDS-XTypes 1.3, for `vectors.py`. A key consists of the key members in the
order of their ids, big endian in the data's encoding, without DHEADERs and EMHEADERs. The hash is
the MD5 of the key if the key of any value of the type may exceed 16 bytes, otherwise the key,
padded with zeros."""

import hashlib

import idl
import xcdr

SIZE = 16


class Unbounded(Exception):
    """The size of the key has no upper bound."""


def key_hash(definitions, type_name, value, encoding):
    """The key hash in hex, or None for a type without a key."""
    struct = definitions[type_name]
    if not key_members(definitions, struct):
        return None
    key = encode(definitions, struct, value, encoding)
    if may_exceed(definitions, struct, encoding):
        return hashlib.md5(key).hexdigest()
    return key.ljust(SIZE, b"\0").hex()


def key_members(definitions, struct):
    keys = [member for member in idl.members(definitions, struct) if member["key"]]
    return sorted(keys, key=lambda member: member["id"])


def encode(definitions, struct, value, encoding):
    writer = xcdr.Writer(definitions, encoding, "be")
    put(writer, key_members(definitions, struct), value)
    return bytes(writer.out)


def put(writer, members, value):
    for member in members:
        nested = nested_struct(writer.definitions, member)
        if nested:
            put(writer, keys_or_all(writer.definitions, nested), value[member["name"]])
        else:
            writer.value(member["type"], value[member["name"]])


def nested_struct(definitions, member):
    type_ = idl.resolve(definitions, member["type"])
    if type_[0] == "ref" and definitions[type_[1]]["kind"] == "struct":
        return definitions[type_[1]]
    return None


def keys_or_all(definitions, struct):
    return key_members(definitions, struct) or idl.members(definitions, struct)


def may_exceed(definitions, struct, encoding):
    try:
        largest = largest_key(definitions, key_members(definitions, struct))
    except Unbounded:
        return True
    return len(encode(definitions, struct, largest, encoding)) > SIZE


def largest_key(definitions, members):
    largest = {}
    for member in members:
        nested = nested_struct(definitions, member)
        type_ = idl.resolve(definitions, member["type"])
        if nested:
            largest[member["name"]] = largest_key(definitions, keys_or_all(definitions, nested))
        elif type_[0] == "prim":
            largest[member["name"]] = 0
        elif type_[0] == "string" and type_[1] is not None:
            largest[member["name"]] = "x" * type_[1]
        else:
            raise Unbounded
    return largest
