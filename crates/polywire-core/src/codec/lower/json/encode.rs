//! The encoding dialect of values in JSON notation. The walk of `lower/encode` calls it for each
//! value. It emits operations with the kernels of `scalars`, `delimiters` and `decimal`, and
//! touches the walk only.

use alloc::string::ToString;

use super::{
    Style, decimal,
    delimiters::{CLOSE, FIELDS, FLAG_BITS, FLAG_NAMES, KEY_NAMED, NAMED, NUMBERED, ROWS, TEXT},
    quoted,
    scalars::{self, Form},
};
use crate::{
    codec::lower::{EncodeDialect, EncodeWalk, Lowered, MemberOut, UnionOut, is_decimal, symbols},
    layout::Scalar,
    program::{OpKind, Place, SliceKernel, TextForm, Wire},
    schema::{Case, Def, DefId, DefKind, Type, array_len},
};

pub(super) struct Dialect(pub Style);

/// Largest number of dimensions of an array: there is one dialect for each.
pub(super) const MAX_RANK: usize = 8;

impl EncodeDialect for Dialect {
    fn scalar(&self, walk: &mut EncodeWalk<'_>, ty: &Type, _: Scalar, place: Place) -> Lowered {
        let Type::Def(id) = ty else {
            return self.plain(walk, ty, place, self.0.form);
        };
        let wire = match symbols::flags(walk.schema(), *id) {
            Some(flags) if self.0.flag_names => Wire::Symbol(&FLAG_NAMES, flags),
            Some(flags) if self.0.form == Form::Value => Wire::Symbol(&FLAG_BITS, flags),
            Some(_) => return self.plain(walk, &Type::Uint64, place, self.0.form),
            None => Wire::Symbol(&FIELDS, symbols::bit_fields(walk.schema(), *id, &str::to_string)),
        };
        walk.put(place, wire)
    }

    fn enumeration(&self, walk: &mut EncodeWalk<'_>, id: DefId, _: Scalar, place: Place) -> Lowered {
        let kernel = if self.0.enum_numbers { &NUMBERED } else { &NAMED };
        let literals = walk.literals(id);
        walk.put(place, Wire::Symbol(kernel, literals))
    }

    fn text(&self, walk: &mut EncodeWalk<'_>, ty: &Type, place: Place) -> Lowered {
        walk.text(ty, place, TextForm::Kernel(&TEXT))
    }

    fn sequence(&self, walk: &mut EncodeWalk<'_>, element: &Type, bound: u32, place: Place) -> Lowered {
        self.elements(walk, element, bound, place)
    }

    fn array(&self, walk: &mut EncodeWalk<'_>, element: &Type, dims: &[u32], place: Place) -> Lowered {
        if dims.len() > MAX_RANK || array_len(dims).is_none() {
            return Err(walk.unsupported("an array of more than eight dimensions"));
        }
        // First the array is written flat, then regions split it into rows, the innermost first.
        match dims.split_first() {
            Some((_, inner)) if !inner.is_empty() => self.rows(walk, element, inner, place),
            _ => self.elements(walk, element, 0, place),
        }
    }

    fn map(&self, walk: &mut EncodeWalk<'_>, key: &Type, value: &Type, bound: u32, place: Place) -> Lowered {
        walk.literal(b"{");
        let key = |walk: &mut EncodeWalk<'_>, place| {
            self.key(walk, key, place)?;
            walk.literal(b":");
            Ok(())
        };
        walk.entries(place, bound, key, |walk, place| {
            walk.value(value, place)?;
            walk.literal(b",");
            Ok(())
        })?;
        close(walk, b'}');
        Ok(())
    }

    fn structure(&self, walk: &mut EncodeWalk<'_>, id: DefId, members: &[MemberOut<'_>]) -> Lowered {
        if is_decimal(walk.schema(), id) {
            return decimal::write(walk, members, self.0.form);
        }
        walk.literal(b"{");
        // The first member that is always written decides about commas: members before it are
        // followed by their comma, members after it are preceded by it.
        let mut comma_in_front = false;
        for out in members {
            let always = !out.member.optional || self.0.write_null;
            let leading: &[u8] = if comma_in_front { b"," } else { b"" };
            let trailing: &[u8] = if comma_in_front || always { b"" } else { b"," };
            let name = [leading, &quoted(&out.member.name), b":"].concat();
            if !out.member.optional {
                walk.literal(&name);
                walk.member(out.member, out.place)?;
            } else {
                let present = |walk: &mut EncodeWalk<'_>, place| {
                    walk.literal(&name);
                    walk.member(out.member, place)?;
                    walk.literal(trailing);
                    Ok(())
                };
                let absent = |walk: &mut EncodeWalk<'_>| {
                    if always {
                        walk.literal([&name, &b"null"[..]].concat());
                    }
                    Ok(())
                };
                walk.if_present(out, present, absent)?;
            }
            comma_in_front |= always;
        }
        match comma_in_front {
            true => walk.literal(b"}"),
            false => close(walk, b'}'),
        }
        Ok(())
    }

    fn union(&self, walk: &mut EncodeWalk<'_>, union: &UnionOut<'_>) -> Lowered {
        let arm = |walk: &mut EncodeWalk<'_>, case: &Case, place| {
            walk.literal(b"{");
            self.discriminator(walk, union, case)?;
            walk.literal([&quoted(&case.member.name)[..], b":"].concat());
            walk.member(&case.member, place)?;
            walk.literal(b"}");
            Ok(())
        };
        let none = |walk: &mut EncodeWalk<'_>| {
            walk.literal(b"{\"$discriminator\":");
            self.put_discriminator(walk, union)?;
            walk.literal(b"}");
            Ok(())
        };
        walk.union_arms(union, arm, none)
    }
}

impl Dialect {
    fn plain(&self, walk: &mut EncodeWalk<'_>, ty: &Type, place: Place, form: Form) -> Lowered {
        let memory = walk.memory_scalar(place)?;
        walk.put(place, Wire::Kernel(scalars::kernel(ty, memory, form)))
    }

    fn key(&self, walk: &mut EncodeWalk<'_>, ty: &Type, place: Place) -> Lowered {
        match walk.schema().resolve(ty) {
            Type::Def(id) => {
                let literals = walk.literals(*id);
                walk.put(place, Wire::Symbol(&KEY_NAMED, literals))
            }
            ty @ (Type::String { .. } | Type::WString { .. }) => self.text(walk, ty, place),
            ty => self.plain(walk, ty, place, Form::Key),
        }
    }

    /// Emits all elements as one array.
    fn elements(&self, walk: &mut EncodeWalk<'_>, element: &Type, bound: u32, place: Place) -> Lowered {
        match self.slice(walk, element, place) {
            Some(kernel) => walk.slice(place, kernel, bound),
            None => self.one_by_one(walk, element, bound, place),
        }
    }

    fn slice(&self, walk: &EncodeWalk<'_>, element: &Type, place: Place) -> Option<&'static SliceKernel> {
        match walk.schema().resolve(element) {
            Type::Def(_) => None,
            ty => scalars::slice(ty, walk.element_scalar(place)?, self.0.form, self.0.byte_arrays),
        }
    }

    fn one_by_one(&self, walk: &mut EncodeWalk<'_>, element: &Type, bound: u32, place: Place) -> Lowered {
        walk.literal(b"[");
        walk.elements(place, bound, |walk, place| {
            walk.value(element, place)?;
            walk.literal(b",");
            Ok(())
        })?;
        close(walk, b']');
        Ok(())
    }

    fn rows(&self, walk: &mut EncodeWalk<'_>, element: &Type, inner: &[u32], place: Place) -> Lowered {
        let Some((row, inner)) = inner.split_first() else {
            // Octets in several dimensions are written as numbers, because base64 text has no rows.
            return self.one_by_one(walk, element, 0, place);
        };
        let body = walk.block(|walk| self.rows(walk, element, inner, place))?;
        walk.emit(OpKind::Region { dialect: &ROWS, argument: (*row).into(), body });
        Ok(())
    }

    /// Emits the discriminator in front of a case's value, unless it is the case's first label.
    fn discriminator(&self, walk: &mut EncodeWalk<'_>, union: &UnionOut<'_>, case: &Case) -> Lowered {
        walk.implied_or(
            case,
            |_| Ok(()),
            |walk| {
                walk.literal(b"\"$discriminator\":");
                self.put_discriminator(walk, union)?;
                walk.literal(b",");
                Ok(())
            },
        )
    }

    /// Emits the discriminator, which is in the accumulator, in the form of its type.
    fn put_discriminator(&self, walk: &mut EncodeWalk<'_>, union: &UnionOut<'_>) -> Lowered {
        let ty = walk.schema().resolve(union.discriminator);
        if let Some(Def { kind: DefKind::Enum { .. }, .. }) = walk.schema().def_of(ty)
            && let Type::Def(id) = ty
        {
            let kernel = if self.0.enum_numbers { &NUMBERED } else { &NAMED };
            let literals = walk.literals(*id);
            walk.emit(OpKind::Put(Wire::Symbol(kernel, literals)));
            return Ok(());
        }
        if union.wire == Scalar::Bool {
            walk.put_truth([b"false", b"true"]);
            return Ok(());
        }
        walk.emit(OpKind::Convert(union.wire));
        walk.emit(OpKind::Put(Wire::Kernel(scalars::kernel(ty, union.wire, self.0.form))));
        Ok(())
    }
}

fn close(walk: &mut EncodeWalk<'_>, bracket: u8) {
    walk.emit(OpKind::Action(&CLOSE, bracket.into()));
}
