"""Checks of wide characters and `long double` in CDR with ACE, because none of the DDS implementations
that can be installed supports them. ACE reads both byte orders and writes that of the processor.
This script determines the order of the calls; ACE determines widths, alignment, lengths and byte
order. `ace.cpp` states how it checks `long double`.
"""

import subprocess
import sys

import model

TYPES = ["Wide", "Quads"]
TEXTS = [text for text in model.TEXTS if "\0" not in text]


class Ace:
    def __init__(self, build):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([build / "ace"], stdin=pipe, stdout=pipe, text=True)

    def ask(self, *words):
        self.process.stdin.write(" ".join(words) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


def check(checks):
    if not checks.has_ace:
        return checks.missing("ACE (libace-dev)")
    ace = Ace(checks.build)
    for name in TYPES:
        for order, flag in [("le", "1"), ("be", "0")]:
            def writes(value):
                words = [word for pair in calls(model.type_of(name), value) for word in pair]
                payload = bytes.fromhex(ace.ask("write", *words))
                return checks.payloads.decode(name, f"cdr:{order}", payload), value

            def reads(value):
                payload = checks.payloads.encode(name, f"cdr:{order}", value)
                pairs = calls(model.type_of(name), value)
                got = ace.ask("read", flag, payload.hex(), *[kind for kind, _ in pairs]).split(" ")
                return got, [text for _, text in pairs]
            values = checks.values(name, texts=TEXTS)
            if order[0] == sys.byteorder[0]:
                checks.case(f"ace/cdr.{order}/writes/{name}", values, writes)
            checks.case(f"ace/cdr.{order}/reads/{name}", values, reads)


def calls(type_, value):
    """The operations that write or read a value: pairs of a kind and the text of its value."""
    type_ = model.resolve(type_)
    if type_[0] == "ref":
        return [call for m in model.members(model.definition(type_)) for call in calls(m["type"], value[m["name"]])]
    if type_[0] in ("seq", "array"):
        count = [("ulong", str(len(value)))] if type_[0] == "seq" else []
        return count + [call for element in value for call in calls(type_[1], element)]
    if type_[0] == "wstring":
        return [("wstring", "w" + value.encode("utf-16-be").hex())]
    if type_[1] == "longdouble":
        return [("quad", text_of_double(value))]
    return [("wchar", f"{ord(value):x}") if type_[1] == "wchar" else ("octet", str(value))]


def text_of_double(quad):
    """The text of C's `%a` for a binary128 whose value is that of a double."""
    bits = int(quad, 16)
    sign, exponent, fraction = bits >> 127, bits >> 112 & 0x7FFF, bits >> 60 & 2 ** 52 - 1
    if exponent == 0x7FFF:
        return ("-" if sign else "") + ("nan" if fraction else "inf")
    if exponent == 0:
        return "-0x0p+0" if sign else "0x0p+0"
    digits = f"{fraction:013x}".rstrip("0")
    return f"{'-' if sign else ''}0x1{'.' if digits else ''}{digits}p{exponent - 16383:+d}"
