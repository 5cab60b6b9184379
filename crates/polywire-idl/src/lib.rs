//! A compiler from type definitions to Polywire schemas, and emitters that write schemas as source
//! text. The languages are OMG IDL 4.2 (core and extended data types, bit sets, annotations), PDL
//! (the OASIS probe definition language) and the message definitions of ROS 2.
//!
//! ```
//! use polywire_idl::Compiler;
//!
//! let text = "module Geo { struct Position { double latitude_deg; double longitude_deg; }; };";
//! let document = Compiler::new().parse_str("geo.idl", text).unwrap();
//! let schema = document.schema("Position").unwrap();
//! assert_eq!(schema.name(), "Geo::Position");
//! ```
//!
//! Diagnostics show the source line and what to write instead. One run reports several errors:
//!
//! ```
//! use polywire_idl::Compiler;
//!
//! let text = "struct Track { doubel speed; };";
//! let errors = Compiler::new().parse_str("track.idl", text).unwrap_err();
//! assert_eq!(
//!     errors.to_string(),
//!     "track.idl:1:16: error: there is no type 'doubel' here\n   \
//!        |\n \
//!      1 | struct Track { doubel speed; };\n   \
//!        |                ^^^^^^ did you mean 'double'?\n"
//! );
//! ```

use polywire_core::schema::Extensibility;

mod ast;
mod check;
mod diag;
mod document;
pub mod emit;
mod keywords;
mod lex;
mod parse;
mod pp;
mod ros;
mod source;

pub use diag::{Diagnostic, Diagnostics, Location, Note, Severity};
pub use document::{Constant, Document, LookupError, Operation};
pub use source::{Dialect, Disk, Loader};

use diag::Reporter;
use source::Span;

/// Limits on what a file may cost. A file that exceeds one is refused.
///
/// ```
/// use polywire_idl::{Compiler, Limits};
/// let short = Limits { tokens: 8, ..Limits::default() };
/// let errors = Compiler::new().limits(short).parse_str("a.idl", "struct A { long a; long b; long c; };").unwrap_err();
/// assert!(errors.to_string().contains("tokens"), "{errors}");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all files together, plus the bytes of texts and types that declarations copy.
    pub source_bytes: usize,
    /// Tokens of all files together, after macros are expanded.
    pub tokens: usize,
    /// Macro expansions.
    pub macro_expansions: usize,
    /// Depth of includes.
    pub include_depth: usize,
    /// Number of includes.
    pub includes: usize,
    /// Depth of nested modules, types and parentheses.
    pub nesting: usize,
    /// Operators in one expression.
    pub operators: usize,
    /// Errors that are kept, and likewise warnings. Further ones are only counted.
    pub diagnostics: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            source_bytes: 16 << 20,
            tokens: 1_000_000,
            macro_expansions: 1_000_000,
            include_depth: 32,
            includes: 4096,
            nesting: 64,
            operators: 256,
            diagnostics: 50,
        }
    }
}

/// Settings of the checker.
pub(crate) struct Settings {
    pub default_extensibility: Extensibility,
}

/// Compiles IDL, PDL and definitions of ROS 2 to [`Document`]s.
///
/// ```
/// use std::collections::BTreeMap;
/// use polywire_core::schema::Extensibility;
/// use polywire_idl::{Compiler, Dialect};
///
/// let files = BTreeMap::from([
///     ("lib/units.idl".to_string(), "typedef double Bar;".to_string()),
///     ("pump.idl".to_string(), "#include \"units.idl\"\n@topic struct Pump { @key long id; Bar pressure[SIZE]; };".to_string()),
/// ]);
/// let compiler = Compiler::new()
///     .loader(files)
///     .include_dir("lib")
///     .define("SIZE", "4")
///     .default_extensibility(Extensibility::Final);
/// let document = compiler.parse_file("pump.idl").unwrap();
/// let pump = document.definitions().def(document.find("Pump").unwrap());
/// assert_eq!(pump.extensibility, Extensibility::Final);
///
/// // The language follows from the ending of the name, or is given.
/// let probe = "probe Pump { real64 pressure; };";
/// assert_eq!(Compiler::new().parse_as("stdin", probe, Dialect::Pdl).unwrap().schema("Pump").unwrap().name(), "Pump");
/// ```
pub struct Compiler {
    loader: Box<dyn Loader>,
    include_dirs: Vec<String>,
    definitions: Vec<(String, String)>,
    limits: Limits,
    settings: Settings,
}

impl Default for Compiler {
    fn default() -> Self {
        Compiler {
            loader: Box::new(Disk),
            include_dirs: Vec::new(),
            definitions: Vec::new(),
            limits: Limits::default(),
            settings: Settings { default_extensibility: Extensibility::Appendable },
        }
    }
}

impl Compiler {
    /// A compiler that reads files from the disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// Reads files through another [`Loader`], for example a `BTreeMap` of texts or a closure.
    pub fn loader(mut self, loader: impl Loader + 'static) -> Self {
        self.loader = Box::new(loader);
        self
    }

    /// Searches for included files in `dir` as well, after the directories given earlier.
    ///
    /// An included file must lie below an include directory or below the folder of the first file.
    /// So an untrusted file cannot include arbitrary files by an absolute path or by `..`.
    pub fn include_dir(mut self, dir: impl Into<String>) -> Self {
        self.include_dirs.push(dir.into());
        self
    }

    /// Defines a macro, like `#define name value` before the file.
    pub fn define(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.definitions.push((name.into(), value.into()));
        self
    }

    /// Replaces the default limits.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The extensibility of types without an annotation. In OMG IDL 4.2 it is appendable, in older
    /// compilers final.
    pub fn default_extensibility(mut self, extensibility: Extensibility) -> Self {
        self.settings.default_extensibility = extensibility;
        self
    }

    /// Compiles the file at `path` and all files that it includes. The ending of its name
    /// determines the language ([`Dialect::of`]).
    pub fn parse_file(&self, path: &str) -> Result<Document, Diagnostics> {
        let bytes = match self.loader.load(path, self.limits.source_bytes) {
            Ok(Some(bytes)) => bytes,
            Ok(None) => return Err(self.unreadable(path, "there is no such file")),
            Err(error) => return Err(self.unreadable(path, &error.to_string())),
        };
        let (text, wrong) = source::text_of(bytes);
        self.parse(path, &text, Dialect::of(path), wrong)
    }

    /// Compiles `text` as the content of a file with this name.
    pub fn parse_str(&self, name: &str, text: &str) -> Result<Document, Diagnostics> {
        self.parse_as(name, text, Dialect::of(name))
    }

    /// Compiles `text` as the content of a file with this name, in the given language.
    pub fn parse_as(&self, name: &str, text: &str, dialect: Dialect) -> Result<Document, Diagnostics> {
        self.parse(name, text, dialect, None)
    }

    /// `wrong` is the offset of the first byte that is not UTF-8, if there is one.
    fn parse(&self, name: &str, text: &str, dialect: Dialect, wrong: Option<usize>) -> Result<Document, Diagnostics> {
        let mut reporter = Reporter::new(self.limits.diagnostics);
        let items = match dialect {
            Dialect::Ros => ros::read(name, text, &mut reporter, self),
            _ => self.items(name, text, dialect, &mut reporter),
        };
        // The sources of given macros come first. Definitions of ROS 2 have none.
        let file = if dialect == Dialect::Ros { 0 } else { self.definitions.len() as u32 };
        if let Some(at) = wrong {
            let span = Span { file, start: 0, end: 0 };
            reporter.warning(span, format!("the file is not UTF-8 at byte {at}; it is read as Latin-1"));
        }
        // After a syntax error some definitions are missing. The others are still checked, so that
        // one run reports as many errors as possible.
        let checked = check::check(&items, file, &mut reporter, &self.limits, &self.settings);
        let (found, failed) = reporter.finish();
        match checked {
            Some(checked) if !failed => Ok(Document::new(checked, found)),
            _ => Err(found),
        }
    }

    /// Parses a file in IDL or PDL and all files that it includes.
    fn items(&self, name: &str, text: &str, dialect: Dialect, reporter: &mut Reporter) -> Vec<ast::Item> {
        let mut preprocessor = pp::Preprocessor::new(reporter, &*self.loader, &self.include_dirs, &self.limits);
        for (name, value) in &self.definitions {
            preprocessor.define(name, value);
        }
        let tokens = preprocessor.run(name, text, dialect);
        parse::parse(tokens, reporter, &self.limits)
    }

    fn unreadable(&self, path: &str, why: &str) -> Diagnostics {
        let mut reporter = Reporter::new(1);
        let file = reporter.sources.add(path.into(), "", Dialect::of(path));
        let diagnostic = reporter.error(Span { file, start: 0, end: 0 }, format!("cannot read the file: {why}"));
        (diagnostic.location.line, diagnostic.location.column) = (0, 0);
        reporter.finish().0
    }
}
