"""Checks of YAML, block and flow style, with PyYAML (YAML 1.1) and ruamel.yaml (YAML 1.2)."""

import io
import random

import ruamel.yaml
import yaml

import model

TYPES = ["Scalars", "Texts", "Lists", "Arrays", "Tables", "Nested", "Choices", "Levels", "Optionals", "Unions", "Growing", "Grown", "Loose",
         "Bits", "Numbers", "Maps", "Wide", "Quads"]
CODECS = ["yaml", "yaml-flow"]
JSON = model.Json(finite=False)
# Without the line breaks of YAML 1.1 that are none in YAML 1.2. Both libraries fold lines at them.
TEXTS = [text for text in model.TEXTS if text not in ("\x85", "\u2028")]
LETTERS = [letter for letter in range(256) if letter != 0x85]


def ruamel_loads(text):
    return ruamel.yaml.YAML(typ="safe", pure=True).load(text)


def ruamel_dumps(tree, flow):
    writer, out = ruamel.yaml.YAML(typ="safe", pure=True), io.StringIO()
    writer.default_flow_style = flow
    writer.dump(tree, out)
    return out.getvalue()


def pyyaml_dumps(tree, flow):
    return yaml.safe_dump(tree, default_flow_style=flow, allow_unicode=not flow, sort_keys=False)


LIBRARIES = [("pyyaml", yaml.safe_load, pyyaml_dumps), ("ruamel.yaml", ruamel_loads, ruamel_dumps)]


def check(checks):
    for library, loads, dumps in LIBRARIES:
        for name in TYPES:
            type_ = model.type_of(name)
            for codec in CODECS:
                def reads(value):
                    text = checks.payloads.encode(name, codec, value).decode()
                    return JSON.value(type_, strings(loads(text))), value

                def writes(value):
                    text = dumps(JSON.tree(type_, value), codec == "yaml-flow")
                    return checks.payloads.decode(name, codec, text.encode()), value
                checks.case(f"{library}/{codec}/reads/{name}", checks.values(name), reads)
                checks.case(f"{library}/{codec}/writes/{name}", checks.values(name, texts=TEXTS, letters=LETTERS), writes)
    shared(checks)


def strings(tree):
    """The tree with all keys as text. Polywire reads every key as text; these libraries may read a
    number or a boolean."""
    if isinstance(tree, dict):
        return {key if isinstance(key, str) else model.key_text(key): strings(element) for key, element in tree.items()}
    return [strings(element) for element in tree] if isinstance(tree, list) else tree


def shared(checks):
    """An object that occurs in two places is written as an anchor and an alias."""
    row = model.Values(random.Random(5), texts=["x"], letters=[65]).of(model.type_of("Scalars"))
    tree = JSON.tree(model.type_of("Scalars"), row)

    def check_shared(_):
        text = yaml.safe_dump({"key": "AAAAAAAAAAAAAAAAAAAAAA==", "triple": [1, 2, 3], "pair": [1.0, 2.0], "rows": [tree, tree]})
        assert "*id001" in text
        return checks.payloads.decode("Arrays", "yaml", text.encode())["rows"], [row, row]
    checks.case("pyyaml/yaml/aliases/Arrays", [row], check_shared)
