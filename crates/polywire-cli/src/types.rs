//! Types from files: IDL, PDL, and schemas that were saved.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow};
use clap::Args;
use polywire::schema::{Schema, SchemaLimits};
use polywire_idl::{Compiler, Diagnostics, Document};

use crate::{outcome::Misuse, terminal::Terminal};

/// The file that a type stands in.
#[derive(Args, Clone, Debug)]
pub struct TypeArgs {
    /// File with the type: IDL, PDL, or a schema that `typeof --save` wrote
    #[arg(long, value_name = "FILE")]
    pub idl: Option<PathBuf>,
    /// Name of the type, or as much of its end as is unique; needed where the file has several
    #[arg(long = "type", value_name = "NAME", requires = "idl")]
    pub name: Option<String>,
    #[command(flatten)]
    pub compiler: CompilerArgs,
}

/// What C compilers take, too.
#[derive(Args, Clone, Debug, Default)]
pub struct CompilerArgs {
    /// Looks for included files there, too
    #[arg(short = 'I', value_name = "DIR")]
    pub include: Vec<String>,
    /// Defines a macro
    #[arg(short = 'D', value_name = "NAME[=VALUE]")]
    pub define: Vec<String>,
}

impl TypeArgs {
    /// The type, where one was named.
    pub fn schema(&self, terminal: &Terminal) -> anyhow::Result<Option<Schema>> {
        let Some(path) = &self.idl else { return Ok(None) };
        if path.extension().is_some_and(|extension| extension == "schema") {
            return read_schema(path).map(Some);
        }
        let document = self.compiler.document(path, terminal)?;
        let name = match &self.name {
            Some(name) => name.clone(),
            None => only_type(&document, path)?,
        };
        let schema = document.schema(&name).map_err(|error| Misuse(format!("{}: {error}", path.display())))?;
        Ok(Some(schema))
    }

    /// The type; an error where none was named.
    pub fn needed(&self, terminal: &Terminal) -> anyhow::Result<Schema> {
        let missing = || Misuse("which type? add --idl FILE, and --type NAME where the file has several".into());
        Ok(self.schema(terminal)?.ok_or_else(missing)?)
    }
}

impl CompilerArgs {
    /// Compiles a file. What is wrong with it is shown on standard error.
    pub fn document(&self, path: &Path, terminal: &Terminal) -> anyhow::Result<Document> {
        self.parse(path).map_err(|errors| {
            terminal.diagnostics(|colour| errors.render(colour));
            anyhow!("{}: {}", path.display(), count(errors.errors(), "error"))
        })
    }

    pub fn parse(&self, path: &Path) -> Result<Document, Diagnostics> {
        self.compiler().parse_file(&path.to_string_lossy())
    }

    fn compiler(&self) -> Compiler {
        let including = self.include.iter().fold(Compiler::new(), |compiler, dir| compiler.include_dir(dir));
        self.define.iter().fold(including, |compiler, text| match text.split_once('=') {
            Some((name, value)) => compiler.define(name, value),
            None => compiler.define(text, "1"),
        })
    }
}

fn only_type(document: &Document, path: &Path) -> anyhow::Result<String> {
    let names: Vec<&str> = document.topic_types().map(|def| def.name.as_str()).collect();
    match names.as_slice() {
        [name] => Ok((*name).to_owned()),
        [] => Err(anyhow!("{} has no struct or union that could be a topic's type", path.display())),
        many => {
            let many = many.join(", ");
            Err(Misuse(format!("{} has several types: choose with --type one of {many}", path.display())).into())
        }
    }
}

fn read_schema(path: &Path) -> anyhow::Result<Schema> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Schema::from_bytes(&bytes, &SchemaLimits::default()).with_context(|| format!("{} is no schema", path.display()))
}

/// `1 error`, `2 errors`.
pub fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
