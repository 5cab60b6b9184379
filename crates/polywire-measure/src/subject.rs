//! Finds the type that a case measures, and its readers' version: in a file, in the scenario's
//! text, or among the probes of the thesis. Reads files that the scenario names.

use std::{fmt::Write as _, fs, path::Path, sync::Arc};

use polywire::{Record, Schema, Shape, coding::Dynamic, schema::SchemaLimits};
use polywire_idl::{Compiler, Dialect, Document};

use crate::{
    Error, check,
    scenario::{Case, Scenario, TypeSpec},
    values::{ValueModel, content_bytes},
};

/// A type and its readers' version of it.
#[derive(Clone)]
pub struct Subject {
    /// For publishers of the type, whose records have exactly this shape.
    pub coding: Dynamic,
    /// The writer's shape.
    pub shape: Arc<Shape>,
    /// The readers' shape.
    pub reader: Arc<Shape>,
}

impl Subject {
    /// The type of a case.
    ///
    /// # Errors
    /// [`Error::Type`] if a file cannot be read or has no such type.
    pub fn of(scenario: &Scenario, case: &Case) -> Result<Subject, Error> {
        let spec = &scenario.types[case.type_index];
        let schema = schema(spec, case.fields, &scenario.folder)?;
        let reader = match &spec.reader {
            Some(reader) => self::schema(&inherit(reader, spec), case.fields, &scenario.folder)?,
            None => schema.clone(),
        };
        check::members(spec, &schema)?;
        let coding = Dynamic::of(&schema).map_err(|error| Error::Type(error.to_string()))?;
        let reader = Shape::of(&reader).map_err(|error| Error::Type(error.to_string()))?;
        Ok(Subject { shape: coding.shape().clone(), reader, coding })
    }

    /// Makes values of a case: as many as `wanted`, or as fit into the memory that the scenario
    /// allows.
    ///
    /// # Errors
    /// If no values can be made, as by [`ValueModel::records`].
    pub fn records(&self, scenario: &Scenario, case: &Case, wanted: usize) -> Result<Vec<Record>, Error> {
        let (model, spec) = (ValueModel::parse(&case.values)?, &scenario.types[case.type_index]);
        let made = |count: usize| model.records(&self.shape, count, scenario.seed, spec, &scenario.folder);
        let schema = self.shape.schema();
        let size = |record: &Record| content_bytes(record.view(), schema, schema.root());
        let size = made(1)?.first().map_or(1, size).max(1);
        made(wanted.min((scenario.effort.megabytes << 20) / size).max(1))
    }
}

/// A reader's version comes from the same file unless it names another file.
fn inherit(reader: &TypeSpec, writer: &TypeSpec) -> TypeSpec {
    let mut reader = reader.clone();
    if reader.idl.is_none() && reader.text.is_none() {
        (reader.idl, reader.text) = (writer.idl.clone(), writer.text.clone());
    }
    reader
}

fn schema(spec: &TypeSpec, fields: usize, folder: &Path) -> Result<Schema, Error> {
    if !spec.codecs_test.is_empty() {
        let text = codecs_test(fields);
        let document = Compiler::new().parse_as("codecs_test.pdl", &text, Dialect::Pdl);
        return pick(&document.map_err(|errors| Error::Type(errors.render(false)))?, Some("Codecs_Test"));
    }
    if let Some(text) = &spec.text {
        let document = Compiler::new().parse_str("scenario.idl", text);
        return pick(&document.map_err(|errors| Error::Type(errors.render(false)))?, spec.name.as_deref());
    }
    let Some(path) = &spec.idl else { return Err(Error::Type("a type has none of idl, text and codecs_test".into())) };
    let path = folder.join(path);
    if path.extension().is_some_and(|extension| extension == "schema") {
        let wrong = |problem: String| Error::Type(format!("{}: {problem}", path.display()));
        let bytes = fs::read(&path).map_err(|error| wrong(error.to_string()))?;
        return Schema::from_bytes(&bytes, &SchemaLimits::default()).map_err(|error| wrong(error.to_string()));
    }
    let document = Compiler::new().parse_file(&path.to_string_lossy());
    pick(&document.map_err(|errors| Error::Type(errors.render(false)))?, spec.name.as_deref())
}

fn pick(document: &Document, name: Option<&str>) -> Result<Schema, Error> {
    let only = || {
        let names: Vec<&str> = document.own_topic_types().map(|def| def.name.as_str()).collect();
        match names.as_slice() {
            [name] => Ok((*name).to_owned()),
            many => Err(Error::Type(format!("there are several types; set name to one of {}", many.join(", ")))),
        }
    };
    let name = name.map_or_else(only, |name| Ok(name.to_owned()))?;
    document.schema(&name).map_err(|error| Error::Type(error.to_string()))
}

/// The kinds of the thesis's probe, in its order, with the names of its members.
const KINDS: [(&str, &str); 10] = [
    ("boolean", "bool"),
    ("string", "string"),
    ("int8", "char"),
    ("uint8", "uchar"),
    ("int16", "int16"),
    ("uint16", "uint16"),
    ("int32", "int32"),
    ("uint32", "uint32"),
    ("int64", "int64"),
    ("uint64", "uint64"),
];

/// The probe in PDL.
fn codecs_test(fields: usize) -> String {
    let mut text = String::from(
        "module CodecsTest {\n[uuid (0D1F63DC-0AC4-43C5-A366-C89D0A5F3ACD); version (1.0)]\nprobe Codecs_Test {\n",
    );
    for field in 0..fields {
        let (kind, name) = KINDS[field % KINDS.len()];
        // Writing to a string does not fail.
        let _ = writeln!(text, "{kind} {name}_value_{};", field / KINDS.len() + 1);
    }
    text + "};\n}\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_has_as_many_fields_as_were_asked_for() {
        for fields in [10, 25, 500] {
            let scenario = format!("name = 'x'\n[[type]]\ncodecs_test = [{fields}]");
            let scenario = Scenario::from_toml(&scenario).expect("valid");
            let subject = Subject::of(&scenario, &scenario.cases().expect("one")[0]).expect("a type");
            assert_eq!(polywire::Record::new(&subject.shape).fields().len(), fields);
        }
    }

    /// Checks that the types of the benchmark's hand-written code are equal to those of scenarios.
    #[test]
    fn the_probes_are_those_that_the_bench_measures() {
        fn is_same<T: polywire::Message>(fields: usize) {
            let scenario = Scenario::from_toml(&format!("name = 'x'\n[[type]]\ncodecs_test = [{fields}]"));
            let scenario = scenario.expect("valid");
            let subject = Subject::of(&scenario, &scenario.cases().expect("one")[0]).expect("a type");
            assert_eq!(subject.shape.schema().type_hash(), T::shape().schema().type_hash(), "{fields}");
        }
        use polywire_workloads as bench;
        is_same::<bench::CodecsTest10>(10);
        is_same::<bench::CodecsTest50>(50);
        is_same::<bench::CodecsTest100>(100);
        is_same::<bench::CodecsTest250>(250);
        is_same::<bench::CodecsTest500>(500);
    }

    #[test]
    fn the_committed_probe_is_the_smallest() {
        let file = include_str!("../../../workloads/codecs_test.pdl");
        let document = Compiler::new().parse_as("codecs_test.pdl", file, Dialect::Pdl).expect("it is PDL");
        let [committed, made] =
            [document, Compiler::new().parse_as("made.pdl", &codecs_test(10), Dialect::Pdl).expect("PDL")]
                .map(|document| pick(&document, Some("Codecs_Test")).expect("it is there").type_hash());
        assert_eq!(committed, made);
    }

    #[test]
    fn a_type_that_is_not_there_is_told() {
        let text = "name = 'x'\n[[type]]\ntext = 'struct A { long x; }; struct B { long y; };'\nname = 'C'";
        for text in [text, &text.replace("\nname = 'C'", "")] {
            let scenario = Scenario::from_toml(text).expect("valid");
            let error =
                Subject::of(&scenario, &scenario.cases().expect("one")[0]).map(|_| ()).expect_err("no such type");
            assert!(error.to_string().contains('A') || error.to_string().contains('C'), "{error}");
        }
    }
}
