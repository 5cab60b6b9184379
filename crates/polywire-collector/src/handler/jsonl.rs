//! The kind `jsonl`: one JSON object per line, in one file for all topics.

use std::path::Path;

use super::{
    Handler, Kind,
    file::{LineFile, ROTATION, Rotation},
};
use crate::{Entry, Expects, HandlerError, JsonText, Setting};

pub(super) static KIND: Kind = Kind {
    name: "jsonl",
    summary: "JSON lines in a file, with rotation",
    settings: &{
        let [bytes, time, keep, zstd] = ROTATION;
        [Setting { name: "path", expects: Expects::Required, summary: "the file" }, bytes, time, keep, zstd]
    },
    open: |settings, _| {
        let path = Path::new(settings.text("path").unwrap_or_default());
        let file = LineFile::open(path, Rotation::of(settings)?, b"")?;
        Ok(Box::new(Lines { file, json: JsonText::default() }))
    },
};

struct Lines {
    file: LineFile,
    json: JsonText,
}

impl Handler for Lines {
    fn write(&mut self, entry: &Entry) -> Result<(), HandlerError> {
        self.file.line(self.json.line(entry)?.as_bytes())
    }

    fn sync(&mut self) -> Result<(), HandlerError> {
        self.file.sync()
    }
}
