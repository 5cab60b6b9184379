//! The checker: it resolves names, evaluates constants, applies annotations, and builds the
//! definitions of a schema from the items of `ast.rs`.

use std::collections::{HashMap, HashSet};
use std::rc::Rc;

use polywire_core::schema::{
    AutoId, Def, DefId, DefKind, Extensibility, Schema, SchemaBuilder, SchemaError, SchemaLimits, Type,
};

use crate::ast::{Item, ItemKind, Name};
use crate::diag::Reporter;
use crate::document::Constant;
use crate::pp::Keylist;
use crate::source::{Dialect, Span};
use crate::{Limits, Settings};

mod annotations;
mod definitions;
mod names;
pub(crate) mod operations;
mod types;
mod values;

use names::Names;
use operations::Declared;

/// The result of a check, or `None` if there was an error.
pub(crate) struct Checked {
    pub schema: Schema,
    pub constants: Vec<Constant>,
    pub operations: Vec<Declared>,
    /// The names that the first file itself defines, not the files that it includes.
    pub own: HashSet<String>,
}

/// Checks all items. `file` is the first file.
pub(crate) fn check(
    items: &[Item],
    file: u32,
    reporter: &mut Reporter,
    limits: &Limits,
    settings: &Settings,
) -> Option<Checked> {
    let mut checker = Checker {
        reporter,
        limits,
        schema_limits: SchemaLimits::default(),
        default_extensibility: settings.default_extensibility,
        slots: Vec::new(),
        names: Names::default(),
        constants: Vec::new(),
        operations: Vec::new(),
        scope: Vec::new(),
        modules: vec![ModuleAnnotations::default()],
        spent: 0,
        parts: 0,
        dialect: Dialect::Idl,
    };
    checker.foresee(items, &mut Vec::new());
    checker.items(items);
    checker.finish(file)
}

/// An entry of the table of definitions.
struct Slot {
    name: Rc<str>,
    span: Span,
    /// `None` as long as the name is only declared.
    def: Option<Def>,
}

/// What the annotations of a module determine for all definitions in it.
#[derive(Clone, Copy, Default)]
struct ModuleAnnotations {
    auto_id: AutoId,
    nested: bool,
}

struct Checker<'a> {
    reporter: &'a mut Reporter,
    limits: &'a Limits,
    schema_limits: SchemaLimits,
    default_extensibility: Extensibility,
    slots: Vec<Slot>,
    names: Names,
    constants: Vec<Constant>,
    operations: Vec<Declared>,
    scope: Vec<Rc<str>>,
    modules: Vec<ModuleAnnotations>,
    /// The bytes of texts and types that were copied so far.
    spent: usize,
    /// The number of members, cases, literals, flags and fields so far.
    parts: usize,
    /// The language of the current item.
    dialect: Dialect,
}

impl Checker<'_> {
    /// Records which names are defined later. Errors then distinguish "not yet" from "never", and
    /// PDL may use such names.
    fn foresee(&mut self, items: &[Item], scope: &mut Vec<Rc<str>>) {
        for item in items {
            match &item.kind {
                ItemKind::Module { name, items } => {
                    scope.push(name.text.clone());
                    self.foresee(items, scope);
                    scope.pop();
                }
                ItemKind::Typedef { declarators, .. } => {
                    declarators.iter().for_each(|d| self.names.foresee(scope, &d.name));
                }
                ItemKind::Const { .. } | ItemKind::Forward { .. } | ItemKind::Unsupported { .. } => {}
                kind => kind.name().into_iter().for_each(|name| self.names.foresee(scope, name)),
            }
        }
    }

    fn items(&mut self, items: &[Item]) {
        for item in items {
            if self.reporter.is_full() || self.exhausted() {
                return;
            }
            self.dialect = self.reporter.sources.dialect(item.span);
            self.item(item);
        }
    }

    fn item(&mut self, item: &Item) {
        match &item.kind {
            ItemKind::Module { name, items } => self.module(item, name, items),
            ItemKind::Const { name, ty, value } => {
                self.no_effects(&item.annotations, "a constant");
                self.constant(item, name, ty, value);
            }
            ItemKind::Typedef { target, declarators } => self.typedef(item, target, declarators),
            ItemKind::TypedefOf { item: inner, declarators } => self.typedef_of(item, inner, declarators),
            ItemKind::Struct { name, base, members } => {
                self.structure(item, name, base.as_ref(), members, &[], false);
            }
            ItemKind::Probe { name, base, members, operations, is_abstract } => {
                let probe = self.structure(item, name, base.as_ref(), members, operations, *is_abstract);
                probe.into_iter().for_each(|probe| self.operations(probe, name, operations));
            }
            ItemKind::Union { name, switch, switch_annotations, cases } => {
                self.union(item, name, switch, switch_annotations, cases)
            }
            ItemKind::Forward { name } => {
                self.no_effects(&item.annotations, "a forward declaration");
                self.declare_type(name);
            }
            ItemKind::Enum { name, literals } => self.enumeration(item, name, literals),
            ItemKind::Bitmask { name, flags } => self.bitmask(item, name, flags),
            ItemKind::Bitset { name, base, fields } => self.bitset(item, name, base.as_ref(), fields),
            ItemKind::Unsupported { what, name } => {
                if let Some(name) = name {
                    self.names.skip(&self.scope, name, what);
                }
            }
            ItemKind::Keylist(keylist) => self.keylist(keylist),
        }
    }

    fn module(&mut self, item: &Item, name: &Name, items: &[Item]) {
        self.declare_module(name);
        let given = self.module_annotations(&item.annotations);
        self.scope.push(name.text.clone());
        self.modules.push(given);
        self.items(items);
        self.modules.pop();
        self.scope.pop();
    }

    /// Applies `#pragma keylist Type a b`, by which DDS named keys before IDL had annotations.
    /// Fields may be paths.
    fn keylist(&mut self, keylist: &Keylist) {
        let parts: Vec<Rc<str>> = keylist.type_name.split("::").filter(|p| !p.is_empty()).map(Rc::from).collect();
        let Some(id) = self.names.type_named(&self.scope, &parts) else {
            let message = format!("there is no structure '{}' for '#pragma keylist'", keylist.type_name);
            self.reporter.error(keylist.span, message);
            return;
        };
        for field in &keylist.fields {
            self.keylist_field(id, field, keylist.span);
        }
    }

    fn keylist_field(&mut self, id: DefId, path: &str, span: Span) {
        let mut at = Some(id);
        for (depth, part) in path.split('.').enumerate() {
            if depth > self.limits.nesting {
                return;
            }
            let found = at.and_then(|id| self.member_index(id, part));
            let Some((owner, index)) = found else {
                let name = self.slots[id.0 as usize].name.clone();
                self.reporter.error(span, format!("'{name}' has no member '{part}'"));
                return;
            };
            let Some(Def { kind: DefKind::Struct { members, .. }, .. }) = &mut self.slots[owner.0 as usize].def else {
                return;
            };
            members[index].key = true;
            at = match self.resolve(&self.member_type(owner, index)) {
                Type::Def(id) => Some(id),
                _ => None,
            };
        }
    }

    fn member_type(&self, owner: DefId, index: usize) -> Type {
        match self.slots[owner.0 as usize].def.as_ref().map(|d| &d.kind) {
            Some(DefKind::Struct { members, .. }) => members[index].ty.clone(),
            _ => Type::Octet,
        }
    }

    /// Finds the structure that declares a member: `id` or one of its bases.
    fn member_index(&self, id: DefId, name: &str) -> Option<(DefId, usize)> {
        let mut at = Some(id);
        for _ in 0..=self.slots.len() {
            let id = at?;
            let Some(DefKind::Struct { base, members }) = self.slots[id.0 as usize].def.as_ref().map(|d| &d.kind)
            else {
                return None;
            };
            if let Some(index) = members.iter().position(|m| m.name == name) {
                return Some((id, index));
            }
            at = *base;
        }
        None
    }

    /// Counts copied bytes against the limit, so that a small file cannot become a large schema.
    fn spend(&mut self, bytes: usize) {
        self.spent = self.spent.saturating_add(bytes);
    }

    fn exhausted(&mut self) -> bool {
        let too_many = [
            (self.spent, self.limits.source_bytes, "bytes in texts and types"),
            (self.parts, self.schema_limits.members, "members"),
            (self.slots.len(), self.schema_limits.defs, "definitions"),
        ];
        let Some((_, limit, what)) = too_many.into_iter().find(|(got, limit, _)| got > limit) else { return false };
        let span = self.slots.last().map(|slot| slot.span).unwrap_or_default();
        self.reporter.error(span, format!("more than the limit of {limit} {what}"));
        true
    }

    fn finish(mut self, file: u32) -> Option<Checked> {
        for i in 0..self.slots.len() {
            let Slot { name, span, def: None } = &self.slots[i] else { continue };
            self.reporter.error(*span, format!("'{name}' is declared but never defined"));
        }
        if self.exhausted() || self.reporter.failed() {
            return None;
        }
        let spans: HashMap<String, Span> = self.slots.iter().map(|s| (s.name.to_string(), s.span)).collect();
        let own = self.slots.iter().filter(|slot| slot.span.file == file).map(|slot| slot.name.to_string()).collect();
        let defs: Vec<Def> = self.slots.drain(..).filter_map(|slot| slot.def).collect();
        let root = root_of(&defs);
        let mut builder = SchemaBuilder::with_limits(self.schema_limits);
        for def in defs {
            builder.add(def);
        }
        match builder.finish(root) {
            Ok(schema) => {
                self.check_inherited(&schema, &spans);
                let Checker { reporter, constants, operations, .. } = self;
                (!reporter.failed()).then_some(Checked { schema, constants, operations, own })
            }
            Err(error) => {
                let def = match &error {
                    SchemaError::Duplicate { def, .. }
                    | SchemaError::Reference { def, .. }
                    | SchemaError::Range { def, .. }
                    | SchemaError::Infinite { def } => def.as_str(),
                    _ => "",
                };
                self.reporter.error(spans.get(def).copied().unwrap_or_default(), error.to_string());
                None
            }
        }
    }
}

/// The last topic type, else the last definition.
fn root_of(defs: &[Def]) -> Type {
    let topic = |d: &Def| !d.nested && matches!(d.kind, DefKind::Struct { .. } | DefKind::Union { .. });
    match defs.iter().rposition(topic).or(defs.len().checked_sub(1)) {
        Some(i) => Type::Def(DefId(i as u32)),
        None => Type::Octet,
    }
}
