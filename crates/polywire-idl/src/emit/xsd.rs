//! Emits an XML Schema 1.0 for the documents of the codec `xml`, whose mapping is in `spec/xml.md`.

use std::collections::HashSet;

use polywire_core::{
    codec::xml::{element_name, type_name},
    schema::{Def, DefId, DefKind, Member, Schema, Type, array_len},
};

use super::{EmitError, Emitter};
use crate::document::Constant;

pub(super) const EMITTER: Emitter =
    Emitter { name: "xsd", description: "XML Schema 1.0 for the documents of the codec xml", emit };

/// Larger bounds are written as `unbounded`, because processors unroll `maxOccurs`.
const MAX_ITEMS: u32 = 1000;

fn emit(schema: &Schema, _: &[Constant]) -> Result<String, EmitError> {
    let schema = &schema.with_flat_arrays();
    let mut writer = Writer { schema, out: String::new(), depth: 0 };
    let mut names = HashSet::new();
    writer.out.push_str("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    writer.open("xs:schema xmlns:xs=\"http://www.w3.org/2001/XMLSchema\"");
    for (id, def) in schema.defs().iter().enumerate() {
        let name = type_name(&def.name);
        if !names.insert(name.clone()) {
            return Err(EmitError::Collision { def: def.name.clone(), name });
        }
        writer.definition(DefId(id as u32), def, &name);
    }
    writer.close("xs:schema");
    Ok(writer.out)
}

struct Writer<'a> {
    schema: &'a Schema,
    out: String,
    depth: usize,
}

impl Writer<'_> {
    fn line(&mut self, text: &str) {
        self.out.push_str(&"  ".repeat(self.depth));
        self.out.push_str(text);
        self.out.push('\n');
    }

    fn open(&mut self, tag: &str) {
        self.line(&format!("<{tag}>"));
        self.depth += 1;
    }

    fn close(&mut self, tag: &str) {
        self.depth -= 1;
        self.line(&format!("</{tag}>"));
    }

    fn inside(&mut self, tag: &str, fill: impl FnOnce(&mut Self)) {
        self.open(tag);
        fill(self);
        self.close(tag.split(' ').next().unwrap_or(tag));
    }

    fn empty(&mut self, tag: &str) {
        self.line(&format!("<{tag}/>"));
    }

    fn doc(&mut self, doc: &str) {
        if !doc.is_empty() {
            self.inside("xs:annotation", |w| {
                w.line(&format!("<xs:documentation>{}</xs:documentation>", escaped(doc)));
            });
        }
    }

    /// Writes a named type, and an element of that type for messages.
    fn definition(&mut self, id: DefId, def: &Def, name: &str) {
        if matches!(def.kind, DefKind::Alias { .. }) {
            return;
        }
        self.empty(&format!("xs:element name=\"{name}\" type=\"{name}\""));
        match &def.kind {
            DefKind::Struct { .. } => self.inside(&format!("xs:complexType name=\"{name}\""), |w| {
                w.doc(&def.doc);
                w.inside("xs:sequence", |w| w.schema.members(id).into_iter().for_each(|m| w.member(m, m.optional)));
            }),
            DefKind::Union { cases, .. } => self.inside(&format!("xs:complexType name=\"{name}\""), |w| {
                w.doc(&def.doc);
                w.inside("xs:choice minOccurs=\"0\"", |w| cases.iter().for_each(|c| w.member(&c.member, false)));
                w.empty("xs:attribute name=\"discriminator\" type=\"xs:string\"");
            }),
            DefKind::Bitset { .. } => self.inside(&format!("xs:complexType name=\"{name}\""), |w| {
                w.doc(&def.doc);
                for field in w.schema.bit_fields(id) {
                    let Some(field) = &field.name else { continue };
                    let field = element_name(field);
                    w.empty(&format!("xs:attribute name=\"{field}\" type=\"xs:integer\" use=\"required\""));
                }
            }),
            DefKind::Enum { literals, .. } => self.inside(&format!("xs:simpleType name=\"{name}\""), |w| {
                w.doc(&def.doc);
                w.inside("xs:restriction base=\"xs:string\"", |w| {
                    let literal = |l: &str| format!("xs:enumeration value=\"{}\"", escaped(l));
                    literals.iter().for_each(|l| w.empty(&literal(&l.name)));
                });
            }),
            DefKind::Bitmask { bit_bound, .. } => self.inside(&format!("xs:simpleType name=\"{name}\""), |w| {
                w.doc(&def.doc);
                let base = match bit_bound {
                    0..=8 => "unsignedByte",
                    9..=16 => "unsignedShort",
                    17..=32 => "unsignedInt",
                    _ => "unsignedLong",
                };
                w.empty(&format!("xs:restriction base=\"xs:{base}\""));
            }),
            DefKind::Alias { .. } => {}
        }
    }

    fn member(&mut self, member: &Member, optional: bool) {
        let occurs = if optional { " minOccurs=\"0\"" } else { "" };
        self.element(&element_name(&member.name), &member.ty, occurs, &member.doc);
    }

    fn element(&mut self, name: &str, ty: &Type, occurs: &str, doc: &str) {
        let head = format!("xs:element name=\"{name}\"{occurs}");
        match self.named(ty) {
            Some(ty) if doc.is_empty() => self.empty(&format!("{head} type=\"{ty}\"")),
            Some(ty) => self.inside(&format!("{head} type=\"{ty}\""), |w| w.doc(doc)),
            None => self.inside(&head, |w| {
                w.doc(doc);
                w.anonymous(ty);
            }),
        }
    }

    /// The name of a type in the schema, if it has one.
    fn named(&self, ty: &Type) -> Option<String> {
        let name = match self.schema.resolve(ty) {
            Type::Bool => "boolean",
            Type::Int8 => "byte",
            Type::Octet | Type::Uint8 => "unsignedByte",
            Type::Int16 => "short",
            Type::Uint16 => "unsignedShort",
            Type::Int32 => "int",
            Type::Uint32 => "unsignedInt",
            Type::Int64 => "long",
            Type::Uint64 => "unsignedLong",
            Type::Float32 => "float",
            Type::Float64 => "double",
            // IDL bounds count bytes or UTF-16 units. XML Schema counts characters, and characters
            // that XML cannot contain are escaped.
            Type::String { .. } | Type::WString { .. } => "string",
            Type::Def(id) => return Some(type_name(&self.schema.def(*id).name)),
            _ => return None,
        };
        Some(format!("xs:{name}"))
    }

    fn anonymous(&mut self, ty: &Type) {
        match self.schema.resolve(ty) {
            Type::Sequence { element, bound } => self.elements(element, 0, *bound),
            Type::Array { element, dims } => {
                // A length that overflows is longer than any document.
                let len = array_len(dims).and_then(|len| u32::try_from(len).ok()).unwrap_or(u32::MAX);
                self.elements(element, len, len);
            }
            Type::Map { key, value, bound } => self.items("entry", 0, *bound, |w, head| {
                w.inside(head, |w| {
                    w.inside("xs:complexType", |w| {
                        w.inside("xs:sequence", |w| {
                            w.element("key", key, "", "");
                            w.element("value", value, "", "");
                        });
                    });
                });
            }),
            Type::Float128 => self.pattern("0x[0-9a-f]{32}"),
            _ => self.pattern(".|\\s|_x[0-9A-F]{4}_"),
        }
    }

    fn pattern(&mut self, pattern: &str) {
        self.inside("xs:simpleType", |w| {
            w.inside("xs:restriction base=\"xs:string\"", |w| w.empty(&format!("xs:pattern value=\"{pattern}\"")));
        });
    }

    /// Writes a sequence or array. A maximum of 0 means unbounded.
    fn elements(&mut self, element: &Type, least: u32, most: u32) {
        match self.schema.resolve(element) {
            Type::Octet => self.inside("xs:simpleType", |w| {
                w.inside("xs:restriction base=\"xs:base64Binary\"", |w| w.length(least, most));
            }),
            Type::Bool | Type::String { .. } | Type::WString { .. } | Type::Def(_) => {
                self.item_elements(element, least, most)
            }
            _ => match self.named(element) {
                Some(item) => self.inside("xs:simpleType", |w| {
                    w.inside("xs:restriction", |w| {
                        w.inside("xs:simpleType", |w| w.empty(&format!("xs:list itemType=\"{item}\"")));
                        w.length(least, most);
                    });
                }),
                None => self.item_elements(element, least, most),
            },
        }
    }

    fn length(&mut self, least: u32, most: u32) {
        match (least, most) {
            (_, 0) => {}
            (least, most) if least == most => self.empty(&format!("xs:length value=\"{most}\"")),
            (_, most) => self.empty(&format!("xs:maxLength value=\"{most}\"")),
        }
    }

    fn item_elements(&mut self, element: &Type, least: u32, most: u32) {
        self.items("item", least, most, |w, head| match w.named(element) {
            Some(ty) => w.empty(&format!("{head} type=\"{ty}\"")),
            None => w.inside(head, |w| w.anonymous(element)),
        });
    }

    fn items(&mut self, name: &str, least: u32, most: u32, fill: impl FnOnce(&mut Self, &str)) {
        let (least, most) = match most {
            0 => (0, "unbounded".to_string()),
            most if most > MAX_ITEMS => (0, "unbounded".to_string()),
            most => (least, most.to_string()),
        };
        self.inside("xs:complexType", |w| {
            w.inside("xs:sequence", |w| {
                fill(w, &format!("xs:element name=\"{name}\" minOccurs=\"{least}\" maxOccurs=\"{most}\""));
            });
        });
    }
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
