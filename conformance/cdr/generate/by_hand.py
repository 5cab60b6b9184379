"""Vectors written by hand from DDS-XTypes 1.3: encodings that a reader must accept although the tools
write others, and bytes that a reader must refuse. Blanks and bars in the hex are only for
readability."""

from cases import READER, VERSIONED, case


def vector(name, file, type_, encoding, order, hex_, **more):
    found = {**case(file, type_, "", None), **more}
    return {"name": name, "idl": found["idl"], "type": found["type"], "encoding": encoding, "order": order, **more,
            "hex": hex_.replace(" ", "").replace("|", ""), "by": "specification"}


READABLE = [
    # The size of `b` includes the padding after the text, as RTPS implementations write parameters.
    vector("by-hand/parameter-with-padding.xcdr1.le", "mutable.idl", "Reader", "xcdr1", "le",
           "00030000 | 0100 0400 05000000 | 0200 0c00 05000000 6669766500 000000 | 0300 0400 06 000000 | 023f 0000",
           value=READER, decode_only=True),
    # Every parameter has the long header, which only large ids and sizes need.
    vector("by-hand/long-parameter-headers.xcdr1.le", "mutable.idl", "Reader", "xcdr1", "le",
           "00030000 | 013f 0800 01000000 04000000 05000000 | 013f 0800 02000000 09000000 05000000 6669766500 000000"
           " | 013f 0800 03000000 01000000 06 000000 | 023f 0000",
           value=READER, decode_only=True),
    # The extended marker and the end marker have the must-understand flag, as in Cyclone DDS 11.
    vector("by-hand/flagged-markers.xcdr1.le", "mutable.idl", "Reader", "xcdr1", "le",
           "00030000 | 017f 0800 01000000 04000000 05000000 | 017f 0800 02000000 09000000 05000000 6669766500"
           " 000000 | 017f 0800 03000000 01000000 06 000000 | 027f 0000",
           value=READER, decode_only=True),
    vector("by-hand/parameters-in-another-order.xcdr1.be", "mutable.idl", "Reader", "xcdr1", "be",
           "00020000 | 0003 0001 06 000000 | 0001 0004 00000005 | 0002 0009 00000005 6669766500 000000 | 3f02 0000",
           value=READER, decode_only=True),
    # A NEXTINT before every value, even if the value has a length of its own or takes four bytes.
    vector("by-hand/nextint-everywhere.xcdr2.le", "mutable.idl", "Reader", "xcdr2", "le",
           "000b0003 | 29000000 | 01000040 04000000 05000000 | 02000040 09000000 05000000 6669766500 000000"
           " | 03000040 01000000 06 000000",
           value=READER, decode_only=True),
    vector("by-hand/members-in-another-order.xcdr2.be", "mutable.idl", "Reader", "xcdr2", "be",
           "000a0003 | 0000001d | 00000003 06 000000 | 20000001 00000005 | 50000002 00000005 6669766500 000000",
           value=READER, decode_only=True),
    # A length code of 0..3 for any value of that size, here two shorts and their count, as in Fast
    # CDR 2.
    vector("by-hand/length-code-by-size.xcdr2.le", "mutable.idl", "Writer", "xcdr2", "le",
           "000b0000 | 28000000 | 05000030 000000000000e03f | 03000000 06 000000 | 01000020 05000000"
           " | 04000030 02000000 0100 0200",
           value={"e": 0.5, "c": 6, "a": 5, "d": [1, 2]}, decode_only=True),
    # Bytes of an older writer. The additional members of the newer reader have their defaults.
    vector("by-hand/appendable-shorter.xcdr2.le", "structs.idl", "Versioned", "xcdr2", "le",
           "00090001 | 0f000000 | 01 000000 f9ffffff 03000000 686900 00",
           value=VERSIONED, decode_only=True,
           read_as={"type": "Golden::Grown", "value": {**VERSIONED, "added": 0.0}}),
    # A header with empty options, and no padding at the end, as writers before RTPS 2.3 send.
    vector("by-hand/no-pad-count.xcdr1.le", "primitives.idl", "OneOctet", "xcdr1", "le", "00010000 | 07",
           value={"value": 7}, decode_only=True),
]

REFUSED = [
    vector("refused/boolean-two.xcdr1.le", "primitives.idl", "OneBoolean", "xcdr1", "le", "00010003 | 02 000000",
           why="a boolean is 0 or 1"),
    vector("refused/short.xcdr1.le", "primitives.idl", "OneDouble", "xcdr1", "le", "00010000 | 00000000",
           why="the value ends inside a double"),
    vector("refused/length-past-the-end.xcdr1.le", "sequences.idl", "EmptyOfDoubles", "xcdr1", "le",
           "00010000 | ffffffff", why="the sequence has a count of elements that exceeds the remaining bytes"),
    vector("refused/over-bound-sequence.xcdr1.le", "sequences.idl", "Bounded", "xcdr1", "le",
           "00010003 | 04000000 0100 0200 0300 0400 05 000000", why="four elements in a sequence of at most three"),
    vector("refused/over-bound-string.xcdr1.le", "strings.idl", "Strings", "xcdr1", "le",
           "00010002 | 01 000000 01000000 00 000000 0a000000 31323334353637383900 | 02 0000",
           why="nine characters in a string of at most eight"),
    vector("refused/string-length-zero.xcdr1.le", "keys.idl", "StringKey", "xcdr1", "le",
           "00010000 | 00000000 01000000", why="the length of a string includes its NUL, so it is at least 1"),
    vector("refused/string-without-nul.xcdr1.le", "keys.idl", "StringKey", "xcdr1", "le",
           "00010000 | 04000000 61626364 01000000", why="the last byte of a string must be NUL"),
    vector("refused/string-not-utf-8.xcdr1.le", "keys.idl", "StringKey", "xcdr1", "le",
           "00010000 | 04000000 61ff6200 01000000", why="the byte ff does not occur in UTF-8"),
    vector("refused/enum-literal.xcdr1.le", "sequences.idl", "OfEnums", "xcdr1", "le",
           "00010003 | 01000000 03000000 05 000000", why="the enum's literals are 0, 1 and 2"),
    vector("refused/optional-flag-two.xcdr2.le", "optionals.idl", "OptionalAppendable", "xcdr2", "le",
           "00090003 | 05000000 | 01 02 00 00 08 000000", why="the flag of an optional member is a boolean"),
    vector("refused/dheader-past-the-end.xcdr2.le", "structs.idl", "Versioned", "xcdr2", "le",
           "00090001 | 20000000 | 01 000000 f9ffffff 03000000 686900 00", why="the DHEADER states more bytes than there are"),
    vector("refused/dheader-too-small.xcdr2.le", "structs.idl", "AppendableInFinal", "xcdr2", "le",
           "00070003 | 01 000000 08000000 | 01 000000 00000000 00000440 03 | 02 000000",
           why="the DHEADER ends inside a double"),
    vector("refused/must-understand.xcdr2.le", "mutable.idl", "Reader", "xcdr2", "le",
           "000b0003 | 1d000000 | 01000020 05000000 | 02000050 05000000 6669766500 000000 | 63000080 01 000000",
           why="a member that must be understood is unknown"),
    vector("refused/must-understand.xcdr1.le", "mutable.idl", "Reader", "xcdr1", "le",
           "00030000 | 0100 0400 05000000 | 6340 0100 01 000000 | 023f 0000",
           why="a member that must be understood is unknown"),
    vector("refused/no-list-end.xcdr1.le", "mutable.idl", "Reader", "xcdr1", "le",
           "00030000 | 0100 0400 05000000", why="the parameter list does not end"),
    vector("refused/length-code-lies.xcdr2.le", "mutable.idl", "Reader", "xcdr2", "le",
           "000b0000 | 0c000000 | 01000040 40000000 05000000", why="NEXTINT states more bytes than the type's DHEADER"),
    vector("refused/unknown-encapsulation.xcdr1.le", "primitives.idl", "OneOctet", "xcdr1", "le",
           "00ff0003 | 07 000000", why="no encoding has the identifier 00ff"),
    vector("refused/no-encapsulation.xcdr1.le", "primitives.idl", "OneOctet", "xcdr1", "le", "0001",
           why="the encapsulation header has four bytes"),
]
