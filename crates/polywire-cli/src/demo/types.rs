//! The three versions of the demonstration's type, and how each reader reads the writer's version.

use anyhow::{Context as _, anyhow};
use polywire::schema::{
    DefId, DefKind, Schema, Type,
    evolve::{Verdict, assess, pair_members},
};
use polywire_idl::Compiler;
use serde::Serialize;

/// A version of the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Version {
    /// The publisher's version.
    Published,
    Older,
    Newer,
}

/// The versions of the subscribers.
pub const READERS: [Version; 2] = [Version::Older, Version::Newer];

impl Version {
    pub fn name(self) -> &'static str {
        match self {
            Version::Published => "published",
            Version::Older => "older",
            Version::Newer => "newer",
        }
    }

    /// Returns name and text of the IDL file, as compiled into this program.
    pub fn file(self) -> (&'static str, &'static str) {
        match self {
            Version::Published => ("machine.idl", include_str!("types/machine.idl")),
            Version::Older => ("machine_older.idl", include_str!("types/machine_older.idl")),
            Version::Newer => ("machine_newer.idl", include_str!("types/machine_newer.idl")),
        }
    }

    pub fn schema(self) -> anyhow::Result<Schema> {
        let (name, text) = self.file();
        let document = Compiler::new().parse_str(name, text)?;
        Ok(document.schema("demo::Machine")?)
    }
}

/// How a reader reads the writer's members. The path of a member of an element looks like
/// `interfaces[].name`.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Reading {
    /// The verdict of [`assess`], such as `always`.
    pub verdict: String,
    /// Members that both versions have.
    pub reads: Vec<String>,
    /// Members among them whose type is wider in the reader, with both types.
    pub widens: Vec<String>,
    /// Members that the writer lacks: they take their default.
    pub defaults: Vec<String>,
    /// Members that only the writer has.
    pub skips: Vec<String>,
}

impl Reading {
    pub fn of(writer: &Schema, reader: &Schema) -> anyhow::Result<Reading> {
        let verdict: Verdict = assess(writer, reader);
        let mut reading = Reading { verdict: verdict.to_string(), ..Reading::default() };
        let root = |schema: &Schema| match schema.resolve(schema.root()) {
            Type::Def(id) => Ok(*id),
            _ => Err(anyhow!("the root is not a structure")),
        };
        reading
            .walk((writer, root(writer)?), (reader, root(reader)?), "")
            .context("the versions contradict each other")?;
        Ok(reading)
    }

    fn walk(&mut self, writer: (&Schema, DefId), reader: (&Schema, DefId), path: &str) -> anyhow::Result<()> {
        let dot = if path.is_empty() { "" } else { "." };
        for pair in pair_members(writer.0, writer.1, reader.0, reader.1)? {
            match (pair.writer, pair.reader) {
                (Some((_, w)), Some((_, r))) => {
                    self.shared((writer.0, &w.ty), (reader.0, &r.ty), format!("{path}{dot}{}", r.name))?;
                }
                (Some((_, w)), None) => self.skips.push(format!("{path}{dot}{}", w.name)),
                (None, Some((_, r))) => self.defaults.push(format!("{path}{dot}{}", r.name)),
                (None, None) => {}
            }
        }
        Ok(())
    }

    fn shared(&mut self, writer: (&Schema, &Type), reader: (&Schema, &Type), path: String) -> anyhow::Result<()> {
        match (writer.0.resolve(writer.1), reader.0.resolve(reader.1)) {
            (Type::Sequence { element: w, .. }, Type::Sequence { element: r, .. }) => {
                self.shared((writer.0, w), (reader.0, r), format!("{path}[]"))
            }
            (Type::Def(w), Type::Def(r)) if is_structure(writer.0, *w) => {
                self.walk((writer.0, *w), (reader.0, *r), &path)
            }
            (w, r) => {
                let (from, to) = (writer.0.type_name(w), reader.0.type_name(r));
                if from != to {
                    self.widens.push(format!("{path}: {from} to {to}"));
                }
                self.reads.push(path);
                Ok(())
            }
        }
    }
}

fn is_structure(schema: &Schema, id: DefId) -> bool {
    matches!(schema.def(id).kind, DefKind::Struct { .. })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versions_differ_in_every_way_and_are_always_read() {
        let writer = Version::Published.schema().expect("valid");
        let of = |version: Version| Reading::of(&writer, &version.schema().expect("valid")).expect("they agree");
        let (older, newer) = (of(Version::Older), of(Version::Newer));
        assert_eq!((older.verdict.as_str(), newer.verdict.as_str()), ("always", "always"));
        assert_eq!(older.defaults, ["swap_used_bytes"]);
        assert_eq!(older.skips, ["uptime_s", "core_percent", "load_1min", "interfaces[].sent_bytes"]);
        assert_eq!(newer.skips, ["uptime_s"]);
        assert_eq!(newer.defaults, ["interfaces[].mtu_bytes", "site", "temperature_c"]);
        let wider =
            ["sample: uint32 to uint64", "processor_percent: float to double", "core_percent[]: float to double"];
        assert_eq!(newer.widens, wider);
    }
}
