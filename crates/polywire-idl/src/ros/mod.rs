//! Message, service and action definitions of ROS 2 (`.msg`, `.srv`, `.action`).
//!
//! They become the items of the IDL that rosidl generates from them: the structure
//! `PKG::msg::NAME`, and its constants in `PKG::msg::NAME_Constants`. A service becomes
//! `NAME_Request` and `NAME_Response`, an action `NAME_Goal`, `NAME_Result` and `NAME_Feedback`.
//! Types of other files are read from `PKG/msg/NAME.msg`, beside the package of the first file or
//! in the include directories.

use std::collections::HashSet;
use std::rc::Rc;

use crate::ast::{Item, ItemKind, Name};
use crate::diag::Reporter;
use crate::source::{Dialect, Span, folder_of, normalise, text_of, within};
use crate::{Compiler, ast};

mod line;
mod value;

use line::{Line, Reference};

/// Reads a file and the files of the types that it uses. The types that it uses come first.
pub(crate) fn read(name: &str, text: &str, reporter: &mut Reporter, compiler: &Compiler) -> Vec<Item> {
    let path = normalise(name);
    let place = Place::of(&path);
    let shown = if text.len() > compiler.limits.source_bytes { "" } else { text };
    let file = reporter.sources.add(path.clone(), shown, Dialect::Ros);
    let roots = place.root.iter().cloned().chain(compiler.include_dirs.iter().map(|dir| normalise(dir))).collect();
    let mut reader = Reader {
        reporter,
        compiler,
        roots,
        items: Vec::new(),
        done: HashSet::new(),
        open: Vec::new(),
        files: 0,
        bytes: 0,
        lines: 0,
    };
    let start = Span { file, start: 0, end: 0 };
    if place.package.is_none() {
        let kind = place.kind;
        let message = format!(
            "names of types are without a package, because the path of the file is not PACKAGE/{kind}/NAME.{kind}"
        );
        reader.reporter.warning(start, message);
    }
    if reader.has_room(text, start) {
        reader.file(file, &place);
    }
    reader.items
}

/// What the path of a file determines of its types.
#[derive(Clone)]
struct Place {
    /// The folder that contains the package.
    root: Option<String>,
    package: Option<String>,
    /// The folder of the file itself.
    folder: String,
    /// `msg`, `srv` or `action`.
    kind: &'static str,
    /// The name of the file without its ending.
    name: String,
}

impl Place {
    /// Splits a path of the form `ROOT/PACKAGE/msg/NAME.msg`. Other paths are accepted, too.
    fn of(path: &str) -> Place {
        let (stem, ending) = path.rsplit_once('.').unwrap_or((path, "msg"));
        let kind = ["srv", "action"].into_iter().find(|kind| ending.eq_ignore_ascii_case(kind)).unwrap_or("msg");
        let name = stem.rsplit('/').next().unwrap_or(stem).to_string();
        let folder = folder_of(path).to_string();
        let outer = folder.strip_suffix(kind).and_then(|outer| outer.strip_suffix('/'));
        let package = outer.map(|outer| outer.rsplit('/').next().unwrap_or(outer)).filter(|name| line::is_name(name));
        let (package, root) = (package.map(str::to_string), outer.map(|outer| folder_of(outer).to_string()));
        Place { root: root.filter(|_| package.is_some()), package, folder, kind, name }
    }

    /// The parts of a definition, by the suffix that each adds to the name.
    fn sections(&self) -> &'static [&'static str] {
        match self.kind {
            "srv" => &["_Request", "_Response"],
            "action" => &["_Goal", "_Result", "_Feedback"],
            _ => &[""],
        }
    }
}

struct Reader<'a> {
    reporter: &'a mut Reporter,
    compiler: &'a Compiler,
    /// The folders that contain packages.
    roots: Vec<String>,
    items: Vec<Item>,
    /// The types that have been searched for, found or not, as `PACKAGE/NAME`.
    done: HashSet<String>,
    /// The types that are being read, to detect cycles.
    open: Vec<String>,
    files: usize,
    bytes: usize,
    lines: usize,
}

/// The tokens that a line counts for: the type, the name and the semicolon of the same member in
/// IDL.
const TOKENS_OF_A_LINE: usize = 3;

impl Reader<'_> {
    /// Counts the bytes and lines of a file against the limits.
    fn has_room(&mut self, text: &str, span: Span) -> bool {
        let limits = &self.compiler.limits;
        self.bytes = self.bytes.saturating_add(text.len());
        self.lines = self.lines.saturating_add(text.lines().count());
        let wanted =
            [(self.bytes, limits.source_bytes, "bytes"), (self.lines, limits.tokens / TOKENS_OF_A_LINE, "lines")];
        let Some((_, limit, what)) = wanted.into_iter().find(|(got, limit, _)| got > limit) else { return true };
        self.reporter.error(span, format!("the files together are larger than the limit of {limit} {what}"));
        false
    }

    fn file(&mut self, file: u32, place: &Place) {
        let text = self.reporter.sources.get(file).text.clone();
        let lines: Vec<Line<'_>> = Line::all(file, &text);
        let sections: Vec<&[Line<'_>]> = lines.split(|line| line.code() == "---").collect();
        let names = place.sections();
        if sections.len() != names.len() {
            let span = lines.last().map_or(Span { file, start: 0, end: 0 }, |line| line.span());
            let (found, wanted) = (sections.len(), names.len());
            let message =
                format!("a .{} file has {wanted} parts separated by '---', but this one has {found}", place.kind);
            self.reporter.error(span, message);
            return;
        }
        for (ending, lines) in names.iter().zip(sections) {
            let items = self.definition(&format!("{}{ending}", place.name), lines, file, place);
            let span = Span { file, start: 0, end: text.len() as u32 };
            self.items.push(in_package(items, place, span));
        }
    }

    /// Makes the constants and the structure of a part of a definition.
    fn definition(&mut self, name: &str, lines: &[Line<'_>], file: u32, place: &Place) -> Vec<Item> {
        let at = Span { file, start: 0, end: 0 };
        if !line::is_name(name) {
            self.reporter.error(at, format!("'{name}', the name of the file, is not a valid name of a type"));
            return Vec::new();
        }
        let (mut constants, mut members) = (Vec::new(), Vec::new());
        let (doc, lines) = line::leading_comment(lines);
        let mut comments = Vec::new();
        for line in lines {
            if self.reporter.is_full() {
                break;
            }
            match line.code() {
                "" if line.comment().is_some() => comments.extend(line.comment()),
                "" => comments.clear(),
                _ => {
                    comments.extend(line.comment());
                    let doc = line::doc(&std::mem::take(&mut comments));
                    match self.part(line, doc, place) {
                        Some(line::Part::Constant(item)) => constants.push(item),
                        Some(line::Part::Member(member)) => members.push(member),
                        None => {}
                    }
                }
            }
        }
        if members.is_empty() {
            members.push(line::placeholder(at));
        }
        let named = |text: String| Name { text: text.into(), span: at };
        let item = |doc, kind| Item { annotations: Vec::new(), doc, span: at, kind };
        let mut items = Vec::new();
        if !constants.is_empty() {
            let name = named(format!("{name}_Constants"));
            items.push(item(None, ItemKind::Module { name, items: constants }));
        }
        items.push(item(doc, ItemKind::Struct { name: named(name.into()), base: None, members }));
        items
    }

    fn part(&mut self, line: &Line<'_>, doc: Option<Rc<str>>, place: &Place) -> Option<line::Part> {
        let parsed = line.parse(self.reporter)?;
        match parsed.reference() {
            None => parsed.part(None, doc, self.reporter),
            Some(reference) => {
                let scope = self.resolve(reference, place, line.span())?;
                parsed.part(Some(scope), doc, self.reporter)
            }
        }
    }

    /// Reads the file of another type, and returns the modules of that type.
    fn resolve(&mut self, reference: &Reference, from: &Place, span: Span) -> Option<Vec<Rc<str>>> {
        let package = reference.package.clone().or(from.package.clone());
        let key = format!("{}/{}", package.as_deref().unwrap_or(""), reference.name);
        let scope = package.iter().map(|package| Rc::from(package.as_str())).chain([Rc::from("msg")]).collect();
        if self.open.contains(&key) {
            self.reporter.error(span, format!("'{key}' contains itself, which ROS 2 does not allow"));
            return None;
        }
        if self.done.contains(&key) {
            return Some(scope);
        }
        let (path, text) = self.find(package.as_deref(), &reference.name, from, span)?;
        let file = self.reporter.sources.add_included(path.clone(), &text, Dialect::Ros);
        let place = Place { package, ..Place::of(&path) };
        self.open.push(key.clone());
        self.file(file, &place);
        self.open.pop();
        self.done.insert(key);
        Some(scope)
    }

    fn find(&mut self, package: Option<&str>, name: &str, from: &Place, span: Span) -> Option<(String, String)> {
        let limits = &self.compiler.limits;
        self.files += 1;
        if self.open.len() >= limits.include_depth || self.files > limits.includes {
            self.reporter.error(span, format!("files are nested deeper than the limit of {}", limits.include_depth));
            return None;
        }
        let mut tried = Vec::new();
        for path in self.candidates(package, name, from) {
            let rest = self.compiler.limits.source_bytes.saturating_sub(self.bytes);
            match self.compiler.loader.load(&path, rest) {
                Ok(Some(bytes)) => {
                    let (text, wrong) = text_of(bytes);
                    if let Some(at) = wrong {
                        let message = format!("'{path}' is not UTF-8 at byte {at}; it is read as Latin-1");
                        self.reporter.warning(span, message);
                    }
                    return self.has_room(&text, span).then_some((path, text));
                }
                Ok(None) => tried.push(path),
                Err(error) => {
                    self.reporter.error(span, format!("cannot read '{path}': {error}"));
                    return None;
                }
            }
        }
        if let Some((package, text)) = package.and_then(|package| Some((package, built_in(package, name)?))) {
            return Some((format!("{package}/msg/{name}.msg"), text.into()));
        }
        let shown = package.map_or(name.to_string(), |package| format!("{package}/{name}"));
        let diagnostic = self.reporter.error(span, format!("there is no message '{shown}'"));
        if let Some(package) = package {
            diagnostic.help(format!("add the folder that contains the package '{package}' with -I"));
        }
        diagnostic.note(format!("looked for {}", tried.join(", ")));
        None
    }

    fn candidates(&self, package: Option<&str>, name: &str, from: &Place) -> Vec<String> {
        let Some(package) = package else { return vec![within(&from.folder, &format!("{name}.msg"))] };
        let mut paths: Vec<String> =
            self.roots.iter().map(|root| within(root, &format!("{package}/msg/{name}.msg"))).collect();
        // An include directory may be the folder of the package itself.
        let own = self.roots.iter().filter(|root| root.rsplit('/').next() == Some(package));
        paths.extend(own.map(|root| within(root, &format!("msg/{name}.msg"))));
        paths
    }
}

/// Definitions of types that nearly every message uses, in case the packages of ROS 2 are not
/// installed.
fn built_in(package: &str, name: &str) -> Option<&'static str> {
    Some(match (package, name) {
        ("builtin_interfaces", "Time" | "Duration") => "int32 sec\nuint32 nanosec\n",
        ("std_msgs", "Header") => "builtin_interfaces/Time stamp\nstring frame_id\n",
        _ => return None,
    })
}

/// Wraps items in the modules `PACKAGE` and `msg`, `srv` or `action`.
fn in_package(items: Vec<Item>, place: &Place, span: Span) -> Item {
    let module = |name: &str, items| {
        let kind = ItemKind::Module { name: Name { text: name.into(), span }, items };
        ast::Item { annotations: Vec::new(), doc: None, span, kind }
    };
    let inner = module(place.kind, items);
    match &place.package {
        Some(package) => module(package, vec![inner]),
        None => inner,
    }
}
