//! Scopes and the resolution of names.

use std::collections::HashMap;
use std::rc::Rc;

use polywire_core::schema::DefId;

use super::{Checker, Slot};
use crate::ast::{Name, ScopedName};
use crate::diag::closest;
use crate::keywords;
use crate::source::{Dialect, Span};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Entity {
    Module,
    Type(DefId),
    Constant(usize),
    /// A literal of an enum, by index.
    Literal(DefId, usize),
    /// A flag of a bitmask, by index.
    Flag(DefId, usize),
    /// A definition that is skipped because its kind is not supported.
    Skipped(&'static str),
}

/// All declared names, by scoped name.
#[derive(Default)]
pub(super) struct Names {
    entities: HashMap<String, (Entity, Span)>,
    /// The names by their lower-case form, to find those that differ only in case.
    lower: HashMap<String, String>,
    later: HashMap<String, Span>,
}

impl Names {
    pub fn foresee(&mut self, scope: &[Rc<str>], name: &Name) {
        self.later.entry(full(scope, &name.text)).or_insert(name.span);
    }

    pub fn skip(&mut self, scope: &[Rc<str>], name: &Name, what: &'static str) {
        self.entities.entry(full(scope, &name.text)).or_insert((Entity::Skipped(what), name.span));
    }

    /// Resolves a name, given by its parts, in `scope`.
    pub fn type_named(&self, scope: &[Rc<str>], parts: &[Rc<str>]) -> Option<DefId> {
        match self.find(scope, parts)? {
            Entity::Type(id) => Some(id),
            _ => None,
        }
    }

    /// The type with this scoped name, and where it was declared.
    pub fn declared_type(&self, full: &str) -> Option<(DefId, Span)> {
        match self.entities.get(full)? {
            (Entity::Type(id), span) => Some((*id, *span)),
            _ => None,
        }
    }

    /// Resolves a name from the innermost scope outwards.
    fn find(&self, scope: &[Rc<str>], parts: &[Rc<str>]) -> Option<Entity> {
        let tail = parts.join("::");
        (0..=scope.len()).rev().find_map(|depth| self.entities.get(&full(&scope[..depth], &tail)).map(|(e, _)| *e))
    }

    fn find_later(&self, scope: &[Rc<str>], parts: &[Rc<str>]) -> Option<(String, Span)> {
        let tail = parts.join("::");
        (0..=scope.len()).rev().find_map(|depth| {
            let name = full(&scope[..depth], &tail);
            self.later.get(&name).map(|span| (name, *span))
        })
    }

    /// The last parts of all names that `accept` accepts, in a stable order.
    fn last_parts(&self, accept: impl Fn(Entity) -> bool) -> Vec<&str> {
        let mut names: Vec<&str> = self
            .entities
            .iter()
            .filter(|(_, (entity, _))| accept(*entity))
            .filter_map(|(name, _)| name.rsplit("::").next())
            .collect();
        names.sort_unstable();
        names
    }
}

/// `A::B::name`
pub(super) fn full(scope: &[Rc<str>], name: &str) -> String {
    let mut text = String::new();
    for part in scope {
        text.push_str(part);
        text.push_str("::");
    }
    text + name
}

impl Checker<'_> {
    pub(super) fn full_name(&self, name: &str) -> String {
        full(&self.scope, name)
    }

    pub(super) fn declare_module(&mut self, name: &Name) {
        let full = self.full_name(&name.text);
        if let Some((Entity::Module, _)) = self.names.entities.get(&full) {
            return;
        }
        self.declare(&full, Entity::Module, name.span);
    }

    /// The table entry of a type whose definition begins here. A forward declaration may have made
    /// it.
    pub(super) fn declare_type(&mut self, name: &Name) -> Option<DefId> {
        let full = self.full_name(&name.text);
        if let Some((Entity::Type(id), _)) = self.names.entities.get(&full) {
            let slot = &mut self.slots[id.0 as usize];
            if slot.def.is_none() {
                slot.span = name.span;
                return Some(*id);
            }
        }
        let id = DefId(self.slots.len() as u32);
        if !self.declare(&full, Entity::Type(id), name.span) {
            return None;
        }
        self.slots.push(Slot { name: full.into(), span: name.span, def: None });
        Some(id)
    }

    /// Adds a second name for an entity.
    pub(super) fn names_insert(&mut self, full: &str, entity: Entity, span: Span) {
        self.names.entities.entry(full.into()).or_insert((entity, span));
    }

    pub(super) fn declare(&mut self, full: &str, entity: Entity, span: Span) -> bool {
        if let Some((old, first)) = self.names.entities.get(full).copied() {
            let name = full.rsplit("::").next().unwrap_or(full);
            let is_literal = |e| matches!(e, Entity::Literal(..));
            // Schemas that did not come from IDL may have literals with the name of another entity.
            // Their enum determines which one is meant.
            if is_literal(entity) || is_literal(old) {
                let message = format!("'{name}' is a literal of an enum and something else in the same scope");
                self.reporter.warning_beside(span, message, "the first one is here", first);
                if !is_literal(entity) {
                    self.names.entities.insert(full.into(), (entity, span));
                }
                return true;
            }
            let message = format!("'{name}' is already defined");
            self.reporter.error_beside(span, message, "the first one is here", first);
            return false;
        }
        self.warn_of_case(full, span);
        self.names.entities.insert(full.into(), (entity, span));
        true
    }

    /// IDL requires names to differ in more than case (7.2.3). Rust and PDL do not, so this is a
    /// warning.
    fn warn_of_case(&mut self, full: &str, span: Span) {
        let old = self.names.lower.insert(full.to_ascii_lowercase(), full.into());
        let Some(old) = old.filter(|old| old != full && self.dialect == Dialect::Idl) else { return };
        let Some((_, first)) = self.names.entities.get(&old).copied() else { return };
        let name = full.rsplit("::").next().unwrap_or(full);
        let message = format!("'{name}' differs only in case from another name in its scope");
        self.reporter.warning_beside(span, message, "the other one is here", first);
    }

    /// Reports a member, literal or flag whose name is already in its definition, ignoring case.
    pub(super) fn check_sibling(&mut self, seen: &mut HashMap<String, (Rc<str>, Span)>, name: &Name, what: &str) {
        let Some((old, first)) = seen.insert(name.text.to_ascii_lowercase(), (name.text.clone(), name.span)) else {
            return;
        };
        if old == name.text {
            let message = format!("duplicate {what} '{old}'");
            self.reporter.error_beside(name.span, message, "the first one is here", first);
        } else if self.dialect == Dialect::Idl {
            let message = format!("'{}' differs only in case from the {what} '{old}'", name.text);
            self.reporter.warning_beside(name.span, message, "the other one is here", first);
        }
    }

    pub(super) fn find_entity(&self, name: &ScopedName) -> Option<Entity> {
        let scope: &[Rc<str>] = if name.absolute { &[] } else { &self.scope };
        let parts: Vec<Rc<str>> = name.parts.iter().map(|p| p.text.clone()).collect();
        self.names.find(scope, &parts)
    }

    /// Resolves a name to a type, or reports why it is not a type.
    pub(super) fn type_named(&mut self, name: &ScopedName) -> Option<DefId> {
        match self.find_entity(name) {
            Some(Entity::Type(id)) => return Some(id),
            Some(entity) => {
                self.not_a_type(name, entity);
                return None;
            }
            None => {}
        }
        let scope: &[Rc<str>] = if name.absolute { &[] } else { &self.scope };
        let parts: Vec<Rc<str>> = name.parts.iter().map(|p| p.text.clone()).collect();
        let Some((full, span)) = self.names.find_later(scope, &parts) else {
            self.unknown_type(name);
            return None;
        };
        if self.dialect == Dialect::Pdl {
            let id = DefId(self.slots.len() as u32);
            self.names.entities.insert(full.clone(), (Entity::Type(id), span));
            self.slots.push(Slot { name: full.into(), span, def: None });
            return Some(id);
        }
        let message = format!("'{}' is used before it is defined", name.text());
        self.reporter
            .error_beside(name.span, message, "it is defined here", span)
            .help("move its definition before this use");
        None
    }

    fn not_a_type(&mut self, name: &ScopedName, entity: Entity) {
        let what = match entity {
            Entity::Skipped(what) => format!("of a kind that is not supported: {what}"),
            Entity::Module => "a module, not a type".into(),
            Entity::Constant(_) => "a constant, not a type".into(),
            _ => "a literal, not a type".into(),
        };
        self.reporter.error(name.span, format!("'{}' is {what}", name.text()));
    }

    fn unknown_type(&mut self, name: &ScopedName) {
        let Some(last) = name.parts.last() else { return };
        let types = self.names.last_parts(|e| matches!(e, Entity::Type(_)));
        let builtin = if self.dialect == Dialect::Pdl { keywords::PDL } else { keywords::IDL };
        let foreign = keywords::foreign_type(&last.text).filter(|_| name.parts.len() == 1);
        let same = types.iter().find(|t| **t == &*last.text).map(|_| self.names_ending_in(&last.text));
        let near = closest(&last.text, types.iter().chain(builtin.iter()).copied());
        let near = near.map(|near| [name.text().trim_end_matches(&*last.text), near].concat());
        let meant = same.or(foreign.map(str::to_string)).or(near);
        self.reporter.error(name.span, format!("there is no type '{}' here", name.text())).suggest(meant);
    }

    /// The scoped name of a type with this last part in another scope, for the help of an error.
    fn names_ending_in(&self, last: &str) -> String {
        let is_type = |e: &Entity| matches!(e, Entity::Type(_));
        let names = self.names.entities.iter().filter(|(_, (e, _))| is_type(e)).map(|(name, _)| name);
        names.filter(|n| n.rsplit("::").next() == Some(last)).min().cloned().unwrap_or_default()
    }

    pub(super) fn unknown_constant(&mut self, name: &ScopedName, more: &[Rc<str>]) {
        let Some(last) = name.parts.last() else { return };
        let known = self.names.last_parts(|e| matches!(e, Entity::Constant(_) | Entity::Literal(..)));
        let meant = closest(&last.text, known.into_iter().chain(more.iter().map(|m| &**m))).map(str::to_string);
        self.reporter.error(name.span, format!("there is no constant '{}' here", name.text())).suggest(meant);
    }
}
