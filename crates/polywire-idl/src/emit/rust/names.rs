//! Names by Rust's conventions, made unique where two would collide.

use std::collections::{HashMap, HashSet};

use polywire_core::schema::{DefId, Schema};

use super::super::{EmitError, is_identifier};

/// Keywords that can be names only as `r#keyword`.
const KEYWORDS: &[&str] = &[
    "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "do", "dyn", "else", "enum",
    "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop", "macro", "match", "mod", "move",
    "mut", "override", "priv", "pub", "ref", "return", "static", "struct", "trait", "true", "try", "type", "typeof",
    "unsafe", "unsized", "use", "virtual", "where", "while", "yield",
];

/// Keywords that can never be names, and the crates that the emitted code refers to.
const TAKEN: &[&str] = &["self", "Self", "super", "crate", "_", "polywire", "std"];

/// The name as it is written in source text.
pub(super) fn raw(name: &str) -> String {
    if KEYWORDS.contains(&name) { format!("r#{name}") } else { name.into() }
}

/// Splits a name into words: `isEcho`, `IsEcho`, `IS_ECHO` and `is_echo` all have two.
fn words(name: &str) -> Vec<String> {
    let letters: Vec<char> = name.chars().collect();
    let mut words = vec![String::new()];
    for (i, c) in letters.iter().enumerate() {
        if *c == '_' {
            words.push(String::new());
            continue;
        }
        let before = i.checked_sub(1).map(|i| letters[i]);
        let after = letters.get(i + 1);
        let starts = c.is_ascii_uppercase()
            && before.is_some_and(|b| !b.is_ascii_uppercase() || after.is_some_and(|a| a.is_ascii_lowercase()));
        if starts {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.push(c.to_ascii_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

pub(super) fn snake(name: &str) -> String {
    words(name).join("_")
}

/// The name of a field. `return_` stays as it is, since `return` is a keyword.
pub(super) fn field(name: &str) -> String {
    let snaked = snake(name);
    let is_escaped = name.strip_suffix('_') == Some(&snaked) && KEYWORDS.contains(&snaked.as_str());
    if is_escaped { name.into() } else { snaked }
}

pub(super) fn screaming(name: &str) -> String {
    snake(name).to_ascii_uppercase()
}

pub(super) fn camel(name: &str) -> String {
    let mut text = String::new();
    for word in words(name) {
        // An underscore between digits is kept. Otherwise `A1_1` and `A11` would become the same
        // name.
        if text.ends_with(|c: char| c.is_ascii_digit()) && word.starts_with(|c: char| c.is_ascii_digit()) {
            text.push('_');
        }
        text.extend(word.chars().take(1).map(|c| c.to_ascii_uppercase()));
        text.push_str(&word[1..]);
    }
    text
}

/// The names of one scope.
#[derive(Default)]
pub(super) struct Scope(HashSet<String>);

impl Scope {
    /// The name `wanted`, followed by a number if it is already in use.
    pub fn give(&mut self, wanted: String) -> String {
        let begins_well = wanted.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let wanted = if begins_well { wanted } else { format!("_{wanted}") };
        let wanted = if TAKEN.contains(&wanted.as_str()) { format!("{wanted}_") } else { wanted };
        let camel =
            wanted.starts_with(|c: char| c.is_ascii_uppercase()) && wanted.contains(|c: char| c.is_ascii_lowercase());
        let gap = if camel && !wanted.ends_with(|c: char| c.is_ascii_digit()) { "" } else { "_" };
        let numbered = (2..).map(|n| format!("{wanted}{gap}{n}"));
        let free = std::iter::once(wanted.clone()).chain(numbered).find(|name| !self.0.contains(name));
        let name = free.unwrap_or(wanted);
        self.0.insert(name.clone());
        name
    }
}

/// The names of all modules and types.
pub(super) struct Names {
    /// Scopes by module, as IDL names it.
    scopes: HashMap<String, Scope>,
    /// The Rust name of a module by its scoped IDL name.
    modules: HashMap<String, String>,
    /// The module and the Rust name of each definition.
    types: Vec<(Vec<String>, String)>,
}

impl Names {
    pub fn new(schema: &Schema) -> Result<Names, EmitError> {
        let mut names = Names { scopes: HashMap::new(), modules: HashMap::new(), types: Vec::new() };
        for def in schema.defs() {
            let (module, last) = names.split(&def.name)?;
            let scope = names.scopes.entry(module.join("::")).or_default();
            let name = scope.give(camel(&last));
            names.types.push((module, name));
        }
        Ok(names)
    }

    /// Splits a scoped name into its module and its last part, and names each module in Rust.
    pub fn split(&mut self, full: &str) -> Result<(Vec<String>, String), EmitError> {
        let mut parts: Vec<String> = full.split("::").map(str::to_string).collect();
        if let Some(wrong) = parts.iter().find(|p| !is_identifier(p)) {
            return Err(EmitError::Name { def: full.into(), name: wrong.clone() });
        }
        let last = parts.pop().unwrap_or_default();
        for depth in 1..=parts.len() {
            let path = parts[..depth].join("::");
            if !self.modules.contains_key(&path) {
                let outer = self.scopes.entry(parts[..depth - 1].join("::")).or_default();
                let name = outer.give(snake(&parts[depth - 1]));
                self.modules.insert(path, name);
            }
        }
        Ok((parts, last))
    }

    /// A name for a constant of a module.
    pub fn constant(&mut self, module: &[String], last: &str) -> String {
        self.scopes.entry(module.join("::")).or_default().give(screaming(last))
    }

    pub fn module(&self, path: &[String]) -> String {
        self.modules.get(&path.join("::")).cloned().unwrap_or_default()
    }

    pub fn type_name(&self, id: DefId) -> &str {
        self.types.get(id.0 as usize).map_or("", |(_, name)| name)
    }

    pub fn module_of(&self, id: DefId) -> &[String] {
        self.types.get(id.0 as usize).map_or(&[], |(module, _)| module)
    }

    /// Whether a type or module has the name of an item of Rust's prelude.
    pub fn hides(&self, name: &str) -> bool {
        self.types.iter().any(|(_, own)| own == name)
    }

    /// The path of a definition, relative to a module.
    pub fn path(&self, from: &[String], id: DefId) -> String {
        let module = self.module_of(id);
        let common = from.iter().zip(module).take_while(|(a, b)| a == b).count();
        let mut path = "super::".repeat(from.len() - common);
        for depth in common..module.len() {
            path += &raw(&self.module(&module[..=depth]));
            path += "::";
        }
        path + &raw(self.type_name(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_change_their_manner() {
        let cases = [
            ("isEcho", "is_echo", "IsEcho"),
            ("securityIDSource", "security_id_source", "SecurityIdSource"),
            ("VISUAL_THEN", "visual_then", "VisualThen"),
            ("Codecs_Test", "codecs_test", "CodecsTest"),
            ("uint64_value_10", "uint64_value_10", "Uint64Value10"),
            ("V2X", "v2_x", "V2X"),
            ("v_1_2", "v_1_2", "V1_2"),
        ];
        for (name, snaked, camelled) in cases {
            assert_eq!((snake(name).as_str(), camel(name).as_str()), (snaked, camelled), "{name}");
        }
        assert_eq!(["return_", "level_", "Return_", "type"].map(field), ["return_", "level", "return", "type"]);
    }

    #[test]
    fn a_scope_gives_no_name_twice() {
        let mut scope = Scope::default();
        let given = ["base", "base", "a", "a", "self", "1x"].map(|name| scope.give(name.into()));
        assert_eq!(given, ["base", "base_2", "a", "a_2", "self_", "_1x"]);
        assert_eq!(raw("type"), "r#type");
    }
}
