//! Wire formats. `CODECS` is the table; adding one is a file or folder here and a line there.

pub mod lower;
