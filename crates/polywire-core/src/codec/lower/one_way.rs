//! What a kernel or dialect has in place of a function that it does not need: because only programs
//! of the other direction use it, or because nothing is to be done there. No codec emits an
//! operation that would call those that fail.

use alloc::string::String;

use crate::program::{Cursor, FaultKind, Input, Output, Status, SymbolTable};

/// A sequence, or members, without anything in front or behind.
pub extern "C" fn no_step(_: &mut Input<'_>, _: &mut Cursor) -> Status {
    Status::Ok
}

/// A region that is written only.
pub extern "C" fn get_no_region(_: &mut Input<'_>, _: u64, _: &mut Cursor) -> Status {
    Status::Ok
}

/// A region that is read only.
pub extern "C" fn put_no_region(_: &mut Output<'_>, _: u64, _: &mut Cursor) -> Status {
    Status::Ok
}

/// An action of encode programs only.
pub extern "C" fn get_no_action(_: &mut Input<'_>, _: u64) -> Status {
    Status::Ok
}

/// An action of decode programs only.
pub extern "C" fn put_no_action(_: &mut Output<'_>, _: u64) -> Status {
    Status::Ok
}

/// A scalar that is written only, or one of 128 bits.
pub extern "C" fn get_no_scalar(input: &mut Input<'_>, _: &mut u64) -> Status {
    input.fail(FaultKind::Unrepresentable, 0, 0)
}

/// A scalar that is read only, or one of 128 bits.
pub extern "C" fn put_no_scalar(output: &mut Output<'_>, _: u64) -> Status {
    output.fail(FaultKind::Unrepresentable, 0, 0)
}

/// A scalar of 128 bits that is read only.
pub fn put_no_wide(output: &mut Output<'_>, _: u128) -> Status {
    output.fail(FaultKind::Unrepresentable, 0, 0)
}

/// A symbol that is written only.
pub extern "C" fn get_no_symbol(input: &mut Input<'_>, _: &SymbolTable, _: &mut u64) -> Status {
    input.fail(FaultKind::Unrepresentable, 0, 0)
}

/// A symbol that is read only.
pub extern "C" fn put_no_symbol(output: &mut Output<'_>, _: &SymbolTable, _: u64) -> Status {
    output.fail(FaultKind::Unrepresentable, 0, 0)
}

/// A string that is written only.
pub fn get_no_text(input: &mut Input<'_>, _: Option<&mut String>) -> Status {
    input.fail(FaultKind::Unrepresentable, 0, 0)
}

/// A string that is read only.
pub fn put_no_text(output: &mut Output<'_>, _: &str) -> Status {
    output.fail(FaultKind::Unrepresentable, 0, 0)
}
