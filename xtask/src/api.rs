//! Lists the public API of a crate as text: one line for each item, field, variant, method and
//! implementation that another crate can name. The binary of this crate and a test call it.
//!
//! The module parses the source files, with all features on, and follows `mod` and `pub use`. It
//! leaves out items that are `#[doc(hidden)]` or only for tests. It does not expand macros, so it
//! misses the items that they generate.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use quote::ToTokens;
use syn::{Attribute, Fields, Generics, ImplItem, Item, Meta, TraitItem, Type, UseTree, Visibility};

use crate::root;

/// Crates whose API has a golden file.
pub const CRATES: &[&str] = &["polywire-core", "polywire-idl", "polywire"];

/// The maximum length of a chain of names that refer to each other. A longer chain counts as a
/// circle.
const MAX_HOPS: usize = 16;

/// The path of the golden file of a crate.
pub fn golden_file(krate: &str) -> PathBuf {
    root().join("docs/api").join(krate).with_extension("txt")
}

/// The API of a crate of this repository, sorted, one item a line.
pub fn of_crate(krate: &str) -> String {
    of_source(&root().join("crates").join(krate).join("src/lib.rs"))
}

/// The API of the crate whose root is this file.
///
/// # Panics
/// If a file cannot be read or is not Rust.
pub fn of_source(lib: &Path) -> String {
    let mut modules = Vec::new();
    load(&mut modules, lib, None);
    let mut api = Api { modules, paths: BTreeMap::new(), lines: BTreeSet::new() };
    api.visit(0, &[], 0);
    api.print();
    api.lines.iter().map(|line| format!("{line}\n")).collect()
}

struct Module {
    parent: Option<usize>,
    children: BTreeMap<String, usize>,
    items: Vec<Item>,
}

/// An item: the indices of its module and of the item in the module.
type Id = (usize, usize);

/// The thing to which a name refers.
#[derive(Clone)]
enum Meaning {
    Item(Id),
    Module(usize),
    /// A path into another crate.
    Foreign(String),
}

fn load(modules: &mut Vec<Module>, file: &Path, parent: Option<usize>) -> usize {
    let text = fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let parsed = syn::parse_file(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let stem = file.file_stem().expect("a file").to_string_lossy().into_owned();
    let folder = file.parent().expect("a folder");
    let inside = if matches!(stem.as_str(), "lib" | "mod") { folder.to_path_buf() } else { folder.join(stem) };
    enter(modules, parsed.items, parent, &inside)
}

fn enter(modules: &mut Vec<Module>, items: Vec<Item>, parent: Option<usize>, folder: &Path) -> usize {
    let id = modules.len();
    let items: Vec<Item> = items.into_iter().filter(|item| attributes(item).iter().all(is_built)).collect();
    modules.push(Module { parent, children: BTreeMap::new(), items: Vec::new() });
    let mut children = BTreeMap::new();
    for item in &items {
        let Item::Mod(module) = item else { continue };
        let name = module.ident.to_string();
        let child = match &module.content {
            Some((_, items)) => enter(modules, items.clone(), Some(id), &folder.join(&name)),
            None => {
                let flat = folder.join(format!("{name}.rs"));
                let file = if flat.exists() { flat } else { folder.join(&name).join("mod.rs") };
                load(modules, &file, Some(id))
            }
        };
        children.insert(name, child);
    }
    modules[id].items = items;
    modules[id].children = children;
    id
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(item) => &item.attrs,
        Item::Enum(item) => &item.attrs,
        Item::Fn(item) => &item.attrs,
        Item::Impl(item) => &item.attrs,
        Item::Macro(item) => &item.attrs,
        Item::Mod(item) => &item.attrs,
        Item::Static(item) => &item.attrs,
        Item::Struct(item) => &item.attrs,
        Item::Trait(item) => &item.attrs,
        Item::Type(item) => &item.attrs,
        Item::Union(item) => &item.attrs,
        Item::Use(item) => &item.attrs,
        _ => &[],
    }
}

/// Whether the attribute keeps the item in a build for Linux with all features. Only `cfg` can
/// remove it.
fn is_built(attribute: &Attribute) -> bool {
    match &attribute.meta {
        Meta::List(list) if list.path.is_ident("cfg") => {
            list.parse_args::<Meta>().map_or(true, |condition| holds(&condition))
        }
        _ => true,
    }
}

fn holds(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => !["test", "windows", "miri"].iter().any(|name| path.is_ident(name)),
        Meta::NameValue(pair) => {
            let value = text_of(&pair.value);
            pair.path.is_ident("feature") || !["\"windows\"", "\"macos\"", "\"big\""].contains(&value.as_str())
        }
        Meta::List(list) => {
            let conditions =
                list.parse_args_with(syn::punctuated::Punctuated::<Meta, syn::Token![,]>::parse_terminated);
            let conditions = conditions.unwrap_or_default();
            match list.path.get_ident().map(ToString::to_string).as_deref() {
                Some("not") => !conditions.iter().all(holds),
                Some("any") => conditions.iter().any(holds),
                _ => conditions.iter().all(holds),
            }
        }
    }
}

fn is_hidden(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident("doc") && text_of(&attribute.meta).contains("hidden"))
}

fn has(attributes: &[Attribute], name: &str) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident(name))
}

/// The name of an item and whether it is public.
fn named(item: &Item) -> Option<(String, bool)> {
    let (name, visibility) = match item {
        Item::Const(item) => (&item.ident, &item.vis),
        Item::Enum(item) => (&item.ident, &item.vis),
        Item::Fn(item) => (&item.sig.ident, &item.vis),
        Item::Static(item) => (&item.ident, &item.vis),
        Item::Struct(item) => (&item.ident, &item.vis),
        Item::Trait(item) => (&item.ident, &item.vis),
        Item::Type(item) => (&item.ident, &item.vis),
        Item::Union(item) => (&item.ident, &item.vis),
        _ => return None,
    };
    Some((name.to_string(), is_public(visibility)))
}

fn is_public(visibility: &Visibility) -> bool {
    matches!(visibility, Visibility::Public(_))
}

struct Api {
    modules: Vec<Module>,
    /// The public paths of each item.
    paths: BTreeMap<Id, Vec<String>>,
    lines: BTreeSet<String>,
}

impl Api {
    /// Records the public items of a module whose public path is `path`.
    fn visit(&mut self, module: usize, path: &[String], hops: usize) {
        if hops > MAX_HOPS {
            return;
        }
        for at in 0..self.modules[module].items.len() {
            let item = self.modules[module].items[at].clone();
            if is_hidden(attributes(&item)) {
                continue;
            }
            match &item {
                Item::Mod(child) if is_public(&child.vis) => {
                    let name = child.ident.to_string();
                    let path = join(path, &name);
                    self.lines.insert(format!("mod {}", path.join("::")));
                    self.visit(self.modules[module].children[&name], &path, hops + 1);
                }
                Item::Use(import) if is_public(&import.vis) => {
                    for (name, target) in leaves(&import.tree) {
                        self.export(module, path, &name, &target, hops);
                    }
                }
                Item::Macro(rules) if has(&rules.attrs, "macro_export") => {
                    let name = rules.ident.as_ref().map(ToString::to_string).unwrap_or_default();
                    self.lines.insert(format!("macro {name}!"));
                }
                item => {
                    if let Some((name, true)) = named(item) {
                        self.note((module, at), join(path, &name));
                    }
                }
            }
        }
    }

    fn export(&mut self, module: usize, path: &[String], name: &str, target: &[String], hops: usize) {
        for meaning in self.resolve(module, target, 0) {
            match meaning {
                Meaning::Module(inner) if name == "*" => self.visit(inner, path, hops + 1),
                Meaning::Module(inner) => {
                    let path = join(path, name);
                    self.lines.insert(format!("mod {}", path.join("::")));
                    self.visit(inner, &path, hops + 1);
                }
                Meaning::Item(id) => {
                    if !is_hidden(attributes(&self.modules[id.0].items[id.1])) {
                        self.note(id, join(path, name));
                    }
                }
                Meaning::Foreign(target) => {
                    self.lines.insert(format!("use {} = {target}", join(path, name).join("::")));
                }
            }
        }
    }

    fn note(&mut self, id: Id, path: Vec<String>) {
        self.paths.entry(id).or_default().push(path.join("::"));
    }

    /// The shortest public path of an item, or `None` if it has none.
    fn path(&self, id: Id) -> Option<&String> {
        self.paths.get(&id)?.iter().min_by_key(|path| (path.matches("::").count(), path.as_str()))
    }

    fn resolve(&self, module: usize, path: &[String], hops: usize) -> Vec<Meaning> {
        let [first, rest @ ..] = path else { return vec![Meaning::Module(module)] };
        if hops > MAX_HOPS {
            return Vec::new();
        }
        let found = match first.as_str() {
            "crate" => vec![Meaning::Module(0)],
            "self" => vec![Meaning::Module(module)],
            "super" => self.modules[module].parent.map(Meaning::Module).into_iter().collect(),
            "*" => vec![Meaning::Module(module)],
            name => self.lookup(module, name, hops + 1),
        };
        if found.is_empty() {
            return match hops {
                0 => vec![Meaning::Foreign(path.join("::"))],
                _ => Vec::new(),
            };
        }
        let onward = |meaning| match meaning {
            Meaning::Module(inner) => self.resolve(inner, rest, hops + 1),
            Meaning::Foreign(start) => vec![Meaning::Foreign(join(&[start], &rest.join("::")).join("::"))],
            item if rest.is_empty() => vec![item],
            Meaning::Item(_) => Vec::new(),
        };
        found.into_iter().flat_map(onward).collect()
    }

    fn lookup(&self, module: usize, name: &str, hops: usize) -> Vec<Meaning> {
        let inside = &self.modules[module];
        let mut found: Vec<Meaning> = inside.children.get(name).copied().map(Meaning::Module).into_iter().collect();
        for (at, item) in inside.items.iter().enumerate() {
            if named(item).is_some_and(|(known, _)| known == name) {
                found.push(Meaning::Item((module, at)));
            }
        }
        if !found.is_empty() || hops > MAX_HOPS {
            return found;
        }
        for item in &inside.items {
            let Item::Use(import) = item else { continue };
            for (known, target) in leaves(&import.tree) {
                // A `use` whose path begins with the name that it defines refers to another crate.
                if known == name && target.first().is_none_or(|first| first != name) {
                    found.extend(self.resolve(module, &target, hops + 1));
                } else if known == "*" {
                    let meanings = self.resolve(module, &target, hops + 1);
                    let inner = meanings.into_iter().filter_map(|meaning| match meaning {
                        Meaning::Module(inner) if inner != module => Some(inner),
                        _ => None,
                    });
                    found.extend(inner.flat_map(|inner| self.lookup(inner, name, hops + 1)));
                }
            }
        }
        found
    }

    fn print(&mut self) {
        let mut lines = BTreeSet::new();
        for (id, paths) in &self.paths {
            let path = self.path(*id).expect("the item has a public path");
            for other in paths.iter().filter(|other| *other != path) {
                lines.insert(format!("use {other} = {path}"));
            }
            describe(&self.modules[id.0].items[id.1], path, &mut lines);
        }
        for (module, inside) in self.modules.iter().enumerate() {
            for item in &inside.items {
                if let Item::Impl(item) = item {
                    self.describe_impl(module, item, &mut lines);
                }
            }
        }
        self.lines.extend(lines);
    }

    /// Whether a path in a module refers to an item of this crate.
    fn is_own(&self, module: usize, path: &syn::Path) -> bool {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        self.resolve(module, &segments, 1).iter().any(|meaning| matches!(meaning, Meaning::Item(_)))
    }

    /// The public path of the item to which a path in a module refers.
    fn public_path(&self, module: usize, path: &syn::Path) -> Option<&String> {
        let segments: Vec<String> = path.segments.iter().map(|segment| segment.ident.to_string()).collect();
        let meanings = self.resolve(module, &segments, 1);
        meanings.into_iter().find_map(|meaning| match meaning {
            Meaning::Item(id) => self.path(id),
            _ => None,
        })
    }

    fn describe_impl(&self, module: usize, item: &syn::ItemImpl, lines: &mut BTreeSet<String>) {
        let ty = match &*item.self_ty {
            Type::Path(path) => self.public_path(module, &path.path).map(|public| with_path(&path.path, public)),
            _ => None,
        };
        let generics = bounds(&item.generics);
        let Some((of, _)) = &item.trait_ else {
            let Some(ty) = ty else { return };
            let prefix = ty.split('<').next().unwrap_or_default().to_owned();
            for item in &item.items {
                match item {
                    ImplItem::Fn(f) if is_public(&f.vis) && !is_hidden(&f.attrs) && f.attrs.iter().all(is_built) => {
                        let of = if ty.contains('<') || !generics.is_empty() {
                            format!(" [impl{generics} {}]", ty.rsplit("::").next().unwrap_or_default())
                        } else {
                            String::new()
                        };
                        lines.insert(format!("{}{of}", signature(&f.sig, &prefix)));
                    }
                    ImplItem::Const(c) if is_public(&c.vis) && !is_hidden(&c.attrs) => {
                        lines.insert(format!("const {prefix}::{}: {}", c.ident, text_of(&c.ty)));
                    }
                    _ => {}
                }
            }
            return;
        };
        if is_hidden(&item.attrs) {
            return;
        }
        let local = self.public_path(module, of);
        if ty.is_none() && local.is_none() {
            return;
        }
        // Traits and types of this crate that another crate cannot name are not part of the API.
        let is_private_type = matches!(&*item.self_ty, Type::Path(path) if self.is_own(module, &path.path));
        if (local.is_none() && self.is_own(module, of)) || (ty.is_none() && is_private_type) {
            return;
        }
        let of =
            local.map_or_else(|| of.segments.last().map(text_of).unwrap_or_default(), |public| with_path(of, public));
        let ty = ty.unwrap_or_else(|| text_of(&item.self_ty));
        let conditions = text_of(&item.generics.where_clause);
        lines.insert(format!("impl{generics} {of} for {ty} {conditions}").trim_end().to_owned());
    }
}

fn join(path: &[String], name: &str) -> Vec<String> {
    path.iter().cloned().chain((!name.is_empty()).then(|| name.to_owned())).collect()
}

/// The names that a `use` defines, each with the path to which it refers. `*` stands for all names
/// of a module.
fn leaves(tree: &UseTree) -> Vec<(String, Vec<String>)> {
    match tree {
        UseTree::Path(path) => {
            let first = path.ident.to_string();
            let under = |(name, rest): (String, Vec<String>)| {
                let own = rest == ["self"];
                let name = if own && name == "self" { first.clone() } else { name };
                (name, if own { vec![first.clone()] } else { [vec![first.clone()], rest].concat() })
            };
            leaves(&path.tree).into_iter().map(under).collect()
        }
        UseTree::Name(name) => vec![(name.ident.to_string(), vec![name.ident.to_string()])],
        UseTree::Rename(rename) => vec![(rename.rename.to_string(), vec![rename.ident.to_string()])],
        UseTree::Glob(_) => vec![("*".into(), vec!["*".into()])],
        UseTree::Group(group) => group.items.iter().flat_map(leaves).collect(),
    }
}

/// The public path of the item to which `path` refers, with the generic arguments of `path`.
fn with_path(path: &syn::Path, public: &str) -> String {
    let arguments = path.segments.last().map(|segment| text_of(&segment.arguments)).unwrap_or_default();
    format!("{public}{arguments}")
}

fn bounds(generics: &Generics) -> String {
    match generics.params.is_empty() {
        true => String::new(),
        false => format!("<{}>", text_of(&generics.params)),
    }
}

fn open(attributes: &[Attribute]) -> &'static str {
    if has(attributes, "non_exhaustive") { " [non_exhaustive]" } else { "" }
}

fn describe(item: &Item, path: &str, lines: &mut BTreeSet<String>) {
    let mut add = |line: String| {
        lines.insert(line.trim_end().to_owned());
    };
    let (attrs, generics) = match item {
        Item::Const(item) => return add(format!("const {path}: {}", text_of(&item.ty))),
        Item::Static(item) => return add(format!("static {path}: {}", text_of(&item.ty))),
        Item::Type(item) => return add(format!("type {path}{} = {}", bounds(&item.generics), text_of(&item.ty))),
        Item::Fn(item) => {
            let outer = path.rsplit_once("::").map_or("", |(outer, _)| outer);
            return add(signature(&item.sig, outer));
        }
        Item::Trait(item) => {
            let unsafety = if item.unsafety.is_some() { "unsafe " } else { "" };
            let supertraits = text_of(&item.supertraits);
            let colon = if supertraits.is_empty() { "" } else { ": " };
            add(format!("{unsafety}trait {path}{}{colon}{supertraits}", bounds(&item.generics)));
            for item in &item.items {
                match item {
                    TraitItem::Fn(f) if !is_hidden(&f.attrs) => {
                        let given = if f.default.is_some() { " [provided]" } else { "" };
                        add(format!("{}{given}", signature(&f.sig, path)));
                    }
                    TraitItem::Type(ty) => add(format!("type {path}::{}: {}", ty.ident, text_of(&ty.bounds))),
                    TraitItem::Const(c) => add(format!("const {path}::{}: {}", c.ident, text_of(&c.ty))),
                    _ => {}
                }
            }
            return;
        }
        Item::Struct(item) => {
            let fields = item.fields.iter().filter(|field| is_public(&field.vis) && !is_hidden(&field.attrs)).count();
            let rest = if fields < item.fields.len() { " [private fields]" } else { "" };
            add(format!("struct {path}{}{}{rest}", bounds(&item.generics), open(&item.attrs)));
            for (at, field) in item.fields.iter().enumerate() {
                if is_public(&field.vis) && !is_hidden(&field.attrs) {
                    let name = field.ident.as_ref().map_or_else(|| at.to_string(), ToString::to_string);
                    add(format!("field {path}::{name}: {}", text_of(&field.ty)));
                }
            }
            (&item.attrs, &item.generics)
        }
        Item::Enum(item) => {
            add(format!("enum {path}{}{}", bounds(&item.generics), open(&item.attrs)));
            for variant in item.variants.iter().filter(|variant| !is_hidden(&variant.attrs)) {
                let fields = match &variant.fields {
                    Fields::Unit => String::new(),
                    Fields::Unnamed(fields) => {
                        let types: Vec<String> = fields.unnamed.iter().map(|field| text_of(&field.ty)).collect();
                        format!("({})", types.join(", "))
                    }
                    Fields::Named(fields) => {
                        let name = |field: &syn::Field| field.ident.as_ref().map(ToString::to_string);
                        let field = |f: &syn::Field| format!("{}: {}", name(f).unwrap_or_default(), text_of(&f.ty));
                        format!(" {{ {} }}", fields.named.iter().map(field).collect::<Vec<_>>().join(", "))
                    }
                };
                add(format!("variant {path}::{}{fields}{}", variant.ident, open(&variant.attrs)));
            }
            (&item.attrs, &item.generics)
        }
        Item::Union(item) => return add(format!("union {path}{}", bounds(&item.generics))),
        _ => return,
    };
    for derive in attrs.iter().filter(|attribute| attribute.path().is_ident("derive")) {
        let traits = derive.parse_args_with(syn::punctuated::Punctuated::<syn::Path, syn::Token![,]>::parse_terminated);
        for of in traits.unwrap_or_default() {
            let name = of.segments.last().map(|segment| segment.ident.to_string()).unwrap_or_default();
            add(format!("impl{} {name} for {path} [derived]", bounds(generics)));
        }
    }
}

/// A function with its arguments and its result. `outer` is the path of the type, trait or module
/// that contains it.
fn signature(signature: &syn::Signature, outer: &str) -> String {
    let mut before = String::new();
    for (word, is_there) in [
        ("const ", signature.constness.is_some()),
        ("async ", signature.asyncness.is_some()),
        ("unsafe ", matches!(text_of(&signature).split(" fn ").next(), Some(start) if start.contains("unsafe"))),
    ] {
        before += if is_there { word } else { "" };
    }
    let path = if outer.is_empty() { String::new() } else { format!("{outer}::") };
    let inputs = text_of(&signature.inputs);
    let output = text_of(&signature.output);
    let space = if output.is_empty() { "" } else { " " };
    let conditions = text_of(&signature.generics.where_clause);
    let line = format!("{before}fn {path}{}{}({inputs}){space}{output}", signature.ident, bounds(&signature.generics));
    format!("{line} {conditions}").trim_end().to_owned()
}

/// Tokens as text, with spaces nearly as `rustfmt` sets them.
fn text_of(tokens: &impl ToTokens) -> String {
    let text = tokens.to_token_stream().to_string();
    let characters: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    for (at, character) in characters.iter().enumerate() {
        let next = characters.get(at + 1).copied().unwrap_or(' ');
        let last = out.chars().last().unwrap_or(' ');
        let glued = match character {
            ' ' | '\n' => {
                let word = last.is_alphanumeric() || matches!(last, '_' | '>' | ']' | ')');
                let arrow = out.ends_with("->") || out.ends_with("=>");
                matches!(last, '<' | '(' | '[' | '&' | '*' | '?' | '!' | ' ')
                    || out.ends_with("::")
                    || matches!(next, '>' | ')' | ']' | ',' | ';' | ':' | '?' | '.' | ' ')
                    || (matches!(next, '<' | '(') && word && !arrow && !out.ends_with(" for") && !out.ends_with("dyn"))
            }
            _ => false,
        };
        if !glued {
            out.push(if *character == '\n' { ' ' } else { *character });
        }
    }
    out.trim().trim_end_matches(',').to_owned()
}
