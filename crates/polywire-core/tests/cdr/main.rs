//! CDR of both versions, beyond the golden vectors of `conformance/cdr`, which `polywire-idl`
//! tests.

mod foreign;
mod mutable;
mod plain;
mod random;
