//! Reads types from files: IDL, PDL, definitions of ROS 2, and saved schemas.

use std::{
    borrow::Cow,
    fs,
    io::Read as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow};
use clap::Args;
use polywire::schema::{DefId, Schema, SchemaLimits};
use polywire_idl::{Compiler, Diagnostics, Dialect, Document, Limits};

use crate::{outcome::Misuse, terminal::Terminal};

/// The options that name a type in a file.
#[derive(Args, Clone, Debug)]
pub struct TypeArgs {
    /// File with the type: IDL, PDL, .msg or .srv of ROS 2, or a schema that `typeof --save` wrote
    #[arg(long, value_name = "FILE")]
    pub idl: Option<PathBuf>,
    /// Name of the type, or a unique end of it; required if the file has several types
    #[arg(long = "type", value_name = "NAME", requires = "idl")]
    pub name: Option<String>,
    #[command(flatten)]
    pub compiler: CompilerArgs,
}

/// The options of the IDL compiler, as in C compilers.
#[derive(Args, Clone, Debug, Default)]
pub struct CompilerArgs {
    /// Also searches this folder for included files
    #[arg(short = 'I', value_name = "DIR")]
    pub include: Vec<String>,
    /// Defines a macro
    #[arg(short = 'D', value_name = "NAME[=VALUE]")]
    pub define: Vec<String>,
}

impl TypeArgs {
    /// Returns the type, if `--idl` was given.
    pub fn schema(&self, terminal: &Terminal) -> anyhow::Result<Option<Schema>> {
        let Some(path) = &self.idl else { return Ok(None) };
        if is_schema(path) {
            return read_schema(path, self.name.as_deref()).map(Some);
        }
        let document = self.compiler.document(path, terminal)?;
        let name = match &self.name {
            Some(name) => name.clone(),
            None => only_type(&document, path)?,
        };
        let schema = document.schema(&name).map_err(|error| Misuse(format!("{}: {error}", path.display())))?;
        Ok(Some(schema))
    }

    /// Returns another type of the file, by its name.
    pub fn other(&self, name: &str, terminal: &Terminal) -> anyhow::Result<Schema> {
        TypeArgs { name: Some(name.into()), ..self.clone() }.needed(terminal)
    }

    /// Returns the type; an error if `--idl` was not given.
    pub fn needed(&self, terminal: &Terminal) -> anyhow::Result<Schema> {
        let missing = || Misuse("which type? add --idl FILE, and --type NAME if the file has several types".into());
        Ok(self.schema(terminal)?.ok_or_else(missing)?)
    }
}

impl CompilerArgs {
    /// Compiles a file. Errors in it are shown on standard error.
    pub fn document(&self, path: &Path, terminal: &Terminal) -> anyhow::Result<Document> {
        self.parse(path).map_err(|errors| {
            terminal.diagnostics(|colour| errors.render(colour));
            anyhow!("{}: {}", path.display(), count(errors.errors(), "error"))
        })
    }

    /// Returns the type with this name. Without a name, all types that the file itself defines and
    /// that can be the type of a topic.
    pub fn schemas(&self, path: &Path, name: Option<&str>, terminal: &Terminal) -> anyhow::Result<Vec<Schema>> {
        if is_schema(path) {
            return read_schema(path, name).map(|schema| vec![schema]);
        }
        let document = self.document(path, terminal)?;
        let named =
            |name: &str| document.schema(name).map_err(|error| Misuse(format!("{}: {error}", path.display())).into());
        match name {
            Some(name) => named(name).map(|schema| vec![schema]),
            None => document.own_topic_types().map(|def| named(&def.name)).collect(),
        }
    }

    pub fn parse(&self, path: &Path) -> Result<Document, Diagnostics> {
        let path = whole(path);
        match piped(&path) {
            Some(text) => self.compiler().parse_str(&path.to_string_lossy(), &text),
            None => self.compiler().parse_file(&path.to_string_lossy()),
        }
    }

    fn compiler(&self) -> Compiler {
        let including = self.include.iter().fold(Compiler::new(), |compiler, dir| compiler.include_dir(dir));
        self.define.iter().fold(including, |compiler, text| match text.split_once('=') {
            Some((name, value)) => compiler.define(name, value),
            None => compiler.define(text, "1"),
        })
    }
}

/// Returns the text of a pipe, such as `/dev/stdin` or `<(command)`, up to the compiler's limit.
/// The compiler itself reads regular files only.
fn piped(path: &Path) -> Option<String> {
    let file = is_pipe(path).then(|| fs::File::open(path).ok())??;
    let mut bytes = Vec::new();
    file.take(Limits::default().source_bytes as u64 + 1).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(unix)]
fn is_pipe(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo())
}

#[cfg(not(unix))]
fn is_pipe(_: &Path) -> bool {
    false
}

/// Makes the path of a ROS 2 definition absolute if it lacks the package, as in
/// `PACKAGE/msg/NAME.msg`. Other paths stay as they are.
fn whole(path: &Path) -> Cow<'_, Path> {
    let tells = Dialect::of(&path.to_string_lossy()) != Dialect::Ros || path.components().count() >= 3;
    match std::path::absolute(path) {
        Ok(whole) if !tells => whole.into(),
        _ => path.into(),
    }
}

fn only_type(document: &Document, path: &Path) -> anyhow::Result<String> {
    let names: Vec<&str> = document.own_topic_types().map(|def| def.name.as_str()).collect();
    match names.as_slice() {
        [name] => Ok((*name).to_owned()),
        [] => Err(anyhow!("{} has no struct or union that can be a topic's type", path.display())),
        many => {
            let many = many.join(", ");
            Err(Misuse(format!("{} has several types: choose with --type one of {many}", path.display())).into())
        }
    }
}

fn is_schema(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "schema")
}

/// Reads a saved schema. `name` chooses one of its definitions instead of the root.
fn read_schema(path: &Path, name: Option<&str>) -> anyhow::Result<Schema> {
    let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    let schema = Schema::from_bytes(&bytes, &SchemaLimits::default())
        .with_context(|| format!("{} is not a schema that `polywire typeof --save` wrote", path.display()))?;
    let Some(name) = name else { return Ok(schema) };
    let wanted = name.replace(['/', '.'], "::");
    let wanted = wanted.trim_start_matches("::");
    let ends_so = |full: &str| full.strip_suffix(wanted).is_some_and(|scope| scope.ends_with("::"));
    let defs = || (0..).map(DefId).zip(schema.defs());
    let found: Vec<DefId> = match defs().find(|(_, def)| def.name == wanted) {
        Some((id, _)) => vec![id],
        None => defs().filter(|(_, def)| ends_so(&def.name)).map(|(id, _)| id).collect(),
    };
    match found.as_slice() {
        [id] => Ok(schema.with_root(*id)),
        _ => {
            let all: Vec<&str> = schema.defs().iter().map(|def| def.name.as_str()).collect();
            let problem = if found.is_empty() { "there is no type" } else { "there are several types" };
            let text = format!("{}: {problem} '{name}'; there are {}", path.display(), all.join(", "));
            Err(Misuse(text).into())
        }
    }
}

/// Formats a count: `1 error`, `2 errors`.
pub fn count(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
