//! Default values of the reader, for members and cases that the writer lacks. The walk (`mod.rs`,
//! `unions`) calls this file. The operations that it emits write the value and read nothing from
//! the wire.

use super::*;

/// The labels that are searched in the time of a step.
const LABELS_PER_STEP: usize = 64;

impl DecodeWalk<'_> {
    pub(super) fn default_member(&mut self, member: &Member, place: Place) -> Lowered {
        self.paths.step().map_err(|what| self.unsupported(what))?;
        if member.optional {
            self.emit(OpKind::Clear(place));
            return Ok(());
        }
        let reader = self.reader;
        self.through_pointer(member, place, |walk, slot| {
            walk.default(default_of(reader, member), &member.ty, slot.place)
        })
    }

    /// Emits a default value of the reader.
    pub(super) fn default(&mut self, value: DefaultValue<'_>, ty: &Type, place: Place) -> Lowered {
        match value {
            DefaultValue::Absent | DefaultValue::Empty | DefaultValue::Text("") => self.emit(OpKind::Clear(place)),
            DefaultValue::Text(text) => self.emit(OpKind::SetText(place, text.into())),
            DefaultValue::Bool(value) => self.constant(Scalar::Bool, value.into(), place)?,
            DefaultValue::Int(value) => self.constant(self.memory_scalar(place)?, value as u128, place)?,
            DefaultValue::Char(code) => self.constant(self.memory_scalar(place)?, code.into(), place)?,
            DefaultValue::Float(value) => {
                let scalar = self.memory_scalar(place)?;
                let bits = match scalar {
                    Scalar::F32 => (value as f32).to_bits().into(),
                    Scalar::F64 => value.to_bits().into(),
                    _ => binary128(value),
                };
                self.constant(scalar, bits, place)?;
            }
            DefaultValue::Elements => self.default_elements(ty, place)?,
            DefaultValue::Members(id) => {
                let places = fields(self.layout, place).ok_or_else(|| self.mismatch())?;
                let reader = self.reader;
                for (member, place) in reader.members(id).into_iter().zip(places) {
                    self.default_member(member, place)?;
                }
            }
            DefaultValue::Case { discriminator, case } => {
                // The case was searched for by its label.
                let steps = self.reader.def_of(ty).map_or(0, part_count) / LABELS_PER_STEP;
                self.paths.steps(steps).map_err(|what| self.unsupported(what))?;
                self.emit(OpKind::Const(Scalar::I64, discriminator as u128));
                self.select_default(ty, case, place)?;
            }
        }
        Ok(())
    }

    pub(super) fn constant(&mut self, scalar: Scalar, bits: u128, place: Place) -> Lowered {
        self.emit(OpKind::Const(scalar, bits));
        if let (Some(Kind::Enum(_)), Some(node)) = (self.kind(place), place.node()) {
            self.emit(OpKind::Check(Check::Enum { node, otherwise: None }));
        }
        self.emit(OpKind::Store(place));
        Ok(())
    }

    pub(super) fn default_elements(&mut self, ty: &Type, place: Place) -> Lowered {
        let reader = self.reader;
        let (Type::Array { element, .. }, Some(Kind::Array { element: node, len })) =
            (reader.resolve(ty), self.kind(place))
        else {
            return Err(self.mismatch());
        };
        let inside = Place::At { offset: 0, node: *node };
        let block = self.block(|walk| walk.default(zero_of(reader, element), element, inside))?;
        self.emit(OpKind::Sequence {
            place,
            source: Source::Fixed(*len),
            element: block,
            bound: 0,
            overflow: Overflow::Refuse,
            min_wire: 0,
        });
        Ok(())
    }

    /// Selects a case of the reader's union with its default value. The accumulator holds the
    /// discriminator.
    pub(super) fn select_default(&mut self, ty: &Type, case: usize, place: Place) -> Lowered {
        let reader = self.reader;
        let Some(Def { kind: DefKind::Union { cases, .. }, .. }) = reader.def_of(ty) else {
            return Err(self.mismatch());
        };
        let Some(Kind::Union(union)) = self.kind(place) else { return Err(self.mismatch()) };
        let (case_def, node) = cases.get(case).zip(union.cases.get(case)).ok_or_else(|| self.mismatch())?;
        let inside = Place::At { offset: 0, node: *node };
        let body = self.block(|walk| walk.default_member(&case_def.member, inside))?;
        self.emit(OpKind::Select { place, case: Some(case as u32), body });
        Ok(())
    }
}

/// The bits of a `double` as IEEE 754 binary128.
fn binary128(value: f64) -> u128 {
    let bits = value.to_bits();
    let (sign, exponent, mantissa) = (bits >> 63, (bits >> 52) & 0x7FF, bits & ((1 << 52) - 1));
    let (exponent, mantissa) = match (exponent, mantissa) {
        (0, 0) => (0, 0),
        (0x7FF, _) => (0x7FFF, u128::from(mantissa) << 60),
        (0, _) => {
            // A subnormal double is a normal binary128.
            let shift = mantissa.leading_zeros() - 11;
            (16383 - 1022 - u64::from(shift), (u128::from(mantissa << shift) & ((1 << 52) - 1)) << 60)
        }
        _ => (exponent + 16383 - 1023, u128::from(mantissa) << 60),
    };
    u128::from(sign) << 127 | u128::from(exponent) << 112 | mantissa
}
