//! Computes the verdict when a writer and a reader have different types.

use alloc::{
    collections::{BTreeSet, VecDeque},
    format,
    string::{String, ToString},
    vec::Vec,
};

use super::{
    CasePair, CaseStep, Condition, Conflict, Pair, Policy, Reason, Rules, ScalarStep, Verdict, case_steps,
    has_absent_value, pair_fields, pair_flags, pair_literals, pair_members, strict,
};
use crate::schema::{
    Def, DefId, DefKind, Member, Schema, TryConstruct, Type, array_shape, builder::part_count, holder_bits,
};

/// Largest number of reasons or conditions in a verdict; more would not be read.
const MAX_FINDINGS: usize = 64;

/// Largest number of members, cases, literals, flags and fields that are compared. Two schemas
/// within their limits can have far more pairs than any real evolution of a type.
const MAX_COMPARED: usize = 1 << 18;

/// Checks whether a reader with `reader`'s root understands a writer with `writer`'s root.
///
/// ```
/// use polywire_core::schema::{Def, Member, SchemaBuilder, Type};
/// use polywire_core::schema::evolve::{Verdict, assess};
///
/// let probe = |load: Type| {
///     let mut types = SchemaBuilder::new();
///     let id = types.add(Def::structure("Probe", vec![Member::new("load", load)]));
///     types.finish(Type::Def(id)).unwrap()
/// };
/// assert_eq!(assess(&probe(Type::Float32), &probe(Type::Float64)), Verdict::Always);
/// let verdict = assess(&probe(Type::Float64), &probe(Type::Float32));
/// assert_eq!(verdict.to_string(), "refused\n  load: the writer has double, the reader float\n    \
///     to fix it: make the reader's type double");
/// ```
pub fn assess(writer: &Schema, reader: &Schema) -> Verdict {
    assess_with(writer, reader, Rules::default())
}

/// Like [`assess`], with other rules.
pub fn assess_with(writer: &Schema, reader: &Schema, rules: Rules) -> Verdict {
    if writer.type_hash() == reader.type_hash() {
        return Verdict::Always;
    }
    let mut walk = Walk {
        writer,
        reader,
        rules,
        places: Vec::new(),
        queue: VecDeque::new(),
        seen: BTreeSet::new(),
        compared: 0,
        reasons: Vec::new(),
        conditions: Vec::new(),
    };
    walk.run();
    match (walk.reasons.is_empty(), walk.conditions.is_empty()) {
        (false, _) => Verdict::Refused(walk.reasons),
        (true, false) => Verdict::PerValue(walk.conditions),
        (true, true) => Verdict::Always,
    }
}

/// Walks over pairs of corresponding definitions. It uses a queue instead of recursion, so neither
/// recursive types nor deep ones matter, and visits each pair once.
struct Walk<'a> {
    writer: &'a Schema,
    reader: &'a Schema,
    rules: Rules,
    /// Paths, as steps with an index of the parent. A path becomes text only when it is reported.
    places: Vec<Place<'a>>,
    queue: VecDeque<(DefId, DefId, Context)>,
    seen: BTreeSet<(DefId, DefId, Surroundings)>,
    compared: usize,
    reasons: Vec<Reason>,
    conditions: Vec<Condition>,
}

struct Place<'a> {
    parent: Option<usize>,
    step: PathStep<'a>,
}

#[derive(Clone, Copy)]
enum PathStep<'a> {
    Member(&'a str),
    Element,
    Key,
    Discriminator,
}

/// The place of a pair of types.
#[derive(Clone, Copy)]
struct Context {
    place: Option<usize>,
    around: Surroundings,
}

/// The properties of the place that affect the verdict, in addition to the types.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Surroundings {
    /// `@try_construct` of the surrounding member.
    trim: bool,
    use_default: bool,
    /// The value is part of a topic's key, so its bytes identify an instance.
    in_key: bool,
    /// The value is a map key or discriminator, for which no other value can be substituted.
    selects: bool,
}

impl Surroundings {
    fn of(member: &Member, in_key: bool) -> Surroundings {
        Surroundings {
            trim: member.try_construct == TryConstruct::Trim,
            use_default: member.try_construct == TryConstruct::UseDefault,
            in_key,
            selects: false,
        }
    }

    fn policy(self, trimmable: bool) -> Policy {
        match self {
            Surroundings { trim: true, selects: false, .. } if trimmable => Policy::Trim,
            Surroundings { use_default: true, .. } => Policy::UseDefault,
            _ => Policy::Discard,
        }
    }
}

impl<'a> Walk<'a> {
    fn run(&mut self) {
        let around = Surroundings { trim: false, use_default: false, in_key: false, selects: false };
        self.types(self.writer.root(), self.reader.root(), Context { place: None, around });
        while let Some((w, r, at)) = self.queue.pop_front() {
            self.definitions(w, r, at);
            if self.compared > MAX_COMPARED {
                self.queue.clear();
                let text = format!("more than {MAX_COMPARED} parts to compare");
                self.refuse(None, text.clone(), text, "split the type");
            }
        }
    }

    fn types(&mut self, writer: &'a Type, reader: &'a Type, at: Context) {
        let (w, r) = (self.writer.resolve(writer), self.reader.resolve(reader));
        match (w, r) {
            (Type::String { bound: w }, Type::String { bound: r })
            | (Type::WString { bound: w }, Type::WString { bound: r }) => self.bounds("strings", *w, *r, at),
            (Type::Sequence { element: w, bound: wb }, Type::Sequence { element: r, bound: rb }) => {
                self.bounds("sequences", *wb, *rb, at);
                let below = self.below(at, PathStep::Element);
                self.types(w, r, below);
            }
            (Type::Map { key: wk, value: w, bound: wb }, Type::Map { key: rk, value: r, bound: rb }) => {
                self.bounds("maps", *wb, *rb, at);
                let mut key = self.below(at, PathStep::Key);
                key.around = Surroundings { selects: true, use_default: false, ..key.around };
                self.types(wk, rk, key);
                let below = self.below(at, PathStep::Element);
                self.types(w, r, below);
            }
            (Type::Array { .. }, Type::Array { .. }) => self.arrays(w, r, at),
            (Type::Def(w), Type::Def(r)) => self.enqueue(*w, *r, at),
            _ => self.scalars(w, r, at),
        }
    }

    fn scalars(&mut self, w: &'a Type, r: &'a Type, at: Context) {
        let step = ScalarStep::of(w, r);
        let changes_key = at.around.in_key && step != ScalarStep::Refused;
        if step == ScalarStep::Same || !(step == ScalarStep::Refused || changes_key || self.rules.strict_xtypes) {
            return;
        }
        let (writer, reader) = (self.writer.type_name(w), self.reader.type_name(r));
        let fix = format!("make the reader's type {writer}");
        match changes_key {
            true => self.refuse(at.place, format!("a key of type {writer}"), format!("one of type {reader}"), fix),
            false => self.refuse(at.place, writer, reader, fix),
        }
    }

    fn bounds(&mut self, what: &str, writer: u32, reader: u32, at: Context) {
        if reader == 0 || (writer != 0 && writer <= reader) {
            return;
        }
        let text = format!("{what} longer than {reader}");
        self.condition(at.place, text, at.around.policy(true));
    }

    fn arrays(&mut self, w: &'a Type, r: &'a Type, at: Context) {
        let ((w_element, w_dims), (r_element, r_dims)) = (array_shape(self.writer, w), array_shape(self.reader, r));
        if w_dims != r_dims {
            let fix =
                format!("make the reader's dimensions {}, or use a sequence on both sides", dims_in_words(&w_dims));
            return self.refuse(at.place, dims_in_words(&w_dims), dims_in_words(&r_dims), fix);
        }
        let below = self.below(at, PathStep::Element);
        self.types(w_element, r_element, below);
    }

    fn enqueue(&mut self, w: DefId, r: DefId, mut at: Context) {
        let is_struct = |schema: &Schema, id| matches!(schema.def(id).kind, DefKind::Struct { .. });
        if is_struct(self.writer, w) && is_struct(self.reader, r) {
            // Annotations around a structure do not affect its members, except for being part of a
            // key.
            at.around = Surroundings { trim: false, use_default: false, selects: false, ..at.around };
        }
        if self.seen.insert((w, r, at.around)) {
            self.queue.push_back((w, r, at));
        }
    }

    fn definitions(&mut self, w: DefId, r: DefId, at: Context) {
        let (writer, reader) = (self.writer.def(w), self.reader.def(r));
        let parts = |schema: &Schema, id| match schema.def(id) {
            Def { kind: DefKind::Struct { .. }, .. } => schema.members(id).len(),
            def => part_count(def),
        };
        self.compared += 1 + parts(self.writer, w) + parts(self.reader, r);
        if self.rules.strict_xtypes {
            self.tell(at.place, strict::definitions(writer, reader));
        }
        match (&writer.kind, &reader.kind) {
            (DefKind::Struct { .. }, DefKind::Struct { .. }) => self.structures(w, r, at),
            (DefKind::Union { discriminator: wd, key: wk, .. }, DefKind::Union { discriminator: rd, key: rk, .. }) => {
                if wk != rk {
                    self.refuse(at.place, key_in_words(*wk), key_in_words(*rk), key_fix("discriminator", *wk));
                }
                self.discriminators(wd, rd, *wk, at);
                self.cases(w, r, at);
            }
            (DefKind::Enum { bit_bound: wb, .. }, DefKind::Enum { bit_bound: rb, .. }) => {
                self.key_bytes(*wb, *rb, at);
                self.literals(w, r, at);
            }
            (DefKind::Bitmask { bit_bound: wb, .. }, DefKind::Bitmask { bit_bound: rb, .. }) => {
                self.key_bytes(*wb, *rb, at);
                let rows = pair_flags(self.writer, w, self.reader, r);
                self.bits(rows.map(|rows| lost(&rows)), at);
            }
            (DefKind::Bitset { .. }, DefKind::Bitset { .. }) => {
                let rows = pair_fields(self.writer, w, self.reader, r);
                self.bits(rows.map(|rows| lost(&rows)), at);
            }
            _ => {
                let in_words = |def: &Def| format!("{} {}", def.kind_name(), def.name);
                let fix = format!("make the reader's type a {}", writer.kind_name());
                self.refuse(at.place, in_words(writer), in_words(reader), fix);
            }
        }
    }

    fn structures(&mut self, w: DefId, r: DefId, at: Context) {
        let pairs = match pair_members(self.writer, w, self.reader, r) {
            Ok(pairs) => pairs,
            Err(conflict) => return self.tell(at.place, [conflict]),
        };
        let has_keys =
            pairs.iter().any(|p| p.reader.is_some_and(|(_, m)| m.key) || p.writer.is_some_and(|(_, m)| m.key));
        if self.rules.strict_xtypes {
            self.tell(at.place, strict::members(self.writer.def(w), &pairs));
        }
        if is_unrelated(&pairs) {
            let name = |schema: &Schema, id| format!("struct {}", schema.def(id).name);
            let fix = "the two have no member in common: check the topic and the type";
            return self.refuse(at.place, name(self.writer, w), name(self.reader, r), fix);
        }
        for pair in pairs {
            let around_key = at.around.in_key && !has_keys;
            match (pair.writer, pair.reader) {
                (Some((_, writer)), Some((_, reader))) => self.members(writer, reader, around_key, at),
                (Some((_, writer)), None) => self.removed(writer, around_key, at),
                (None, Some((_, reader))) => self.added(reader, around_key, at),
                (None, None) => {}
            }
        }
    }

    fn members(&mut self, writer: &'a Member, reader: &'a Member, around_key: bool, at: Context) {
        let place = self.place(at.place, PathStep::Member(&reader.name));
        if writer.key != reader.key {
            self.refuse(place, key_in_words(writer.key), key_in_words(reader.key), key_fix("member", writer.key));
        }
        if writer.optional && !reader.optional && reader.default.is_none() {
            let policy = if has_absent_value(reader) { Policy::UseDefault } else { Policy::Discard };
            self.condition(place, "values without this member".to_string(), policy);
        }
        let around = Surroundings::of(reader, around_key || reader.key);
        self.types(&writer.ty, &reader.ty, Context { place, around });
    }

    fn removed(&mut self, writer: &'a Member, around_key: bool, at: Context) {
        let place = self.place(at.place, PathStep::Member(&writer.name));
        let back = format!("add '{}' to the reader", writer.name);
        match writer {
            _ if writer.key || around_key => self.refuse(place, "a member of the key", "none", back),
            Member { must_understand: true, optional: true, .. } => {
                self.condition(place, "values with this @must_understand member".to_string(), Policy::Discard);
            }
            Member { must_understand: true, .. } => self.refuse(place, "a @must_understand member", "none", back),
            _ => {}
        }
    }

    fn added(&mut self, reader: &'a Member, around_key: bool, at: Context) {
        let place = self.place(at.place, PathStep::Member(&reader.name));
        match reader {
            _ if reader.key || around_key => {
                self.refuse(
                    place,
                    "none",
                    "a member of the key",
                    format!("drop '{}' from the reader's key", reader.name),
                );
            }
            Member { must_understand: true, optional: false, .. } => {
                let fix = format!("make '{}' @optional or drop its @must_understand", reader.name);
                self.refuse(place, "none", "a @must_understand member", fix);
            }
            _ => {}
        }
    }

    fn discriminators(&mut self, writer: &'a Type, reader: &'a Type, key: bool, at: Context) {
        let mut below = self.below(at, PathStep::Discriminator);
        below.around = Surroundings { selects: true, in_key: at.around.in_key || key, ..below.around };
        self.types(writer, reader, below);
    }

    fn cases(&mut self, w: DefId, r: DefId, at: Context) {
        let mut seen = BTreeSet::new();
        for (row, step) in case_steps(self.writer, w, self.reader, r) {
            let CasePair { label, writer: Some((wi, writer)), reader } = row else { continue };
            match (step, reader) {
                (CaseStep::Same, Some((ri, reader))) if seen.insert((wi, ri)) => {
                    let place = self.place(at.place, PathStep::Member(&reader.member.name));
                    let around = Surroundings::of(&reader.member, at.around.in_key);
                    self.types(&writer.member.ty, &reader.member.ty, Context { place, around });
                }
                (CaseStep::Unknown, _) => {
                    let name = &writer.member.name;
                    let text = match label {
                        Some(label) => format!("the case '{name}' of discriminator {label}"),
                        None => format!("the default case '{name}'"),
                    };
                    self.condition(at.place, text, at.around.policy(false));
                }
                _ => {}
            }
        }
    }

    fn literals(&mut self, w: DefId, r: DefId, at: Context) {
        let rows = match pair_literals(self.writer, w, self.reader, r) {
            Ok(rows) => rows,
            Err(conflict) => return self.tell(at.place, [conflict]),
        };
        let marked = rows.iter().any(|row| row.reader.is_some_and(|(_, l)| l.is_default));
        let policy = match at.around.policy(false) {
            Policy::Discard if marked && !at.around.selects => Policy::DefaultLiteral,
            policy => policy,
        };
        for row in rows {
            if let (Some((_, literal)), None) = (row.writer, row.reader) {
                self.condition(at.place, format!("the literal '{}' ({})", literal.name, literal.value), policy);
            }
        }
    }

    /// Reports flags or fields that the reader lacks. They are cleared, which a key does not allow.
    fn bits(&mut self, lost: Result<usize, Conflict>, at: Context) {
        match lost {
            Err(conflict) => self.tell(at.place, [conflict]),
            Ok(1..) if at.around.in_key => {
                self.refuse(
                    at.place,
                    "bits of the key",
                    "not all of them",
                    "add the missing flags or fields to the reader",
                );
            }
            Ok(_) => {}
        }
    }

    fn key_bytes(&mut self, writer: u8, reader: u8, at: Context) {
        if at.around.in_key && holder_bits(writer) != holder_bits(reader) {
            let in_words = |bits: u8| format!("a key of @bit_bound({bits})");
            self.refuse(
                at.place,
                in_words(writer),
                in_words(reader),
                format!("give the reader's @bit_bound({writer})"),
            );
        }
    }

    fn tell(&mut self, place: Option<usize>, conflicts: impl IntoIterator<Item = Conflict>) {
        for Conflict { writer, reader, fix } in conflicts {
            self.refuse(place, writer, reader, fix);
        }
    }

    fn refuse(
        &mut self,
        place: Option<usize>,
        writer: impl Into<String>,
        reader: impl Into<String>,
        fix: impl Into<String>,
    ) {
        if self.reasons.len() < MAX_FINDINGS {
            let path = self.path(place);
            self.reasons.push(Reason { path, writer: writer.into(), reader: reader.into(), fix: fix.into() });
        }
    }

    fn condition(&mut self, place: Option<usize>, text: String, policy: Policy) {
        if self.conditions.len() < MAX_FINDINGS {
            let path = self.path(place);
            self.conditions.push(Condition { path, text, policy });
        }
    }

    fn below(&mut self, at: Context, step: PathStep<'a>) -> Context {
        Context { place: self.place(at.place, step), ..at }
    }

    fn place(&mut self, parent: Option<usize>, step: PathStep<'a>) -> Option<usize> {
        self.places.push(Place { parent, step });
        Some(self.places.len() - 1)
    }

    fn path(&self, mut place: Option<usize>) -> String {
        let mut steps = Vec::new();
        while let Some(Place { parent, step }) = place.map(|i| &self.places[i]) {
            steps.push(step);
            place = *parent;
        }
        let mut path = String::new();
        for step in steps.into_iter().rev() {
            match step {
                PathStep::Member(name) if path.is_empty() => path.push_str(name),
                PathStep::Member(name) => path.extend([".", name]),
                PathStep::Element => path.push_str("[]"),
                PathStep::Key => path.push_str("{key}"),
                PathStep::Discriminator => path.push_str("(discriminator)"),
            }
        }
        path
    }
}

/// The number of parts that the reader lacks.
fn lost<T>(pairs: &[Pair<'_, T>]) -> usize {
    pairs.iter().filter(|pair| pair.reader.is_none()).count()
}

/// Returns whether both have members but none in common: the reader would receive only defaults.
fn is_unrelated(pairs: &[Pair<'_, Member>]) -> bool {
    let any = |of: fn(&Pair<'_, Member>) -> bool| pairs.iter().any(of);
    any(|p| p.writer.is_some()) && any(|p| p.reader.is_some()) && !any(|p| p.writer.is_some() && p.reader.is_some())
}

fn key_in_words(key: bool) -> &'static str {
    if key { "a @key" } else { "no @key" }
}

fn key_fix(what: &str, writer_has_it: bool) -> String {
    match writer_has_it {
        true => format!("add @key to the reader's {what}"),
        false => format!("drop @key from the reader's {what}"),
    }
}

fn dims_in_words(dims: &[u32]) -> String {
    dims.iter().map(|dim| format!("[{dim}]")).collect()
}
