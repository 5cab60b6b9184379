"""The values of the vectors. A case has a file, a type, a name and a value as JSON. It may also have
another version of the type, with the value that this version reads."""

GOLDEN = "Golden::"


def case(file, type_, name, value, read_as=None):
    qualified = type_ if "::" in type_ else GOLDEN + type_
    found = {"name": f"{file.rsplit('/', 1)[-1].removesuffix('.idl')}/{name}", "idl": file, "type": qualified,
         "value": value}
    if read_as:
        found["read_as"] = {"type": GOLDEN + read_as[0], "value": read_as[1]}
    return found


def boxed(value):
    return {"before": 1, "value": value, "after": 2}


PRIMITIVES = {
    "bool_value": True, "octet_value": 200, "char_value": "A", "int8_value": -5, "uint8_value": 250,
    "int16_value": -1234, "uint16_value": 54321, "int32_value": -123456789, "uint32_value": 3000000000,
    "int64_value": -1234567890123456789, "uint64_value": 12345678901234567890, "float_value": 1.5,
         "double_value": -2.25,
}
MINIMA = {
    "bool_value": False, "octet_value": 0, "char_value": "\u0000", "int8_value": -128, "uint8_value": 0,
    "int16_value": -32768, "uint16_value": 0, "int32_value": -2147483648, "uint32_value": 0,
    "int64_value": -9223372036854775808, "uint64_value": 0, "float_value": "-Infinity", "double_value": "-Infinity",
}
MAXIMA = {
    "bool_value": True, "octet_value": 255, "char_value": "~", "int8_value": 127, "uint8_value": 255,
    "int16_value": 32767, "uint16_value": 65535, "int32_value": 2147483647, "uint32_value": 4294967295,
    "int64_value": 9223372036854775807, "uint64_value": 18446744073709551615, "float_value": "NaN",
         "double_value": "Infinity",
}
PADDING = {"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6, "g": 7, "h": 8.5, "i": 9, "j": 10.5, "k": 11}
ONE = "0x3fff0000000000000000000000000000"
PI = "0x4000921fb54442d18469898cc51701b8"

ENTRY = {
    "mdUpdateAction": 1, "mdPriceLevel": 1, "mdEntryType": "0", "openCloseSettleFlag": 0, "securityIDSource": 9,
    "securityID": 26051, "rptSeq": 500001, "mdEntryPx": 9427.25, "mdEntryTime": 83000123, "mdEntrySize": 40,
    "numberOfOrders": 7, "tradingSessionID": "2", "netChgPrevDay": -2.25, "tradeVolume": 0, "tradeCondition": "W",
    "tickDirection": "0", "quoteCondition": "C", "aggressorSide": 0, "matchEventIndicator": "1",
}
MARKET_DATA = {
    "is_echo": False, "counter": 1, "securityID": 26051, "applVersionID": "1.0", "messageType": "X",
    "senderCompID": "Test Exchange", "msgSeqNum": 1000001, "sendingTime": 83000123, "tradeDate": 20120301,
    "mdEntries": [ENTRY, {**ENTRY, "mdEntryType": "", "mdEntryPx": 9427.5, "tradeCondition": "WX", "rptSeq": 500002}],
}
QUOTE_REQUEST = {
    "is_echo": True, "counter": 7, "securityID": 26051, "applVersionID": "1.0", "messageType": "R",
    "senderCompID": "Test Exchange", "msgSeqNum": 1000002, "sendingTime": 83000130, "quoteReqID": "Q-1",
    "related": [{"symbol": "ESM2", "orderQuantity": 25, "side": 1, "transactTime": 1330560000000000000, "quoteType": 1,
                 "securityID": 26051, "securityIDSource": 8}],
}
PROBE = {"idle_time": 123456789, "system_time": 2345678, "user_time": 9876543, "nice_time": 12, "iowait_time": 3456,
         "irq_time": 0, "soft_irq_time": 789}
LENGTH_CODES = {
    "one": 1, "two": -2, "four": 4, "eight": 8.5, "three": [1, 2, 3], "pair": {"a": 10, "b": 11}, "text": "abc",
    "octets": [1, 2, 3], "shorts": [1, -2, 3], "longs": [5, -6], "doubles": [0.5, -0.25], "growing": {"a": 7, "b": 8},
    "strings": ["x", "yz"], "mode": "ON", "bits": 3, "flag": True,
}
INNER = {"a": 1, "b": 2.5, "c": 3}
VERSIONED = {"before": 1, "value": -7, "note": "hi"}
READER = {"a": 5, "b": "five", "c": 6}
PRESENT = {"before": 1, "number": -2, "wide": 3.5, "text": "four", "inner": {"tag": 5, "x": 6.5}, "last": 7, "after": 8}
WAYPOINT = {"designator": "ROKIL", "position": {"latitude_deg": 48.5, "longitude_deg": 12.25}, "level_ft": 31000,
            "estimated_time_over_ns": 1330560000000000000}
FLIGHT_DATA = {
    "call_sign": "DLH123", "flight_id": 42, "departure": "EDDM", "destination": "LIRN", "alternates": ["LIRF", "LIBD"],
    "aircraft_type": "A320", "wake_category": "M", "rules": "INSTRUMENT", "equipment": 13, "ssr_code": 4096,
    "mode_s_address": [60, 101, 68], "estimated_off_block_ns": 1330558000000000000,
    "route": [WAYPOINT, {name: member for name, member in WAYPOINT.items() if name != "level_ft"}],
    "trajectory": [{"time_ns": 1330559000000000000, "position": {"latitude_deg": 48.25, "longitude_deg": 11.75},
                    "altitude_ft": 1500.5, "ground_speed_kt": 160.0, "vertical_rate_ft_min": 2200.0,
         "heading_deg": 82.5}],
    "coordinations": [{"from_unit": "EDMM", "to_unit": "LOVV", "state": "COORDINATED", "boundary": WAYPOINT,
         "remark": "FL310"}],
    "meteo": [{"temperature_c": -56, "direction_deg": 270.0, "wind": {"gust_kt": 85.5}},
              {"temperature_c": 11, "direction_deg": 90.0, "wind": {"mean_kt": 7.0}}],
    "extensions": {"operator": "GEC", "stand": "204"}, "radar_image": [0, 1, 2, 253, 254, 255, 7],
}


def without(value, *names):
    return {name: member for name, member in value.items() if name not in names}


CASES = [
    case("primitives.idl", "Primitives", "mixed", PRIMITIVES),
    case("primitives.idl", "Primitives", "minima", MINIMA),
    case("primitives.idl", "Primitives", "maxima", MAXIMA),
    case("primitives.idl", "Padding", "padding", PADDING),
    case("primitives.idl", "OneBoolean", "false", {"value": False}),
    case("primitives.idl", "OneBoolean", "true", {"value": True}),
    case("primitives.idl", "OneOctet", "one-octet", {"value": 255}),
    case("primitives.idl", "OneDouble", "negative-zero", {"value": -0.0}),
    case("primitives.idl", "OneDouble", "subnormal", {"value": 5e-324}),

    case("wide.idl", "WideCharacter", "character", boxed("\u20ac")),
    case("wide.idl", "WideString", "string", boxed("z\u00e9\u20ac")),
    case("wide.idl", "WideString", "empty", boxed("")),
    case("wide.idl", "WideString", "surrogates", boxed("\U0001d11e")),
    case("wide.idl", "BoundedWideString", "full", {"value": "abcde"}),
    case("wide.idl", "WideStrings", "sequence", {"values": ["a", "", "bc"]}),
    case("wide.idl", "LongDouble", "long-double-one", boxed(ONE)),
    case("wide.idl", "LongDouble", "long-double-pi", boxed(PI)),
    case("wide.idl", "LongDoubles", "long-doubles", {"before": 1, "values": [ONE, PI]}),

    case("strings.idl", "Strings", "both", {"before": 1, "free": "Hello_World!", "bounded": "four", "after": 2}),
    case("strings.idl", "Strings", "empty", {"before": 1, "free": "", "bounded": "", "after": 2}),
    case("strings.idl", "Strings", "full-bound", {"before": 1, "free": "a", "bounded": "12345678", "after": 2}),
    case("strings.idl", "Strings", "utf-8", {"before": 1, "free": "Gr\u00fc\u00dfe \u20ac \U0001d11e",
         "bounded": "\u00e9", "after": 2}),
    case("strings.idl", "StringSequence", "sequence", {"values": ["", "a", "abcdefg"], "after": 2}),
    case("strings.idl", "StringSequence", "empty-sequence", {"values": [], "after": 2}),
    case("strings.idl", "BoundedStringSequence", "bounded-sequence", {"values": ["abc", "z"], "after": 2}),

    case("sequences.idl", "Primitive1", "one-byte", {"octets": [0, 127, 255], "booleans": [True, False], "chars": ["x",
         "y", "z"], "bytes": [-1, 1]}),
    case("sequences.idl", "Primitive1", "one-byte-empty", {"octets": [], "booleans": [], "chars": [], "bytes": []}),
    case("sequences.idl", "Primitive2", "two-bytes", {"shorts": [-1, 2, -3], "between": 4, "ushorts": [65535]}),
    case("sequences.idl", "Primitive4", "four-bytes", {"longs": [-1, 2], "between": 3, "ulongs": [4294967295],
         "floats": [0.5, "NaN", "-Infinity"]}),
    case("sequences.idl", "Primitive8", "eight-bytes", {"longs": [-1, 2], "between": 3,
         "ulongs": [18446744073709551615], "doubles": [0.1]}),
    case("sequences.idl", "Primitive8", "eight-bytes-empty", {"longs": [], "between": 3, "ulongs": [], "doubles": []}),
    case("sequences.idl", "Bounded", "bounded-full", {"shorts": [1, 2, 3], "after": 4}),
    case("sequences.idl", "EmptyOfDoubles", "empty-of-doubles", {"doubles": [], "after": 9}),
    case("sequences.idl", "EmptyOfDoubles", "one-of-doubles", {"doubles": [1.5], "after": 9}),
    case("sequences.idl", "Nested", "nested", {"rows": [[1, 2], [], [3]], "wide_rows": [[], [0.5]], "after": 4}),
    case("sequences.idl", "Nested", "nested-empty", {"rows": [], "wide_rows": [[]], "after": 4}),
    case("sequences.idl", "OfStructs", "of-structs", {"points": [{"tag": 1, "x": 0.5}, {"tag": 2, "x": -0.5}],
         "after": 3}),
    case("sequences.idl", "OfStructs", "of-structs-empty", {"points": [], "after": 3}),
    case("sequences.idl", "OfEnums", "of-enums", {"colors": ["BLUE", "RED", "GREEN"], "after": 3}),

    case("arrays.idl", "OctetArray", "octets", {"before": 1, "values": [5, 4, 3, 2, 1], "after": 2}),
    case("arrays.idl", "ShortArray", "shorts", {"before": 1, "values": [-1, 2, -3], "after": 2}),
    case("arrays.idl", "DoubleArray", "doubles", {"before": 1, "values": [0.5, -0.5], "after": 2}),
    case("arrays.idl", "Matrix", "matrix", {"before": 1, "values": [[1, 2, 3], [4, 5, 6]], "after": 2}),
    case("arrays.idl", "Cube", "cube", {"before": 1, "values": [[[1.0, 2.0]], [[3.0, 4.0]]], "after": 2}),
    case("arrays.idl", "StringArray", "strings", {"before": 1, "values": [["a", ""], ["bcd", "ef"]], "after": 2}),
    case("arrays.idl", "StructArray", "structs", {"before": 1, "values": [{"tag": 1, "weight": 2}, {"tag": 3,
         "weight": 4}], "after": 2}),
    case("arrays.idl", "EnumArray", "enums", {"before": 1, "values": ["RIGHT", "LEFT", "RIGHT"], "after": 2}),
    case("arrays.idl", "SequenceOfArrays", "sequence-of-arrays", {"triples": [[1, 2, 3], [4, 5, 6]], "after": 2}),
    case("arrays.idl", "ArrayOfSequences", "array-of-sequences", {"before": 1, "rows": [[1, 2, 3], []], "after": 2}),

    case("enums.idl", "Enums", "bounds", {"before": 1, "tiny": "TINY_FIVE", "small": "SMALL_BIG", "again": "TINY_SIX",
         "large": "LARGE_BIG", "plain": "PLAIN_B", "after": 2}),
    case("enums.idl", "EnumSequences", "sequences", {"tinies": ["TINY_ONE", "TINY_SIX"], "smalls": ["SMALL_BIG"],
         "larges": ["LARGE_BIG", "LARGE_ZERO"], "after": 2}),
    case("enums.idl", "Masks", "masks", {"before": 1, "m8": 129, "m16": 32769, "again": 2, "m32": 2147483649,
         "between": 3, "m64": 9223372036854775809, "gap": 4, "plain": 5, "after": 2}),
    case("enums.idl", "MaskSequences", "mask-sequences", {"m8s": [1, 128], "m64s": [9223372036854775808], "after": 2}),

    case("bitset.idl", "Bitsets", "bitsets", {"before": 1, "small": {"on": 1, "level": 5, "mode": 2},
         "medium": {"low": 9, "high": 171}, "between": 3,
                                              "large": {"sign": 1, "magnitude": 4026531841}, "after": 2}),

    case("structs.idl", "Derived", "derived", {"kind": 1, "stamp": 2, "value": -3, "note": "four"}),
    case("structs.idl", "MoreDerived", "more-derived", {"kind": 1, "stamp": 2, "value": -3, "note": "four", "last": 5}),
    case("structs.idl", "Aliased", "typedef", {"before": 1, "depth": -11034.5}),
    case("structs.idl", "FinalInFinal", "final-in-final", {"before": 1, "inner": INNER, "after": 2}),
    case("structs.idl", "AppendableInFinal", "appendable-in-final", {"before": 1, "inner": INNER, "after": 2}),
    case("structs.idl", "Versioned", "appendable", VERSIONED),
    case("structs.idl", "AppendableInAppendable", "appendable-in-appendable", {"before": 1, "inner": INNER,
         "after": 2}),
    case("structs.idl", "FinalInAppendable", "final-in-appendable", {"before": 1, "inner": INNER, "after": 2}),
    case("structs.idl", "AppendableSequence", "appendable-sequence", {"before": 1, "values": [INNER, INNER],
         "after": 2}),
    case("structs.idl", "AppendableSequence", "appendable-sequence-empty", {"before": 1, "values": [], "after": 2}),
    case("structs.idl", "MutableInFinal", "mutable-in-final", {"before": 1, "inner": INNER, "after": 2}),
    case("structs.idl", "Grown", "appendable-grown", {**VERSIONED, "added": 0.5}, ("Versioned", VERSIONED)),

    case("unions.idl", "WindBox", "boolean-true", boxed({"gust_kt": 1.5})),
    case("unions.idl", "WindBox", "boolean-false", boxed({"mean_kt": -1.5})),
    case("unions.idl", "MeasureBox", "long-first-label", boxed({"count": 77})),
    case("unions.idl", "MeasureBox", "long-second-label", boxed({"$discriminator": 2, "count": 77})),
    case("unions.idl", "MeasureBox", "long-string", boxed({"text": "three"})),
    case("unions.idl", "MeasureBox", "long-default", boxed({"$discriminator": -9, "other": 200})),
    case("unions.idl", "PartialBox", "no-default-number", boxed({"number": 0.25})),
    case("unions.idl", "PartialBox", "no-default-text", boxed({"text": "minus two"})),
    case("unions.idl", "PartialBox", "no-default-none", boxed({"$discriminator": 5})),
    case("unions.idl", "ByEnumBox", "enum-double", boxed({"radius": 2.5})),
    case("unions.idl", "ByEnumBox", "enum-float", boxed({"edge": 2.5})),
    case("unions.idl", "ByEnumBox", "enum-default", boxed({"$discriminator": "LINE", "points": [1, 2]})),
    case("unions.idl", "ByCharBox", "char-octet", boxed({"a": 9})),
    case("unions.idl", "ByCharBox", "char-wide", boxed({"z": -9})),
    case("unions.idl", "GrowsBox", "appendable-number", boxed({"number": 9})),
    case("unions.idl", "GrowsBox", "appendable-default", boxed({"$discriminator": 4, "text": "nine"})),
    case("unions.idl", "UnionSequence", "sequence", {"values": [{"count": 1}, {"text": "b"}, {"$discriminator": 0,
         "other": 3}], "after": 2}),

    case("optionals.idl", "OptionalFinal", "final-present", PRESENT),
    case("optionals.idl", "OptionalFinal", "final-absent", {"before": 1, "after": 8}),
    case("optionals.idl", "OptionalFinal", "final-some", without(PRESENT, "number", "text", "last")),
    case("optionals.idl", "OptionalThenWide", "then-wide-present", {"number": 1, "wide": 2.5}),
    case("optionals.idl", "OptionalThenWide", "then-wide-absent", {"wide": 2.5}),
    case("optionals.idl", "OptionalAppendable", "appendable-present", without(PRESENT, "inner", "last")),
    case("optionals.idl", "OptionalAppendable", "appendable-absent", {"before": 1, "after": 8}),
    case("optionals.idl", "OptionalMutable", "mutable-present", without(PRESENT, "inner", "last")),
    case("optionals.idl", "OptionalMutable", "mutable-absent", {"before": 1, "after": 8}),

    case("maps.idl", "PrimitiveMap", "primitives", boxed({"-1": 0.5, "2": -0.5})),
    case("maps.idl", "PrimitiveMap", "primitives-empty", boxed({})),
    case("maps.idl", "StringMap", "strings", boxed({"a": "1", "key": ""})),
    case("maps.idl", "StructMap", "structs", {"values": {"-3": {"tag": 1, "weight": 0.5}, "4": {"tag": 2,
         "weight": 1.5}}, "after": 2}),
    case("maps.idl", "EnumMap", "enums", {"values": {"LOW": 7, "HIGH": 9}, "after": 2}),
    case("maps.idl", "BoundedMap", "bounded", {"values": {"abcd": 1, "b": 2}, "after": 2}),

    case("recursive.idl", "Tree", "leaf", {"value": 1, "children": []}),
    case("recursive.idl", "Tree", "tree", {"value": 1, "children": [
        {"value": 2, "children": [{"value": 3, "children": []}]}, {"value": 4, "children": []}]}),

    case("keys.idl", "SmallKey", "small", {"number": 66, "text": "t"}),
    case("keys.idl", "PaddedKey", "padded", {"a": 1, "between": "b", "b": -2}),
    case("keys.idl", "StringKey", "string", {"name": "north", "value": 1}),
    case("keys.idl", "BoundedStringKey", "bounded-string", {"name": "abc", "value": 1}),
    case("keys.idl", "NestedKey", "nested", {"before": 1, "part": {"row": 2, "ignored": 3, "column": 4}, "text": "t"}),
    case("keys.idl", "AppendableKey", "appendable", {"before": 1, "number": 66, "text": "t"}),
    case("keys.idl", "MutableKey", "mutable", {"before": 1, "number": 66, "sub": -2}),
    case("keys.idl", "WideKey", "wide", {"a": 1, "b": 2, "c": 3}),

    case("mutable.idl", "LengthCodes", "length-codes", LENGTH_CODES),
    case("mutable.idl", "LengthCodes", "length-codes-empty", {**LENGTH_CODES, "text": "", "octets": [], "shorts": [],
         "longs": [], "doubles": [], "strings": []}),
    case("mutable.idl", "Ids", "ids", {"high": 1, "next": 2, "must": 3, "low": 4}),
    case("mutable.idl", "Reader", "reader", READER),
    case("mutable.idl", "Writer", "unknown-members", {"e": 0.5, "c": 6, "a": 5, "d": [1, 2]}, ("Reader", {"a": 5,
         "b": "", "c": 6})),
    case("mutable.idl", "MutableDerived", "derived", {"kind": 1, "value": 2}),
    case("mutable.idl", "Outer", "nested", {"before": 1, "inner": READER, "inners": [READER, {"a": 0, "b": "",
         "c": 1}], "after": 2}),

    case("thesis.idl", "ProcessorTimes", "listing", {"idle_time": 1234, "system_time": 3451, "user_time": 2341}),
    case("processor_probe.idl", "OASIS::System::Processor::LinuxProcessorProbe", "probe", PROBE),
    case("../../../workloads/market_data.idl", "MiddlewareNewsBrief::MarketData", "market-data", MARKET_DATA),
    case("../../../workloads/market_data.idl", "MiddlewareNewsBrief::MarketData", "market-data-empty", {**MARKET_DATA,
         "mdEntries": []}),
    case("../../../workloads/market_data.idl", "MiddlewareNewsBrief::QuoteRequest", "quote-request", QUOTE_REQUEST),
    case("../../../workloads/avenue.idl", "Avenue::FlightData", "flight-data", FLIGHT_DATA),
]
assert len({case["name"] for case in CASES}) == len(CASES), "names are unique"
