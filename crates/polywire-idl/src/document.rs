//! The result of a compilation: definitions, constants and warnings.

use std::collections::HashSet;

use polywire_core::schema::{Def, DefId, DefKind, Literal, Schema, SchemaBuilder, Type};

use crate::check::{Checked, operations::Declared};
use crate::diag::{Diagnostics, closest};

/// A constant and its value.
///
/// ```
/// use polywire_core::schema::Literal;
/// use polywire_idl::{Compiler, Constant};
/// let document = Compiler::new().parse_str("a.idl", "module M { const long LIMIT = (1 << 4) | 3; };").unwrap();
/// let constant: &Constant = &document.constants()[0];
/// assert_eq!((constant.name.as_str(), &constant.value), ("M::LIMIT", &Literal::Int(19)));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Constant {
    /// The scoped name, such as `Module::NAME`.
    pub name: String,
    /// The type. References are to the definitions of the document.
    pub ty: Type,
    /// The value, converted to the type.
    pub value: Literal,
    /// The documentation comment.
    pub doc: String,
}

/// An operation of a probe in PDL: what a program does for whoever asks.
///
/// Its types are structures with the names that OMG DDS-RPC 1.0 gives those of an operation of an
/// interface. The request has the parameters that are `in` or `inout`. The reply has those that are
/// `inout` or `out`, and `return_` at the end unless the operation is `void`.
///
/// ```
/// use polywire_idl::{Compiler, Dialect, Operation, emit};
/// let text = "probe Device { void reset(); };
///     probe Tank : Device {
///         real64 level;
///         // Drains down to a level.
///         real64 drain(in real64 level, inout string who);
///     };";
/// let document = Compiler::new().parse_as("tank.pdl", text, Dialect::Pdl).unwrap();
/// let all: Vec<Operation> = document.operations("Tank").unwrap().collect();
/// assert_eq!(all.iter().map(|operation| operation.name.as_str()).collect::<Vec<_>>(), ["reset", "drain"]);
/// let drain = &all[1];
/// assert_eq!((drain.request.name(), drain.reply.name()), ("Tank_drain_In", "Tank_drain_Out"));
/// assert_eq!(drain.doc, "Drains down to a level.");
/// let reply = emit::idl(&drain.reply).unwrap();
/// assert!(reply.ends_with("struct Tank_drain_Out {\n    string who;\n    double return_;\n};\n"), "{reply}");
/// assert!(emit::idl(&all[0].request).unwrap().ends_with("struct Device_reset_In {\n};\n"));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Operation {
    /// The name.
    pub name: String,
    /// The documentation comment.
    pub doc: String,
    /// The type of the requests.
    pub request: Schema,
    /// The type of the replies.
    pub reply: Schema,
}

/// All definitions and constants of a file and of the files that it includes.
///
/// ```
/// use polywire_idl::{Compiler, Document, LookupError};
/// let text = "module Plant { const long MAX = 4; @nested struct Point { double x; }; struct Pump { Point at[MAX]; }; };";
/// let document: Document = Compiler::new().parse_str("plant.idl", text).unwrap();
/// assert!(document.warnings().is_empty());
/// let names: Vec<&str> = document.definitions().defs().iter().map(|def| &*def.name).collect();
/// assert_eq!(names, ["Plant::Point", "Plant::Pump"]);
/// assert_eq!(document.topic_types().map(|def| &*def.name).collect::<Vec<_>>(), ["Plant::Pump"]);
/// assert_eq!(document.own_topic_types().count(), 1);
/// let id = document.find("Pump").unwrap();
/// assert_eq!(&*document.definitions().def(id).name, "Plant::Pump");
/// assert!(matches!(document.schema("Pmup"), Err(LookupError::Unknown { .. })));
/// ```
#[derive(Clone, Debug)]
pub struct Document {
    all: Schema,
    constants: Vec<Constant>,
    operations: Vec<Declared>,
    own: HashSet<String>,
    warnings: Diagnostics,
}

/// Why a name denotes no type of the document.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LookupError {
    /// No definition has this name.
    #[error("there is no type '{name}'{}", meant.as_ref().map(|m| format!("; did you mean '{m}'?")).unwrap_or_default())]
    Unknown {
        /// The name that was looked up.
        name: String,
        /// The scoped name that was probably meant, if one is close.
        meant: Option<String>,
    },
    /// Several scoped names end in this name.
    #[error("'{name}' may be '{}'", candidates.join("' or '"))]
    Ambiguous {
        /// The name that was looked up.
        name: String,
        /// Those scoped names.
        candidates: Vec<String>,
    },
}

impl Document {
    pub(crate) fn new(checked: Checked, warnings: Diagnostics) -> Document {
        let Checked { schema: all, constants, operations, own } = checked;
        Document { all, constants, operations, own, warnings }
    }

    /// All definitions, in the order of the file. The root is the last topic type, else the last
    /// definition, else `octet`.
    pub fn definitions(&self) -> &Schema {
        &self.all
    }

    /// The constants, in the order of the file.
    pub fn constants(&self) -> &[Constant] {
        &self.constants
    }

    /// The warnings of the compilation.
    pub fn warnings(&self) -> &Diagnostics {
        &self.warnings
    }

    /// The topic types: structures and unions that are not `@nested`.
    pub fn topic_types(&self) -> impl Iterator<Item = &Def> {
        let topic = |d: &&Def| !d.nested && matches!(d.kind, DefKind::Struct { .. } | DefKind::Union { .. });
        self.all.defs().iter().filter(topic)
    }

    /// The topic types that the file itself defines. If it defines none, those of the files that it
    /// includes.
    pub fn own_topic_types(&self) -> impl Iterator<Item = &Def> {
        let none = !self.topic_types().any(|def| self.own.contains(&def.name));
        self.topic_types().filter(move |def| none || self.own.contains(&def.name))
    }

    /// Looks up a definition by its scoped name or by an unambiguous end of it. `/` and `.` are
    /// accepted in place of `::`.
    pub fn find(&self, name: &str) -> Result<DefId, LookupError> {
        let wanted = name.replace(['/', '.'], "::");
        let wanted = wanted.trim_start_matches("::");
        let defs = || self.all.defs().iter().zip(0..);
        if let Some((_, i)) = defs().find(|(d, _)| d.name == wanted) {
            return Ok(DefId(i));
        }
        let ends_so = |d: &Def| d.name.strip_suffix(wanted).is_some_and(|scope| scope.ends_with("::"));
        let found: Vec<(&Def, u32)> = defs().filter(|(d, _)| !wanted.is_empty() && ends_so(d)).collect();
        match found.as_slice() {
            [(_, i)] => Ok(DefId(*i)),
            [] => Err(LookupError::Unknown { name: name.into(), meant: self.meant(wanted) }),
            _ => Err(LookupError::Ambiguous {
                name: name.into(),
                candidates: found.iter().map(|(d, _)| d.name.clone()).collect(),
            }),
        }
    }

    fn meant(&self, wanted: &str) -> Option<String> {
        let names = || self.all.defs().iter().map(|d| d.name.as_str());
        let last = |name: &'_ str| name.rsplit("::").next().unwrap_or("").to_string();
        if let Some(whole) = closest(wanted, names()) {
            return Some(whole.into());
        }
        let tails: Vec<String> = names().map(last).collect();
        let tail = closest(&last(wanted), tails.iter().map(String::as_str))?;
        names().find(|name| last(name) == tail).map(str::to_string)
    }

    /// The schema of a type, with only the definitions that it needs. The name is looked up as in
    /// [`Document::find`].
    pub fn schema(&self, name: &str) -> Result<Schema, LookupError> {
        self.find(name).map(|id| reachable(&self.all, id))
    }

    /// The operations of a probe, first those that it inherits. The name is looked up as in
    /// [`Document::find`]; types that are no probes have none.
    pub fn operations(&self, probe: &str) -> Result<impl Iterator<Item = Operation> + '_, LookupError> {
        let base = |id: &DefId| match &self.all.def(*id).kind {
            DefKind::Struct { base, .. } => *base,
            _ => None,
        };
        let mut lineage: Vec<DefId> = std::iter::successors(Some(self.find(probe)?), base).collect();
        lineage.reverse();
        let of = |id: DefId| self.operations.iter().filter(move |operation| operation.probe == id);
        Ok(lineage.into_iter().flat_map(of).map(|operation| Operation {
            name: operation.name.clone(),
            doc: self.all.def(operation.request).doc.clone(),
            request: reachable(&self.all, operation.request),
            reply: reachable(&self.all, operation.reply),
        }))
    }
}

/// The schema of `root`, with the definitions that it needs in the order of the document.
fn reachable(all: &Schema, root: DefId) -> Schema {
    let mut needed = vec![false; all.defs().len()];
    let mut open = vec![root];
    while let Some(id) = open.pop() {
        if !std::mem::replace(&mut needed[id.0 as usize], true) {
            each_reference(&mut all.def(id).clone(), &mut |inner| open.push(*inner));
        }
    }
    let mut places = vec![DefId(0); needed.len()];
    let kept = (0..needed.len()).filter(|i| needed[*i]);
    for (place, i) in kept.clone().enumerate() {
        places[i] = DefId(place as u32);
    }
    let mut builder = SchemaBuilder::new();
    for i in kept {
        let mut def = all.defs()[i].clone();
        each_reference(&mut def, &mut |id| *id = places[id.0 as usize]);
        builder.add(def);
    }
    // The definitions were checked as a part of the document, and all that they refer to is
    // included.
    builder.finish(Type::Def(places[root.0 as usize])).unwrap_or_else(|_| all.with_root(root))
}

fn each_reference(def: &mut Def, visit: &mut impl FnMut(&mut DefId)) {
    match &mut def.kind {
        DefKind::Struct { base, members } => {
            base.iter_mut().for_each(&mut *visit);
            members.iter_mut().for_each(|m| each_reference_of(&mut m.ty, visit));
        }
        DefKind::Union { discriminator, cases, .. } => {
            each_reference_of(discriminator, visit);
            cases.iter_mut().for_each(|c| each_reference_of(&mut c.member.ty, visit));
        }
        DefKind::Bitset { base, fields } => {
            base.iter_mut().for_each(&mut *visit);
            fields.iter_mut().for_each(|f| each_reference_of(&mut f.ty, visit));
        }
        DefKind::Alias { target } => each_reference_of(target, visit),
        DefKind::Enum { .. } | DefKind::Bitmask { .. } => {}
    }
}

fn each_reference_of(ty: &mut Type, visit: &mut impl FnMut(&mut DefId)) {
    match ty {
        Type::Def(id) => visit(id),
        Type::Sequence { element, .. } | Type::Array { element, .. } => each_reference_of(element, visit),
        Type::Map { key, value, .. } => {
            each_reference_of(key, visit);
            each_reference_of(value, visit);
        }
        _ => {}
    }
}
