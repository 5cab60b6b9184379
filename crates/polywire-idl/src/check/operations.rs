//! Checks the operations of probes. Each makes two structures, with the names and members that
//! DDS-RPC 1.0 gives those of an operation of an interface: what it takes, and what it gives back.

use std::collections::{HashMap, HashSet};

use polywire_core::schema::{Def, DefId, DefKind, Member, Schema};

use super::Checker;
use crate::ast::{self, Direction, Item, ItemKind, Name};
use crate::parse::LONGEST_NAME;
use crate::source::Span;

/// An operation and its structures.
#[derive(Clone, Debug)]
pub(crate) struct Declared {
    pub probe: DefId,
    pub name: String,
    pub span: Span,
    pub request: DefId,
    pub reply: DefId,
}

impl Checker<'_> {
    pub(super) fn operations(&mut self, probe: DefId, owner: &Name, operations: &[ast::Operation]) {
        let mut names = HashSet::new();
        // That a name is there twice is reported already.
        for operation in operations.iter().filter(|operation| names.insert(operation.name.text.clone())) {
            if self.exhausted() {
                return;
            }
            self.operation(probe, owner, operation);
        }
    }

    fn operation(&mut self, probe: DefId, owner: &Name, operation: &ast::Operation) {
        self.no_effects(&operation.annotations, "an operation");
        let (mut seen, mut taken, mut given) = (HashMap::new(), Vec::new(), Vec::new());
        let parameters = operation.parameters.iter().map(|parameter| (parameter.direction, &parameter.member));
        let result = operation.result.iter().map(|result| (Direction::Out, result));
        for (direction, member) in parameters.chain(result) {
            if self.exhausted() {
                return;
            }
            let Some(ty) = self.type_of(&member.ty) else { continue };
            for declarator in &member.declarators {
                self.check_sibling(&mut seen, &declarator.name, "parameter");
                let Some(member) = self.member(member, declarator, &ty) else { continue };
                if direction != Direction::Out {
                    taken.push(member.clone());
                }
                if direction != Direction::In {
                    given.push(member);
                }
            }
        }
        let request = self.part(owner, operation, "In", taken);
        let reply = self.part(owner, operation, "Out", given);
        if let (Some(request), Some(reply)) = (request, reply) {
            let Name { text, span } = &operation.name;
            self.operations.push(Declared { probe, name: text.to_string(), span: *span, request, reply });
        }
    }

    /// Defines a structure of an operation. It is nested, so it is no topic: a service carries it.
    fn part(&mut self, owner: &Name, operation: &ast::Operation, end: &str, members: Vec<Member>) -> Option<DefId> {
        let text = format!("{}_{}_{end}", owner.text, operation.name.text);
        if text.len() > LONGEST_NAME {
            let message = format!("the name of its type would be longer than the limit of {LONGEST_NAME} characters");
            self.reporter.error(operation.name.span, message);
            return None;
        }
        let name = Name { text: text.into(), span: operation.name.span };
        let id = self.declare_type(&name)?;
        // The comment is told once.
        let doc = operation.doc.clone().filter(|_| end == "In");
        let item =
            Item { annotations: Vec::new(), doc, span: name.span, kind: ItemKind::Forward { name: name.clone() } };
        let mut given = self.type_annotations(&item, "a structure");
        given.nested = true;
        self.define(Some(id), &name, DefKind::Struct { base: None, members }, given);
        Some(id)
    }

    /// Reports names that a probe has, and one of its bases as well. That two members have the same
    /// name is an error of the schema, which is reported already.
    pub(super) fn check_inherited(&mut self, schema: &Schema, spans: &HashMap<String, Span>) {
        let mut by_probe: HashMap<DefId, Vec<Declared>> = HashMap::new();
        for operation in &self.operations {
            by_probe.entry(operation.probe).or_default().push(operation.clone());
        }
        if by_probe.is_empty() {
            return;
        }
        let of = |id: &DefId| by_probe.get(id).into_iter().flatten();
        for (def, id) in schema.defs().iter().zip((0..).map(DefId)) {
            let bases: Vec<DefId> = std::iter::successors(base_of(def), |id| base_of(schema.def(*id))).collect();
            let theirs: HashSet<&str> = bases.iter().flat_map(of).map(|operation| operation.name.as_str()).collect();
            if of(&id).next().is_some() {
                let members = bases.iter().flat_map(|id| own_members(schema.def(*id)));
                let taken: HashSet<&str> = members.map(|member| member.name.as_str()).chain(theirs.clone()).collect();
                for operation in of(&id).filter(|operation| taken.contains(operation.name.as_str())) {
                    let Declared { name, .. } = operation;
                    let message = format!("a base of '{}' has a member or an operation '{name}' already", def.name);
                    self.reporter.error(operation.span, message);
                }
            }
            for member in own_members(def).iter().filter(|member| theirs.contains(member.name.as_str())) {
                let message = format!("the member '{}' has the name of an operation of a base", member.name);
                self.reporter.error(spans.get(&def.name).copied().unwrap_or_default(), message);
            }
        }
    }
}

fn base_of(def: &Def) -> Option<DefId> {
    match &def.kind {
        DefKind::Struct { base, .. } => *base,
        _ => None,
    }
}

fn own_members(def: &Def) -> &[Member] {
    match &def.kind {
        DefKind::Struct { members, .. } => members,
        _ => &[],
    }
}
