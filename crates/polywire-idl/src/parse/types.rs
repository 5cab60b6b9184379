//! Parses the types of members, typedefs and constants.

use polywire_core::schema::Type;

use super::Parser;
use crate::ast::{Expr, TypeKind, TypeSpec};
use crate::lex::Tok;
use crate::source::Span;

impl Parser<'_> {
    pub(super) fn type_spec(&mut self) -> Option<TypeSpec> {
        self.enter()?;
        let spec = self.type_spec_inside();
        self.depth -= 1;
        spec
    }

    fn type_spec_inside(&mut self) -> Option<TypeSpec> {
        let start = self.span();
        let kind = match self.peek().tok.clone() {
            Tok::Path | Tok::Escaped(_) => TypeKind::Named(self.scoped_name("a type")?),
            Tok::Ident(word) => match self.builtin(&word, start) {
                Some(kind) => kind?,
                None => TypeKind::Named(self.scoped_name("a type")?),
            },
            _ => return self.expected("a type"),
        };
        Some(TypeSpec { kind, span: start.to(self.last_span()) })
    }

    /// Parses the type that begins with `word`, if it is a keyword.
    fn builtin(&mut self, word: &str, span: Span) -> Option<Option<TypeKind>> {
        if self.pdl() {
            match word {
                "real32" => return Some(self.simple(Type::Float32)),
                "real64" => return Some(self.simple(Type::Float64)),
                "vector" => return Some(self.sequence()),
                _ => {}
            }
        }
        Some(match word {
            "boolean" => self.simple(Type::Bool),
            "octet" => self.simple(Type::Octet),
            "int8" => self.simple(Type::Int8),
            "uint8" => self.simple(Type::Uint8),
            "int16" | "short" => self.simple(Type::Int16),
            "uint16" => self.simple(Type::Uint16),
            "int32" => self.simple(Type::Int32),
            "uint32" => self.simple(Type::Uint32),
            "int64" => self.simple(Type::Int64),
            "uint64" => self.simple(Type::Uint64),
            "float" => self.simple(Type::Float32),
            "double" => self.simple(Type::Float64),
            "char" => self.simple(Type::Char8),
            "wchar" => self.simple(Type::Char16),
            "long" => self.long(),
            "unsigned" => self.unsigned(),
            "string" => self.string(false),
            "wstring" => self.string(true),
            "sequence" => self.sequence(),
            "map" => self.map(),
            "fixed" | "any" | "Object" | "ValueBase" if !self.pdl() => self.unsupported_type(word, span),
            "void" => {
                self.reporter.error(span, "'void' is not the type of a value");
                None
            }
            _ => return None,
        })
    }

    fn simple(&mut self, ty: Type) -> Option<TypeKind> {
        self.pos += 1;
        Some(TypeKind::Primitive(ty))
    }

    fn long(&mut self) -> Option<TypeKind> {
        self.pos += 1;
        Some(TypeKind::Primitive(if self.take_word("long") {
            Type::Int64
        } else if self.take_word("double") {
            Type::Float128
        } else {
            Type::Int32
        }))
    }

    fn unsigned(&mut self) -> Option<TypeKind> {
        self.pos += 1;
        if self.take_word("short") {
            return Some(TypeKind::Primitive(Type::Uint16));
        }
        if !self.take_word("long") {
            return self.expected("'short' or 'long' after 'unsigned'");
        }
        Some(TypeKind::Primitive(if self.take_word("long") { Type::Uint64 } else { Type::Uint32 }))
    }

    fn string(&mut self, wide: bool) -> Option<TypeKind> {
        self.pos += 1;
        let bound = match self.take('<') {
            true => {
                let bound = self.bound()?;
                self.expect('>')?;
                Some(bound)
            }
            false => None,
        };
        Some(TypeKind::String { wide, bound })
    }

    fn sequence(&mut self) -> Option<TypeKind> {
        self.pos += 1;
        self.expect('<')?;
        let element = Box::new(self.element()?);
        let bound = self.last_bound("',' or '>'")?;
        Some(TypeKind::Sequence { element, bound })
    }

    fn map(&mut self) -> Option<TypeKind> {
        self.pos += 1;
        self.expect('<')?;
        let key = Box::new(self.element()?);
        self.expect(',')?;
        let value = Box::new(self.element()?);
        let bound = self.last_bound("',' or '>'")?;
        Some(TypeKind::Map { key, value, bound })
    }

    fn element(&mut self) -> Option<TypeSpec> {
        self.element_annotations()?;
        self.type_spec()
    }

    /// Skips annotations of elements, because a schema cannot represent them.
    pub(super) fn element_annotations(&mut self) -> Option<()> {
        for annotation in self.annotations()? {
            let message = format!("@{} has no effect on the elements of a collection", annotation.name);
            self.reporter.warning(annotation.span, message);
        }
        Some(())
    }

    /// Parses `, bound>` or `>`.
    fn last_bound(&mut self, expected: &str) -> Option<Option<Expr>> {
        if self.take('>') {
            return Some(None);
        }
        if !self.take(',') {
            return self.expected(expected);
        }
        let bound = self.bound()?;
        self.expect('>')?;
        Some(Some(bound))
    }

    fn unsupported_type(&mut self, word: &str, span: Span) -> Option<TypeKind> {
        self.pos += 1;
        let help = match word {
            "fixed" => "use a double, a string, or an integer and a power of ten",
            "any" => "use a union of the types that occur",
            _ => "data types of IDL 4.2 are supported, objects are not",
        };
        if word == "fixed" && self.take('<') {
            while !self.at('>') && !self.at(';') && self.peek().tok != Tok::Eof {
                self.pos += 1;
            }
            self.take('>');
        }
        self.reporter.error(span, format!("'{word}' is not supported")).help(help);
        Some(TypeKind::Unsupported)
    }
}
