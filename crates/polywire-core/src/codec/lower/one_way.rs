//! Placeholders for functions that a kernel or dialect does not need: either only programs of the
//! other direction use it, or there is nothing to do. Codecs put them into their kernels. No codec
//! emits an operation that calls a failing one. They touch nothing but the fault.

use alloc::string::String;

use crate::program::{Cursor, FaultKind, Input, Output, Status, SymbolTable};

/// For a sequence or members without a beginning or end: does nothing.
pub extern "C" fn no_step(_: &mut Input<'_>, _: &mut Cursor) -> Status {
    Status::Ok
}

/// For a region of encode programs only.
pub extern "C" fn get_no_region(_: &mut Input<'_>, _: u64, _: &mut Cursor) -> Status {
    Status::Ok
}

/// For a region of decode programs only.
pub extern "C" fn put_no_region(_: &mut Output<'_>, _: u64, _: &mut Cursor) -> Status {
    Status::Ok
}

/// For an action of encode programs only.
pub extern "C" fn get_no_action(_: &mut Input<'_>, _: u64) -> Status {
    Status::Ok
}

/// For an action of decode programs only.
pub extern "C" fn put_no_action(_: &mut Output<'_>, _: u64) -> Status {
    Status::Ok
}

/// For a scalar of encode programs only, or one of 128 bits.
pub extern "C" fn get_no_scalar(input: &mut Input<'_>, _: &mut u64) -> Status {
    input.fail(FaultKind::Unrepresentable, 0, 0)
}

/// For a scalar of decode programs only, or one of 128 bits.
pub extern "C" fn put_no_scalar(output: &mut Output<'_>, _: u64) -> Status {
    output.fail(FaultKind::Unrepresentable, 0, 0)
}

/// For a scalar of 128 bits of decode programs only.
pub fn put_no_wide(output: &mut Output<'_>, _: u128) -> Status {
    output.fail(FaultKind::Unrepresentable, 0, 0)
}

/// For a symbol of encode programs only.
pub extern "C" fn get_no_symbol(input: &mut Input<'_>, _: &SymbolTable, _: &mut u64) -> Status {
    input.fail(FaultKind::Unrepresentable, 0, 0)
}

/// For a symbol of decode programs only.
pub extern "C" fn put_no_symbol(output: &mut Output<'_>, _: &SymbolTable, _: u64) -> Status {
    output.fail(FaultKind::Unrepresentable, 0, 0)
}

/// For a string of encode programs only.
pub fn get_no_text(input: &mut Input<'_>, _: Option<&mut String>) -> Status {
    input.fail(FaultKind::Unrepresentable, 0, 0)
}

/// For a string of decode programs only.
pub fn put_no_text(output: &mut Output<'_>, _: &str) -> Status {
    output.fail(FaultKind::Unrepresentable, 0, 0)
}
