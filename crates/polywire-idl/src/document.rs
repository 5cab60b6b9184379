//! What a file amounts to.

use std::collections::HashSet;

use polywire_core::schema::{Def, DefId, DefKind, Literal, Schema, SchemaBuilder, Type};

use crate::check::Checked;
use crate::diag::{Diagnostics, closest};

/// A constant with its value.
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
    /// Scoped name, `Module::NAME`.
    pub name: String,
    /// Type; references are to the document's schema.
    pub ty: Type,
    /// The value, as a constant of that type.
    pub value: Literal,
    /// The comment in front of it.
    pub doc: String,
}

/// Everything that a file and the files it includes define.
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
    own: HashSet<String>,
    warnings: Diagnostics,
}

/// Why there is no type of a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LookupError {
    /// No definition is called so.
    #[error("there is no type '{name}'{}", meant.as_ref().map(|m| format!("; did you mean '{m}'?")).unwrap_or_default())]
    Unknown {
        /// What was asked for.
        name: String,
        /// The scoped name that was probably meant.
        meant: Option<String>,
    },
    /// Several definitions end so.
    #[error("'{name}' may be '{}'", candidates.join("' or '"))]
    Ambiguous {
        /// What was asked for.
        name: String,
        /// The scoped names of those.
        candidates: Vec<String>,
    },
}

impl Document {
    pub(crate) fn new(checked: Checked, warnings: Diagnostics) -> Document {
        let Checked { schema: all, constants, own } = checked;
        Document { all, constants, own, warnings }
    }

    /// All definitions in the order of the file. The root is the last type that can be a topic's;
    /// if there is none, the last definition; if there is none, `octet`.
    pub fn definitions(&self) -> &Schema {
        &self.all
    }

    /// The constants in the order of the file.
    pub fn constants(&self) -> &[Constant] {
        &self.constants
    }

    /// What the compiler wondered about.
    pub fn warnings(&self) -> &Diagnostics {
        &self.warnings
    }

    /// The structures and unions that are not `@nested`: those that can be a topic's type.
    pub fn topic_types(&self) -> impl Iterator<Item = &Def> {
        let topic = |d: &&Def| !d.nested && matches!(d.kind, DefKind::Struct { .. } | DefKind::Union { .. });
        self.all.defs().iter().filter(topic)
    }

    /// Those of [`Document::topic_types`] that the file itself defines; if it defines none, those
    /// of the files that it includes.
    pub fn own_topic_types(&self) -> impl Iterator<Item = &Def> {
        let none = !self.topic_types().any(|def| self.own.contains(&def.name));
        self.topic_types().filter(move |def| none || self.own.contains(&def.name))
    }

    /// The definition of that name: the scoped name, or as much of its end as tells it from all
    /// others. `/` and `.` serve for `::`.
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

    /// The schema of the type of that name, with just the definitions it needs. Names as in
    /// [`Document::find`].
    pub fn schema(&self, name: &str) -> Result<Schema, LookupError> {
        self.find(name).map(|id| reachable(&self.all, id))
    }
}

/// The schema of `root` with the definitions it needs, in their order.
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
    // A part of a checked table, closed under references, cannot fail a check.
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
