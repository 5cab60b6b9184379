//! The kind `null`: discards all entries; the baseline for measurements of other kinds.

use super::{Handler, Kind};
use crate::{Entry, HandlerError};

pub(super) static KIND: Kind = Kind {
    name: "null",
    summary: "Drops all entries, to measure what the collector itself costs",
    settings: &[],
    open: |_, _| Ok(Box::new(Null)),
};

struct Null;

impl Handler for Null {
    fn write(&mut self, _: &Entry) -> Result<(), HandlerError> {
        Ok(())
    }

    fn sync(&mut self) -> Result<(), HandlerError> {
        Ok(())
    }
}
