//! `#[derive(Message)]`: ties a Rust type to its schema and to its layout in memory.
//!
//! ```
//! use polywire_core::layout::Message;
//! use polywire_derive::Message;
//!
//! #[derive(Message)]
//! #[polywire(name = "Geo::Waypoint", mutable)]
//! struct Waypoint {
//!     #[polywire(key, idl = "string<11>")]
//!     designator: String,
//!     #[polywire(id = 7, unit = "ft")]
//!     level: Option<i32>,
//!     #[polywire(default = 1.5)]
//!     weight: f64,
//! }
//!
//! let shape = Waypoint::shape();
//! assert_eq!(shape.schema().name(), "Geo::Waypoint");
//! ```
//!
//! # Attributes
//! All attributes are entries of `#[polywire(..)]`.
//!
//! | on | attribute | meaning |
//! |---|---|---|
//! | any type | `name = "A::B"` | scoped IDL name; else the Rust name |
//! | | `crate = "path"` | where Polywire is, if it is renamed |
//! | structure, union | `final`, `appendable`, `mutable` | extensibility; `appendable` if none is given |
//! | | `nested` | not meant as a topic's type |
//! | | `autoid = "hash"` | ids come from names |
//! | member, case | `name = "isEcho"` | IDL name; else the Rust name |
//! | | `id = 3`, `hashid`, `hashid = "x"` | member id |
//! | | `idl = "sequence<string<4>, 4>"` | IDL type, where Rust's does not say it all: bounds, `octet`, `char`, `wstring` |
//! | | `must_understand` | as in IDL |
//! | | `default = -5` | any literal; for an enum the literal's name as a string |
//! | | `try_construct = "trim"` | or `"use_default"`, `"discard"` |
//! | | `unit = "m"`, `min = 0`, `max = 9` | kept as annotations |
//! | member | `key` | as in IDL |
//! | | `base` | the first field is what the structure inherits from |
//! | | `skip` | not on the wire; a fresh message has its [`Default`] |
//! | fieldless enum | `bit_bound = 8` | bits on the wire; 32 if none is given |
//! | its variants | `name = "A"`, `default_literal` | |
//! | enum with data | `switch = "int32"` or `switch_type = "path::Enum"` | type of the discriminator |
//! | | `key` | the discriminator is the key |
//! | its variants | `case(1, 2)`, `default`, and those of a member | labels: integers, booleans, characters, names of literals |
//! | `struct X(pub u8)` | `bitmask(bit_bound = 8, MODE_A = 0, MODE_C = 1)` | flags and their bits; `bit_bound` is first |
//! | `struct X(pub u64)` | `bitset(a(3), _(2), b(1, "boolean"))` | fields with widths, from the lowest bit up; `base = "path"` in front inherits |
//!
//! # Mistakes
//! ```compile_fail
//! #[derive(polywire_derive::Message)]
//! struct Named {
//!     #[polywire(defualt = 1)] // there is no attribute 'defualt'; did you mean 'default'?
//!     counter: u32,
//! }
//! ```
//! ```compile_fail
//! #[derive(polywire_derive::Message)]
//! struct Sized {
//!     counter: usize, // `usize` cannot be a member of a message
//! }
//! ```
//! ```compile_fail
//! #[derive(polywire_derive::Message)]
//! struct Listed {
//!     levels: Vec<Option<i32>>, // in IDL only a member can be optional or external
//! }
//! ```
//! ```compile_fail
//! #[derive(polywire_derive::Message)]
//! enum Single { // one variant takes no memory; give the enum a #[repr(..)]
//!     Only,
//! }
//! ```
//! ```compile_fail
//! #[derive(polywire_derive::Message)]
//! struct Bounded {
//!     #[polywire(idl = "sequence<octet")] // expected '>'
//!     image: Vec<u8>,
//! }
//! ```
//! ```compile_fail
//! #[derive(polywire_derive::Message)]
//! #[repr(C, packed)]
//! struct Packed { // a message cannot be packed
//!     level: i32,
//! }
//! ```
//! ```compile_fail
//! #[derive(polywire_derive::Message)]
//! #[polywire(switch = "int32")]
//! enum Choice {
//!     #[polywire(case(1))]
//!     Pair(u32, u32), // a case of a union has exactly one value
//! }
//! ```

use proc_macro::TokenStream;
use syn::{Data, DeriveInput, Error, parse_macro_input};

mod attributes;
mod bits;
mod enumeration;
mod idl_text;
mod location;
mod member;
mod probe;
mod structure;
mod union;

/// See the crate's documentation.
#[proc_macro_derive(Message, attributes(polywire))]
pub fn message(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    derive(&input).unwrap_or_else(Error::into_compile_error).into()
}

/// Makes a probe of a structure of cells: implements `polywire_telemetry::Application`, whose
/// documentation has an example, and defines the structure of the samples, `PumpSample` for `Pump`.
///
/// All attributes are entries of `#[probe(..)]`.
///
/// | on | attribute | meaning |
/// |---|---|---|
/// | the structure | `uuid = ".."`, `version = "1.0"` | as in PDL; required |
/// | | `name = "A::B"` | scoped name in PDL; else the Rust name |
/// | | `every = 0.1` | seconds between two samples; 1 if none is given |
/// | | `change` | sends a sample only if it differs from the last one sent |
/// | | `heartbeat = 60` | with `change` or a deadband: sends one at the latest after so many seconds |
/// | a cell | `unit = "bar"` | kept as an annotation |
/// | | `deadband = 0.5` | as `change`, and differences up to this do not count |
#[proc_macro_derive(Probe, attributes(probe))]
pub fn probe(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    probe::derive(&input).unwrap_or_else(Error::into_compile_error).into()
}

fn derive(input: &DeriveInput) -> syn::Result<proc_macro2::TokenStream> {
    if let Some(parameter) = input.generics.params.first() {
        let what = "a message has no parameters: every type that is sent needs a name of its own";
        return Err(Error::new_spanned(parameter, what));
    }
    for repr in input.attrs.iter().filter(|a| a.path().is_ident("repr")) {
        // Programs make references to members, which must be aligned.
        if repr.meta.require_list()?.tokens.clone().into_iter().any(|t| t.to_string() == "packed") {
            return Err(Error::new_spanned(repr, "a message cannot be packed: its members must be aligned"));
        }
    }
    match &input.data {
        Data::Struct(data) if bits::is_bits(input) => bits::derive(input, data),
        Data::Struct(data) => structure::derive(input, data),
        Data::Enum(data) if data.variants.iter().all(|v| v.fields.is_empty()) => enumeration::derive(input, data),
        Data::Enum(data) => union::derive(input, data),
        Data::Union(_) => Err(Error::new_spanned(
            &input.ident,
            "an IDL union is a Rust enum with data, since a Rust union cannot be read safely",
        )),
    }
}
