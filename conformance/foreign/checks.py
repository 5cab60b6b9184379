"""Runs the checks of all libraries, and compares the failures with `expected-failures.txt`. `run`
calls it. Each library has a module with a function `check`, which gets a `Checks`."""

import os
import random
import subprocess

import binaries
import corba
import dds
import javascript
import markup
import model
import protocol_buffers
import ros
import yamls

LIBRARIES = [dds, ros, corba, binaries, protocol_buffers, markup, yamls, javascript]
LONGEST = 2000
EXPECTED = model.HERE / "expected-failures.txt"


class Payloads:
    """Polywire: a process of the example `payloads`, which encodes, decodes and emits types."""

    def __init__(self, program):
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([program, model.HERE / "types.idl"], stdin=pipe, stdout=pipe, text=True, encoding="utf-8")
        self.json = model.Json()

    def ask(self, *fields):
        self.process.stdin.write("\t".join(fields) + "\n")
        self.process.stdin.flush()
        kind, _, text = self.process.stdout.readline().rstrip("\n").partition("\t")
        if kind != "ok":
            raise ValueError(f"polywire: {text or 'the program ended'}")
        return text

    def encode(self, name, codec, value):
        tree = self.json.tree(model.type_of(name), value)
        return bytes.fromhex(self.ask("encode", "Foreign::" + name, codec, model.json_text(tree)))

    def decode(self, name, codec, payload):
        tree = model.json_tree(self.ask("decode", "Foreign::" + name, codec, payload.hex()))
        return self.json.value(model.type_of(name), tree)

    def emit(self, name, target):
        return bytes.fromhex(self.ask("emit", "Foreign::" + name, target)).decode()


class Checks:
    """The argument of a library's `check`: Polywire, generated values, and the record of the cases."""

    def __init__(self, arguments, payloads, build, has_ace):
        self.payloads, self.build, self.has_ace = payloads, build, has_ace
        self.arguments = arguments
        self.failures, self.cases, self.skipped, self.compared = {}, [], [], 0

    def values(self, name, **choice):
        """Values of a type, generated from seeds. Every library gets the same ones, unless `choice`
        excludes texts or characters that it does not support."""
        numbers = range(self.arguments.seed, self.arguments.seed + self.arguments.values)
        return [model.Values(random.Random(f"{name} {n}"), **choice).of(model.type_of(name)) for n in numbers]

    def case(self, name, values, check):
        """Runs a case. `check` returns the actual and the expected result for a value."""
        if not name.startswith(self.arguments.only):
            return
        self.cases.append(name)
        if not values:
            self.failures[name] = "there are no values"
        for value in values:
            self.compared += 1
            try:
                got, wanted = check(value)
                found = model.difference(got, wanted)
                if found:
                    raise ValueError(found)
            except Exception as error:  # a library may raise any exception
                self.failures[name] = f"{type(error).__name__}: {error}\n    value: {value!r:.{LONGEST}}"
                return

    def missing(self, what):
        """Records that the cases of a library are skipped. POLYWIRE_TEST_REQUIRE=all makes that an
        error."""
        self.skipped.append(what)


def expected(cases):
    lines = [line.partition("#")[0].strip() for line in EXPECTED.read_text().splitlines()]
    return {line for line in lines if line and line in cases}, {line for line in lines if line}


def run(arguments, program, build, has_ace):
    checks = Checks(arguments, Payloads(program), build, has_ace)
    for library in LIBRARIES:
        library.check(checks)
    known, listed = expected(checks.cases)
    bad = [f"FAILED   {name}\n    {why}" for name, why in checks.failures.items() if name not in known]
    if arguments.seed == 1:  # with another seed, all values may pass
        bad += [f"PASSED   {name}: remove it from {EXPECTED.name}" for name in sorted(known - set(checks.failures))]
    if not arguments.only and not checks.skipped:
        bad += [f"UNKNOWN  {name}: {EXPECTED.name} lists it, but no case has this name" for name in sorted(listed - known)]
    if os.environ.get("POLYWIRE_TEST_REQUIRE") == "all":
        bad += [f"MISSING  {what}, which POLYWIRE_TEST_REQUIRE=all requires" for what in checks.skipped]
    for what in checks.skipped:
        print(f"SKIPPED  the cases that need {what}")
    if arguments.list:
        for name in checks.cases:
            print("fails " if name in checks.failures else "passes", name)
    print("\n".join(bad), end="\n" if bad else "")
    print(f"{len(checks.cases)} cases, {checks.compared} comparisons, {len(known)} expected failures, {len(bad)} unexpected results")
    return 1 if bad or not checks.cases else 0
