//! Random schemas and random evolutions of them; each is determined by a seed.

use std::collections::BTreeSet;

use polywire_core::schema::{
    Annotation, AutoId, BitField, Case, Def, DefId, DefKind, EnumLiteral, Extensibility, Flag, Literal, Member, Schema,
    SchemaBuilder, TryConstruct, Type, arbitrary::Random, array_len, holder_bits,
};

/// A random schema with at most `size` definitions of all kinds, some of them recursive. Its root
/// is a structure. It has gone through its own encoding: it has no unreachable definitions, and
/// they are in the order of first mention.
///
/// # Panics
/// If the result is not a valid schema, which is a bug of this function.
pub fn random_schema(seed: u64, size: usize) -> Schema {
    let mut maker = Maker { random: Random::new(seed), defs: Vec::new(), size: size.max(1), names: 0 };
    while maker.defs.len() + 1 < maker.size {
        let made = maker.def();
        maker.defs.push(made);
    }
    let root = maker.structure();
    maker.defs.push(root);
    let mut builder = SchemaBuilder::new();
    let ids: Vec<DefId> = maker.defs.into_iter().map(|made| builder.add(made.def)).collect();
    let schema = builder.finish(Type::Def(ids[ids.len() - 1])).expect("a random schema is a schema");
    let bytes = schema.to_bytes_with_docs();
    Schema::from_bytes(&bytes, &Default::default()).expect("an encoded schema can be read")
}

/// A definition, with the measures that limit its use inside others.
struct Made {
    def: Def,
    /// Number of scalar values in a value; arrays multiply.
    weight: usize,
    /// Nesting depth of definitions.
    depth: usize,
}

const MAX_WEIGHT: usize = 64;
const MAX_DEPTH: usize = 6;

struct Maker {
    random: Random,
    defs: Vec<Made>,
    size: usize,
    names: u32,
}

impl Maker {
    fn def(&mut self) -> Made {
        match self.random.below(9) {
            0 | 1 => self.enumeration(),
            2 => self.bitmask(),
            3 => self.bitset(),
            4 => self.union(),
            5 => self.alias(),
            _ => self.structure(),
        }
    }

    fn made(&mut self, prefix: &str, kind: DefKind, weight: usize, depth: usize) -> Made {
        let mut def = Def::structure(self.name(prefix), Vec::new());
        def.kind = kind;
        def.extensibility =
            *self.random.choose(&[Extensibility::Final, Extensibility::Appendable, Extensibility::Mutable]);
        def.nested = self.random.one_in(3);
        def.auto_id = if self.random.one_in(3) { AutoId::Hash } else { AutoId::Sequential };
        def.annotations = self.annotations();
        def.doc = self.doc();
        Made { def, weight, depth }
    }

    fn structure(&mut self) -> Made {
        let is_base = |made: &Made| matches!(made.def.kind, DefKind::Struct { .. });
        let base = if self.random.one_in(4) { self.earlier(is_base) } else { None };
        let (mut weight, mut depth) = base.map_or((0, 0), |id| self.measure(id));
        let mut members = Vec::new();
        for _ in 0..self.random.below(6) + usize::from(base.is_none()) {
            let (member, own_weight, own_depth) = self.member();
            weight += own_weight;
            depth = depth.max(own_depth);
            members.push(member);
        }
        self.made("S", DefKind::Struct { base, members }, weight, depth + 1)
    }

    fn member(&mut self) -> (Member, usize, usize) {
        let (ty, weight, depth) = self.ty(3);
        let mut member = Member::new(self.name("m"), ty);
        if self.random.one_in(4) {
            // Explicit ids lie far above counted ids, and their distance exceeds the number of
            // members between.
            member.explicit_id = Some(100_000 + 16 * self.names);
        }
        member.optional = self.random.one_in(4);
        member.external = self.random.one_in(6);
        member.key = !member.optional && self.random.one_in(6);
        member.must_understand = self.random.one_in(6);
        member.try_construct =
            *self.random.choose(&[TryConstruct::Discard, TryConstruct::UseDefault, TryConstruct::Trim]);
        member.default = if self.random.one_in(3) { self.literal_of(&member.ty) } else { None };
        member.annotations = self.annotations();
        member.doc = self.doc();
        (member, weight, depth)
    }

    fn union(&mut self) -> Made {
        let (discriminator, mut labels) = self.discriminator();
        let (mut cases, mut weight, mut depth) = (Vec::new(), 1, 1);
        while !labels.is_empty() && cases.len() < 4 {
            let own = labels.split_off(labels.len() - 1 - self.random.below(labels.len().min(2)));
            let (member, own_weight, own_depth) = self.case_member();
            cases.push(Case { labels: own, is_default: false, member });
            weight += own_weight;
            depth = depth.max(own_depth);
        }
        // If every value were a label, nothing would select a default case.
        let may_be_full = labels.is_empty() && matches!(discriminator, Type::Bool | Type::Def(_));
        if self.random.one_in(2) && !may_be_full {
            let (member, own_weight, own_depth) = self.case_member();
            cases.push(Case { labels: labels.clone(), is_default: true, member });
            weight += own_weight;
            depth = depth.max(own_depth);
        }
        let key = self.random.one_in(4);
        self.made("U", DefKind::Union { discriminator, key, cases }, weight, depth + 1)
    }

    fn case_member(&mut self) -> (Member, usize, usize) {
        let (mut member, weight, depth) = self.member();
        (member.optional, member.key, member.must_understand) = (false, false, false);
        (member, weight, depth)
    }

    /// A discriminator type, and values to use as labels.
    fn discriminator(&mut self) -> (Type, Vec<i64>) {
        let is_enum = |made: &Made| matches!(made.def.kind, DefKind::Enum { .. });
        if self.random.one_in(2)
            && let Some(id) = self.earlier(is_enum)
            && let DefKind::Enum { literals, .. } = &self.defs[id.0 as usize].def.kind
        {
            return (Type::Def(id), literals.iter().map(|l| l.value.into()).collect());
        }
        match self.random.below(6) {
            0 => (Type::Bool, vec![0, 1]),
            1 => (Type::Char8, vec![65, 66, 200]),
            2 => (Type::Uint8, vec![0, 3, 255]),
            3 => (Type::Int16, vec![-300, 7]),
            4 => (Type::Uint64, vec![i64::MAX, 2, 1]),
            _ => (Type::Int32, vec![-1, 0, 1, 70_000]),
        }
    }

    fn enumeration(&mut self) -> Made {
        let bit_bound = 1 + self.random.below(32) as u8;
        let (least, most) = enum_range(bit_bound);
        let (mut literals, mut values) = (Vec::new(), BTreeSet::new());
        for _ in 0..1 + self.random.below(5) {
            let value = self.random.below((most - least) as usize) as i64 + least;
            let value = if self.random.one_in(3) { value } else { most.min(values.len() as i64) };
            if values.insert(value) {
                let mut literal = EnumLiteral::new(self.name("l"), value as i32);
                literal.annotations = self.annotations();
                literals.push(literal);
            }
        }
        if self.random.one_in(3) {
            let marked = self.random.below(literals.len());
            literals[marked].is_default = true;
        }
        self.made("E", DefKind::Enum { bit_bound, literals }, 1, 1)
    }

    fn bitmask(&mut self) -> Made {
        let bit_bound = 1 + self.random.below(64) as u8;
        let positions: BTreeSet<u8> = (0..4).map(|_| self.random.below(bit_bound.into()) as u8).collect();
        let mut flags = Vec::new();
        for position in positions {
            flags.push(Flag { name: self.name("f"), position, annotations: self.annotations() });
        }
        self.made("M", DefKind::Bitmask { bit_bound, flags }, 1, 1)
    }

    fn bitset(&mut self) -> Made {
        let is_base = |made: &Made| matches!(&made.def.kind, DefKind::Bitset { base: None, .. });
        let base = if self.random.one_in(3) { self.earlier(is_base) } else { None };
        let mut fields = Vec::new();
        for _ in 0..1 + self.random.below(3) {
            let mut field = BitField::new(self.name("b"), 1 + self.random.below(10) as u8);
            field.name = field.name.filter(|_| !self.random.one_in(5));
            field.annotations = self.annotations();
            fields.push(field);
        }
        self.made("B", DefKind::Bitset { base, fields }, 1, 1)
    }

    fn alias(&mut self) -> Made {
        let (target, weight, depth) = self.ty(2);
        self.made("A", DefKind::Alias { target }, weight, depth + 1)
    }

    /// A type with at most `levels` nested collections, its weight and its depth.
    fn ty(&mut self, levels: usize) -> (Type, usize, usize) {
        match self.random.below(12) {
            0 => (Type::String { bound: self.bound() }, 1, 1),
            1 => (Type::WString { bound: self.bound() }, 1, 1),
            2 if levels > 0 => (Type::Sequence { element: self.element(levels).into(), bound: self.bound() }, 1, 1),
            3 if levels > 0 => {
                let key = self.map_key();
                (Type::Map { key: key.into(), value: self.element(levels).into(), bound: self.bound() }, 1, 1)
            }
            4 if levels > 0 => {
                let (element, weight, depth) = self.ty(levels - 1);
                let dims: Vec<u32> = (0..1 + self.random.below(2)).map(|_| 1 + self.random.below(3) as u32).collect();
                let weight = weight * array_len(&dims).unwrap_or(1);
                (Type::array(element, dims), weight, depth + 1)
            }
            5..=7 => match self.earlier(|_| true) {
                Some(id) => {
                    let (weight, depth) = self.measure(id);
                    (Type::Def(id), weight, depth)
                }
                None => (self.primitive(), 1, 1),
            },
            _ => (self.primitive(), 1, 1),
        }
    }

    /// An element of a sequence or map. It may prefix back to the root.
    fn element(&mut self, levels: usize) -> Type {
        if self.random.one_in(8) {
            return Type::Def(DefId(self.size as u32 - 1));
        }
        self.ty(levels - 1).0
    }

    fn map_key(&mut self) -> Type {
        let is_enum = |made: &Made| matches!(made.def.kind, DefKind::Enum { .. });
        match (self.random.below(4), self.earlier(is_enum)) {
            (0, Some(id)) => Type::Def(id),
            (1, _) => Type::String { bound: self.bound() },
            _ => self
                .random
                .choose(&[Type::Bool, Type::Octet, Type::Int8, Type::Uint32, Type::Int64, Type::Uint64, Type::Char8])
                .clone(),
        }
    }

    fn primitive(&mut self) -> Type {
        self.random.choose(&Type::PRIMITIVES).clone()
    }

    fn bound(&mut self) -> u32 {
        if self.random.one_in(3) { 1 + self.random.below(20) as u32 } else { 0 }
    }

    /// An earlier definition that is small enough to be part of another.
    fn earlier(&mut self, wanted: impl Fn(&Made) -> bool) -> Option<DefId> {
        let fits = |made: &Made| made.weight <= MAX_WEIGHT && made.depth <= MAX_DEPTH && wanted(made);
        let ids: Vec<usize> = (0..self.defs.len()).filter(|i| fits(&self.defs[*i])).collect();
        if ids.is_empty() { None } else { Some(DefId(*self.random.choose(&ids) as u32)) }
    }

    fn measure(&self, id: DefId) -> (usize, usize) {
        let made = &self.defs[id.0 as usize];
        (made.weight, made.depth)
    }

    /// A random constant of type `ty`, if the type has constants.
    fn literal_of(&mut self, ty: &Type) -> Option<Literal> {
        Some(match ty {
            Type::Bool => Literal::Bool(self.random.one_in(2)),
            Type::Octet | Type::Uint8 => Literal::Int(self.random.bits() as u8 as i128),
            Type::Int8 => Literal::Int(self.random.bits() as i8 as i128),
            Type::Int16 => Literal::Int(self.random.bits() as i16 as i128),
            Type::Uint16 => Literal::Int(self.random.bits() as u16 as i128),
            Type::Int32 => Literal::Int(self.random.bits() as i32 as i128),
            Type::Uint32 => Literal::Int(self.random.bits() as u32 as i128),
            Type::Int64 => Literal::Int(self.random.bits() as i64 as i128),
            Type::Uint64 => Literal::Int(self.random.bits() as i128),
            Type::Float32 => Literal::Float(f64::from(self.random.bits() as i16) / 8.0),
            Type::Float64 | Type::Float128 => Literal::Float(self.random.bits() as f64 / 3.0),
            Type::Char8 => Literal::Char(self.random.below(128) as u32),
            Type::Char16 => Literal::Char(self.random.below(0xD800) as u32),
            Type::String { bound: 0 | 10.. } | Type::WString { bound: 0 | 10.. } => {
                Literal::String(format!("é{}", self.random.below(1000)))
            }
            Type::Def(id) => match &self.defs.get(id.0 as usize)?.def.kind {
                DefKind::Enum { literals, .. } => Literal::Enum(self.random.choose(literals).name.clone()),
                DefKind::Bitmask { .. } => Literal::Int(self.random.below(2) as i128),
                _ => return None,
            },
            _ => return None,
        })
    }

    fn annotations(&mut self) -> Vec<Annotation> {
        if !self.random.one_in(6) {
            return Vec::new();
        }
        let value = match self.random.below(5) {
            0 => Literal::String(String::from("m/s")),
            1 => Literal::Int(-i128::from(self.random.bits())),
            2 => Literal::Float(0.1),
            3 => Literal::Char(0x20AC),
            _ => Literal::Enum(String::from("Scope::NAME")),
        };
        let name = String::from(*self.random.choose(&["unit", "min", "vendor::note"]));
        vec![Annotation { name, args: vec![(String::from("value"), value)] }]
    }

    fn doc(&mut self) -> String {
        if self.random.one_in(5) { String::from("What it is good for.") } else { String::new() }
    }

    fn name(&mut self, prefix: &str) -> String {
        self.names += 1;
        match prefix.chars().all(char::is_uppercase) && self.random.one_in(3) {
            true => format!("Random::{prefix}{}", self.names),
            false => format!("{prefix}{}", self.names),
        }
    }
}

/// A later version of a type, as its owner might make it: members moved, added, removed, widened or
/// made optional, bounds raised, literals added. [`assess`](polywire_core::schema::evolve::assess)
/// decides whether readers and writers of the two versions understand each other; most do, in at
/// least one direction.
pub fn random_evolution(seed: u64, schema: &Schema) -> Schema {
    let attempt = |salt: u64| {
        let mut evolution = Evolution { random: Random::new(seed ^ salt.rotate_right(8)), names: 0 };
        let mut builder = SchemaBuilder::new();
        schema.defs().iter().for_each(|def| {
            builder.add(evolution.def(def.clone()));
        });
        builder.finish(schema.root().clone()).ok()
    };
    // Moved members may get an id that another member has. Then the next attempt makes other
    // changes.
    (0..16).find_map(attempt).unwrap_or_else(|| schema.clone())
}

struct Evolution {
    random: Random,
    names: u32,
}

impl Evolution {
    fn def(&mut self, mut def: Def) -> Def {
        match &mut def.kind {
            DefKind::Struct { members, .. } => self.members(members),
            DefKind::Union { cases, .. } => cases.iter_mut().for_each(|case| self.widen(&mut case.member)),
            DefKind::Enum { bit_bound, literals } if self.random.one_in(3) => {
                let taken: BTreeSet<i32> = literals.iter().map(|l| l.value).collect();
                let last = enum_range(*bit_bound).1 as i32;
                if let Some(value) = (0..=last).find(|value| !taken.contains(value)) {
                    literals.push(EnumLiteral::new(self.name(), value));
                }
            }
            _ => {}
        }
        def
    }

    fn members(&mut self, members: &mut Vec<Member>) {
        members.iter_mut().for_each(|member| self.widen(member));
        if members.len() > 1 && self.random.one_in(3) {
            members.remove(self.random.below(members.len()));
        }
        if members.len() > 1 && self.random.one_in(3) {
            let (from, to) = (self.random.below(members.len()), self.random.below(members.len()));
            members.swap(from, to);
        }
        if self.random.one_in(3) {
            let ty =
                self.random.choose(&[Type::Int32, Type::Float64, Type::string(), Type::sequence(Type::Octet)]).clone();
            let mut member = Member::new(self.name(), ty);
            member.default = Some(Literal::Int(42)).filter(|_| matches!(member.ty, Type::Int32 | Type::Float64));
            members.insert(self.random.below(members.len() + 1), member);
        }
    }

    fn widen(&mut self, member: &mut Member) {
        if member.key || !self.random.one_in(3) {
            return;
        }
        match &mut member.ty {
            Type::String { bound }
            | Type::WString { bound }
            | Type::Sequence { bound, .. }
            | Type::Map { bound, .. } => *bound *= 2,
            ty => *ty = wider(ty),
        }
    }

    fn name(&mut self) -> String {
        self.names += 1;
        format!("new{}", self.names)
    }
}

fn wider(ty: &Type) -> Type {
    match ty {
        Type::Int8 => Type::Int16,
        Type::Uint8 | Type::Int16 => Type::Float32,
        Type::Uint16 => Type::Uint32,
        Type::Int32 | Type::Uint32 => Type::Int64,
        Type::Float32 => Type::Float64,
        other => other.clone(),
    }
}

/// Smallest and largest value of an enum literal.
fn enum_range(bit_bound: u8) -> (i64, i64) {
    let holder = 1i64 << (holder_bits(bit_bound) - 1);
    (-1 << (bit_bound - 1), ((1i64 << bit_bound) - 1).min(holder - 1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use polywire_core::schema::evolve::{Verdict, assess};

    #[test]
    fn evolutions_differ_and_come_to_every_verdict() {
        let (mut changed, mut told) = (0, [0; 3]);
        for seed in 0..300 {
            let old = random_schema(seed, 8);
            let new = random_evolution(seed, &old);
            changed += usize::from(new.type_hash() != old.type_hash());
            for (writer, reader) in [(&old, &new), (&new, &old)] {
                told[match assess(writer, reader) {
                    Verdict::Always => 0,
                    Verdict::PerValue(_) => 1,
                    Verdict::Refused(_) => 2,
                }] += 1;
            }
        }
        assert!(changed > 200, "{changed} of 300 are another type");
        assert!(told.iter().all(|n| *n > 30), "always, per value, refused: {told:?}");
    }
}
