//! The kind `sqlite`: an archive in a database, with a table for each type.

use std::path::Path;

use super::{Handler, Kind};
use crate::{
    Entry, Expects, HandlerError, Setting,
    archive::ArchiveWriter,
    retention::{RETENTION, Retention},
};

pub(super) static KIND: Kind = Kind {
    name: "sqlite",
    summary: "An archive in SQLite, with a table for each type",
    settings: &{
        let [bytes, time] = RETENTION;
        [Setting { name: "path", expects: Expects::Required, summary: "the file" }, bytes, time]
    },
    open: |settings, _| {
        let path = Path::new(settings.text("path").unwrap_or_default());
        Ok(Box::new(Database(ArchiveWriter::open(path, Retention::of(settings))?)))
    },
};

struct Database(ArchiveWriter);

impl Handler for Database {
    fn write(&mut self, entry: &Entry) -> Result<(), HandlerError> {
        self.0.write(entry)
    }

    fn sync(&mut self) -> Result<(), HandlerError> {
        self.0.commit()
    }
}
