//! Functions and types that derived code uses. They are not part of the stable interface.

pub use super::{
    access::Selected,
    derived::UnionCases,
    describe::{Definition, Describe, Described, Lit, StructBuilder, TypeText, UnionBuilder, Variant},
    shape::{Message, MessageElement, MessageField, Shape, ShapeCell},
};
pub use crate::schema::{BitField, Extensibility, TryConstruct, Type};
pub use alloc::vec::Vec;

/// The default value of a member with a default in its attribute.
pub fn default_value_or<T: MessageField>(default: Lit) -> T {
    T::default_value_or(default)
}

/// Index of the first case with a label for which `chooses` returns true, or `otherwise`.
pub fn default_case(labels: &[&[Lit]], chooses: fn(Lit) -> bool, otherwise: u32) -> u32 {
    labels.iter().position(|of_case| of_case.iter().any(|l| chooses(*l))).map_or(otherwise, |case| case as u32)
}

/// True for the default value of a primitive discriminator.
pub fn is_zero(label: Lit) -> bool {
    matches!(label, Lit::Int(0) | Lit::Bool(false) | Lit::Char('\0'))
}

/// True for the literal that a discriminator of the enum `T` has by default.
pub fn is_default_literal<T: MessageField>(label: Lit) -> bool {
    let value = match label {
        Lit::Text(name) => T::from_lit(Lit::Text(name.rsplit("::").next().unwrap_or(name))),
        other => T::from_lit(other),
    };
    value.is_some_and(|value| core::mem::discriminant(&value) == core::mem::discriminant(&T::default_value()))
}

/// A field of a bitset. Without a name it is padding; without a type it gets the smallest that
/// fits.
pub fn bit_field(name: Option<&str>, width: u8, ty: Option<Type>) -> BitField {
    let field = BitField::new(name.unwrap_or_default(), width);
    BitField { ty: ty.unwrap_or_else(|| field.ty.clone()), name: name.map(Into::into), ..field }
}

/// Asserts that a wrapper with one field has the layout of that field.
pub const fn assert_transparent<T, I>(offset: usize) {
    assert!(
        offset == 0 && size_of::<T>() == size_of::<I>() && align_of::<T>() == align_of::<I>(),
        "it must wrap an unsigned integer and nothing else"
    );
}
