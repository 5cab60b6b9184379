//! Makes kernels and dialects from the functions that they need. What only programs of one
//! direction use gets a function that fails, or does nothing, for the other. Codecs call this. No
//! codec emits an operation that calls a failing one.

use alloc::string::String;

use crate::{
    layout::Scalar,
    program::{
        ActionKernel, Cursor, FaultKind, Input, MemberDialect, MemberTable, Output, RegionDialect, ScalarKernel,
        Status, SymbolKernel, SymbolTable, TextKernel, kernel::WideKernel,
    },
};

type GetScalar = extern "C" fn(&mut Input<'_>, &mut u64) -> Status;
type PutScalar = extern "C" fn(&mut Output<'_>, u64) -> Status;
type GetSymbol = extern "C" fn(&mut Input<'_>, &SymbolTable, &mut u64) -> Status;
type PutSymbol = extern "C" fn(&mut Output<'_>, &SymbolTable, u64) -> Status;
type GetBracket = extern "C" fn(&mut Input<'_>, u64, &mut Cursor) -> Status;
type PutBracket = extern "C" fn(&mut Output<'_>, u64, &mut Cursor) -> Status;
type Step = extern "C" fn(&mut Input<'_>, &mut Cursor) -> Status;
type Next = extern "C" fn(&mut Input<'_>, &mut Cursor, &MemberTable, &mut u64) -> Status;

impl ScalarKernel {
    /// A kernel of at most 64 bits for both directions, without a form.
    pub(crate) const fn new(name: &'static str, scalar: Scalar, get: GetScalar, put: PutScalar) -> ScalarKernel {
        ScalarKernel { name, scalar, get, put, wide: None, form: None }
    }

    pub(crate) const fn get_only(name: &'static str, scalar: Scalar, get: GetScalar) -> ScalarKernel {
        ScalarKernel::new(name, scalar, get, put_no_scalar)
    }

    pub(crate) const fn put_only(name: &'static str, scalar: Scalar, put: PutScalar) -> ScalarKernel {
        ScalarKernel::new(name, scalar, get_no_scalar, put)
    }

    /// A kernel of 128 bits.
    pub(crate) const fn wide(
        name: &'static str,
        get: fn(&mut Input<'_>) -> Result<u128, Status>,
        put: fn(&mut Output<'_>, u128) -> Status,
    ) -> ScalarKernel {
        let narrow = ScalarKernel::new(name, Scalar::F128, get_no_scalar, put_no_scalar);
        ScalarKernel { wide: Some(WideKernel { get, put }), ..narrow }
    }
}

impl SymbolKernel {
    pub(crate) const fn get_only(name: &'static str, get: GetSymbol) -> SymbolKernel {
        SymbolKernel { name, scalar: Scalar::I64, get, put: put_no_symbol }
    }

    pub(crate) const fn put_only(name: &'static str, put: PutSymbol) -> SymbolKernel {
        SymbolKernel { name, scalar: Scalar::I64, get: get_no_symbol, put }
    }
}

impl TextKernel {
    pub(crate) const fn get_only(
        name: &'static str,
        get: fn(&mut Input<'_>, Option<&mut String>) -> Status,
    ) -> TextKernel {
        TextKernel { name, get, put: put_no_text, short: None }
    }
}

impl ActionKernel {
    pub(crate) const fn get_only(
        name: &'static str,
        get: extern "C" fn(&mut Input<'_>, u64) -> Status,
    ) -> ActionKernel {
        ActionKernel { name, get, put: put_no_action }
    }

    pub(crate) const fn put_only(name: &'static str, put: PutScalar) -> ActionKernel {
        ActionKernel { name, get: get_no_action, put }
    }
}

impl RegionDialect {
    /// A region without a form that keeps the origin.
    pub(crate) const fn new(name: &'static str, get: [GetBracket; 2], put: [PutBracket; 2]) -> RegionDialect {
        let ([get_begin, get_end], [put_begin, put_end]) = (get, put);
        RegionDialect { name, restarts_origin: false, get_begin, get_end, put_begin, put_end, form: None }
    }

    pub(crate) const fn get_only(name: &'static str, get_begin: GetBracket, get_end: GetBracket) -> RegionDialect {
        RegionDialect::new(name, [get_begin, get_end], [put_no_region; 2])
    }

    pub(crate) const fn put_only(name: &'static str, put_begin: PutBracket, put_end: PutBracket) -> RegionDialect {
        RegionDialect::new(name, [get_no_region; 2], [put_begin, put_end])
    }

    /// A region whose end changes what was written inside. The cursor's first word is its position.
    pub(crate) const fn rewriting(name: &'static str, put_end: PutBracket) -> RegionDialect {
        RegionDialect::put_only(name, note_start, put_end)
    }
}

impl MemberDialect {
    /// Members with nothing behind each, of which a later one replaces an earlier one.
    pub(crate) const fn new(name: &'static str, begin: Step, next: Next, skip: Step) -> MemberDialect {
        let (after, refuse_duplicates, ending, prefixes_suffice) = (no_step, false, None, false);
        MemberDialect { name, begin, next, after, skip, refuse_duplicates, ending, prefixes_suffice }
    }
}

/// For a sequence or members without a beginning or end: does nothing.
pub extern "C" fn no_step(_: &mut Input<'_>, _: &mut Cursor) -> Status {
    Status::Ok
}

extern "C" fn note_start(output: &mut Output<'_>, _: u64, cursor: &mut Cursor) -> Status {
    cursor.0[0] = output.position() as u64;
    Status::Ok
}

extern "C" fn get_no_region(_: &mut Input<'_>, _: u64, _: &mut Cursor) -> Status {
    Status::Ok
}

extern "C" fn put_no_region(_: &mut Output<'_>, _: u64, _: &mut Cursor) -> Status {
    Status::Ok
}

extern "C" fn get_no_action(_: &mut Input<'_>, _: u64) -> Status {
    Status::Ok
}

extern "C" fn put_no_action(_: &mut Output<'_>, _: u64) -> Status {
    Status::Ok
}

extern "C" fn get_no_scalar(input: &mut Input<'_>, _: &mut u64) -> Status {
    input.fail(FaultKind::Unrepresentable, 0, 0)
}

extern "C" fn put_no_scalar(output: &mut Output<'_>, _: u64) -> Status {
    output.fail(FaultKind::Unrepresentable, 0, 0)
}

/// For a scalar of 128 bits of decode programs only.
pub fn put_no_wide(output: &mut Output<'_>, _: u128) -> Status {
    output.fail(FaultKind::Unrepresentable, 0, 0)
}

extern "C" fn get_no_symbol(input: &mut Input<'_>, _: &SymbolTable, _: &mut u64) -> Status {
    input.fail(FaultKind::Unrepresentable, 0, 0)
}

extern "C" fn put_no_symbol(output: &mut Output<'_>, _: &SymbolTable, _: u64) -> Status {
    output.fail(FaultKind::Unrepresentable, 0, 0)
}

fn put_no_text(output: &mut Output<'_>, _: &str) -> Status {
    output.fail(FaultKind::Unrepresentable, 0, 0)
}
