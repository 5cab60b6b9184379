#!/usr/bin/env python3
"""Writes merged.jsonl: messages of Golden::Merged that consist of several pieces, with `protoc`.
    polywire idl proto merged.idl > /tmp/merged.proto; python3 merged.py /tmp/merged.proto > merged.jsonl
`protoc` encodes each piece, and the pieces are concatenated; so are the pieces of a nested message.
The script checks that `protoc` decodes the pieces to the same value as the bytes of the expected
value, which it also encodes."""

import json
import pathlib
import subprocess
import sys

PROTO = pathlib.Path(sys.argv[1])


def protoc(what, given):
    command = ["protoc", what, f"-I{PROTO.parent}", PROTO.name]
    return subprocess.run(command, input=given, stdout=subprocess.PIPE, check=True).stdout


def encode(text):
    return protoc("--encode=Golden.Merged", text.encode())


def nested(field, *pieces):
    """A field whose type is a message and whose content consists of several pieces. Each piece is the
    text of a message of that type."""
    inside = b""
    for piece in pieces:
        whole = encode(f"{field} {{ {piece} }}")
        # The pieces are short, so the tag and the length take a byte each.
        assert whole[1] == len(whole) - 2
        # `protoc` writes the key of a map entry even if the text has none. It is removed.
        inside += whole[2:].removeprefix(bytes([8, 0]))
    return bytes([encode(f"{field} {{}}")[0], len(inside)]) + inside


def value(**members):
    point = {"x": 0.0, "y": 0.0}
    rest = {"id": 0, "text": "", "place": point, "counts": [], "row": [1, -2, 3], "corners": [point, point], "list": [], "points": {}, "choice": {"number": 1}}
    return {**rest, **members}


def point(x=0.0, y=0.0):
    return {"x": x, "y": y}


# Fields that Polywire requires in every message.
PLACE, ROW, CORNERS, CHOICE = map(encode, ("place {}", "row: [1, -2, 3]", "corners {} corners {}", "choice { number: 1 }"))
REST = PLACE + ROW + CORNERS + CHOICE


def pieces(*texts):
    return b"".join(map(encode, texts))


CASES = [
    ("single", pieces('id: 1 text: "a"') + REST + pieces('id: 2 text: "b"'), value(id=2, text="b")),
    ("structure", pieces("place { x: 1 y: 2 }") + REST + pieces("place { y: 3 }"), value(place=point(1.0, 3.0))),
    ("optional", pieces("maybe { x: 1 }") + REST + pieces("maybe { y: 2 }", "maybe {}"), value(maybe=point(1.0, 2.0))),
    ("inside", nested("place", "x: 1", "y: 2", "x: 3") + REST, value(place=point(3.0, 2.0))),
    ("sequence", pieces("counts: [1, 2]") + REST + pieces("counts: -3", "id: 4", "counts: 5"), value(id=4, counts=[1, 2, -3, 5])),
    ("elements", pieces("list { x: 1 }") + REST + pieces("id: 4", "list { y: 2 }"), value(id=4, list=[point(1.0), point(0.0, 2.0)])),
    ("array", PLACE + pieces("row: [1, -2] corners { x: 1 }", "id: 7", "row: 3 corners { y: 1 }") + CHOICE, value(id=7, corners=[point(1.0), point(0.0, 1.0)])),
    ("map", pieces("points { key: 1 value { x: 1 } }") + REST + pieces("points { key: 2 value {} }"), value(points={"1": point(1.0), "2": point()})),
    ("entry", nested("points", "key: 1 value { x: 1 }", "value { y: 2 }") + REST, value(points={"1": point(1.0, 2.0)})),
    ("case", PLACE + pieces("choice { point { x: 1 } }") + ROW + CORNERS + pieces("choice { point { y: 2 } }"), value(choice={"point": point(1.0, 2.0)})),
    ("case, first empty", PLACE + pieces("choice {}") + ROW + CORNERS + pieces("choice { point { y: 2 } }"), value(choice={"point": point(0.0, 2.0)})),
    ("case, last empty", REST + pieces("choice {}"), value()),
    ("wrapped array, first empty", REST + pieces("triple {}", "triple { values: [1, -2, 3] }"), value(triple=[1, -2, 3])),
    ("wrapped array", REST + pieces("triple { values: 1 }", "id: 4", "triple { values: [-2, 3] }", "triple {}"), value(id=4, triple=[1, -2, 3])),
    ("other case", pieces("choice { point { x: 1 } }") + REST + pieces("choice { point { y: 2 } }"), value(choice={"point": point(0.0, 2.0)})),
]


def text_of(value):
    def fields(message):
        for name, inside in message.items():
            for one in inside if isinstance(inside, list) and name != "triple" else [inside]:
                if name == "points":
                    yield from (f"points {{ key: {key} value {{ {' '.join(fields(point))} }} }}" for key, point in one.items())
                else:
                    one = {"values": one} if name == "triple" else one
                    yield f"{name} {{ {' '.join(fields(one))} }}" if isinstance(one, dict) else f"{name}: {json.dumps(one)}"

    return " ".join(fields(value))


for name, given, expected in CASES:
    whole = encode(text_of(expected))
    told = [protoc("--decode=Golden.Merged", message) for message in (given, whole)]
    assert told[0] == told[1], f"{name}: {told[0].decode()}"
    print(json.dumps({"name": name, "type": "Golden::Merged", "value": expected, "hex": given.hex(), "whole": whole.hex(), "by": "protoc 3.21.12"}))
