//! Random schemas with definitions of every kind, from a seed.

use polywire_core::schema::arbitrary::Random;
use polywire_core::schema::{
    Annotation, AutoId, BitField, Case, Def, DefId, DefKind, EnumLiteral, Extensibility, Literal, Member, Schema,
    SchemaBuilder, TryConstruct, Type,
};

const NAMES: [&str; 12] =
    ["alpha", "beta", "module", "Boolean", "port", "_led", "type", "isEcho", "self", "x2", "MAX_VALUE", "match"];
const MODULES: [&str; 5] = ["", "A::", "A::B::", "C::", "sequence::"];

/// A schema with `1..=10` definitions of all kinds, in any order, some of them recursive.
pub fn schema(random: &mut Random) -> Schema {
    let count = 1 + random.below(10);
    let mut defs: Vec<Def> = Vec::new();
    for i in 0..count {
        let name = format!("{}{}{i}", random.choose(&MODULES), random.choose(&["Type", "other_type", "T_"]));
        let def = definition(random, &name, &defs, count);
        defs.push(def);
    }
    // Recursion is only for structures and unions; what turned out to be something else is
    // replaced.
    let declarable: Vec<bool> =
        defs.iter().map(|d| matches!(d.kind, DefKind::Struct { .. } | DefKind::Union { .. })).collect();
    for (i, def) in defs.iter_mut().enumerate() {
        each_type(def, &mut |ty| forget_forward(ty, i, &declarable));
    }
    let order = shuffled(random, count);
    let place = |id: &mut DefId| id.0 = order.iter().position(|o| *o == id.0 as usize).unwrap() as u32;
    let mut builder = SchemaBuilder::new();
    for i in &order {
        let mut def = defs[*i].clone();
        each_type(&mut def, &mut |ty| each_reference(ty, &place));
        if let DefKind::Struct { base: Some(base), .. } | DefKind::Bitset { base: Some(base), .. } = &mut def.kind {
            place(base);
        }
        builder.add(def);
    }
    let root = random.below(count) as u32;
    builder.finish(Type::Def(DefId(root))).unwrap_or_else(|e| panic!("the generator made a wrong schema: {e}"))
}

fn shuffled(random: &mut Random, count: usize) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for i in (1..count).rev() {
        order.swap(i, random.below(i + 1));
    }
    order
}

fn each_type(def: &mut Def, visit: &mut impl FnMut(&mut Type)) {
    match &mut def.kind {
        DefKind::Struct { members, .. } => members.iter_mut().for_each(|m| visit(&mut m.ty)),
        DefKind::Union { discriminator, cases, .. } => {
            visit(discriminator);
            cases.iter_mut().for_each(|c| visit(&mut c.member.ty));
        }
        DefKind::Alias { target } => visit(target),
        _ => {}
    }
}

fn each_reference(ty: &mut Type, visit: &impl Fn(&mut DefId)) {
    match ty {
        Type::Def(id) => visit(id),
        Type::Sequence { element, .. } | Type::Array { element, .. } => each_reference(element, visit),
        Type::Map { key, value, .. } => {
            each_reference(key, visit);
            each_reference(value, visit);
        }
        _ => {}
    }
}

fn forget_forward(ty: &mut Type, own: usize, declarable: &[bool]) {
    match ty {
        Type::Def(id) if id.0 as usize >= own && !declarable[id.0 as usize] => *ty = Type::Octet,
        Type::Sequence { element, .. } | Type::Array { element, .. } => forget_forward(element, own, declarable),
        Type::Map { value, .. } => forget_forward(value, own, declarable),
        _ => {}
    }
}

fn definition(random: &mut Random, name: &str, earlier: &[Def], count: usize) -> Def {
    let mut def = match random.below(9) {
        0 => {
            let literals = distinct_names(random);
            let mut value = -3;
            let literals = literals.into_iter().map(|name| {
                value += 1 + i32::from(random.one_in(3)) * 4;
                let annotations = annotations(random);
                EnumLiteral { name: format!("{name}_{}", earlier.len()), value, is_default: false, annotations }
            });
            let mut literals: Vec<EnumLiteral> = literals.collect();
            let chosen = random.below(literals.len());
            literals[chosen].is_default = random.one_in(2);
            let mut def = Def::enumeration(name, ["x"]);
            def.kind = DefKind::Enum { bit_bound: *random.choose(&[8, 16, 32]), literals };
            def
        }
        1 => {
            let mut def = Def::bitmask(name, *random.choose(&[32, 64]), distinct_names(random));
            if let DefKind::Bitmask { flags, .. } = &mut def.kind {
                let shift = random.below(20) as u8;
                flags.iter_mut().skip(1).for_each(|f| f.position += shift);
            }
            def
        }
        2 => bitset(random, name, earlier),
        3 => Def::alias(name, ty(random, earlier, count, 3)),
        4 => union(random, name, earlier, count),
        _ => structure(random, name, earlier, count),
    };
    if !matches!(def.kind, DefKind::Alias { .. }) {
        def.extensibility = *random.choose(&[Extensibility::Final, Extensibility::Appendable, Extensibility::Mutable]);
        def.nested = random.one_in(4);
        def.auto_id = if random.one_in(6) { AutoId::Hash } else { AutoId::Sequential };
    }
    def.annotations = annotations(random);
    def.doc = doc(random);
    def
}

fn structure(random: &mut Random, name: &str, earlier: &[Def], count: usize) -> Def {
    let bases: Vec<usize> =
        (0..earlier.len()).filter(|i| matches!(earlier[*i].kind, DefKind::Struct { base: None, .. })).collect();
    let mut members: Vec<Member> =
        distinct_names(random).into_iter().map(|name| member(random, name, earlier, count)).collect();
    members.iter_mut().for_each(|m| m.name = format!("{}_{}", m.name, earlier.len()));
    let def = Def::structure(name, members);
    match random.one_in(4) && !bases.is_empty() {
        true => {
            let base = *random.choose(&bases);
            let mut def = def.with_base(DefId(base as u32));
            // Explicit ids far from those that are counted.
            if let DefKind::Struct { members, .. } = &mut def.kind {
                members
                    .iter_mut()
                    .zip(0..)
                    .for_each(|(m, i)| m.explicit_id = Some(1_000_000 * earlier.len() as u32 + i));
            }
            def
        }
        false => def,
    }
}

fn member(random: &mut Random, name: &str, earlier: &[Def], count: usize) -> Member {
    let mut member = Member::new(name, ty(random, earlier, count, 3));
    member.key = random.one_in(6);
    member.optional = !member.key && random.one_in(4);
    member.must_understand = random.one_in(6);
    member.external = random.one_in(6);
    member.try_construct =
        *random.choose(&[TryConstruct::Discard, TryConstruct::Discard, TryConstruct::UseDefault, TryConstruct::Trim]);
    member.default = if random.one_in(2) { value(random, &member.ty, earlier) } else { None };
    member.annotations = annotations(random);
    if let (Some(least), true) = (value(random, &member.ty, earlier), random.one_in(4)) {
        member.annotations.push(Annotation { name: "min".into(), args: vec![("value".into(), least)] });
    }
    member.doc = doc(random);
    member
}

fn union(random: &mut Random, name: &str, earlier: &[Def], count: usize) -> Def {
    let enums: Vec<usize> = (0..earlier.len()).filter(|i| matches!(earlier[*i].kind, DefKind::Enum { .. })).collect();
    let (discriminator, labels): (Type, Vec<i64>) = match random.below(5) {
        0 => (Type::Bool, vec![1, 0]),
        1 => (Type::Char8, vec![97, 39, 200, 10]),
        2 if !enums.is_empty() => {
            let chosen = *random.choose(&enums);
            let DefKind::Enum { literals, .. } = &earlier[chosen].kind else { unreachable!() };
            (Type::Def(DefId(chosen as u32)), literals.iter().map(|l| i64::from(l.value)).collect())
        }
        3 => (Type::Octet, vec![0, 255, 7]),
        _ => (Type::Int64, vec![i64::MIN + 1, -1, 0, i64::MAX]),
    };
    let mut cases: Vec<Case> = Vec::new();
    for (label, name) in labels.into_iter().zip(NAMES) {
        match cases.last_mut().filter(|_| random.one_in(3)) {
            Some(case) => case.labels.push(label),
            None => cases.push(Case::new([label], name, ty(random, &[], 0, 2))),
        }
    }
    // Where every value is a label, a default case of its own could not be selected.
    match (random.one_in(2), matches!(discriminator, Type::Bool | Type::Def(_)), cases.last_mut()) {
        (true, true, Some(last)) => last.is_default = true,
        (true, false, _) => cases.push(Case::default("otherwise", Type::sequence(ty(random, earlier, count, 2)))),
        _ => {}
    }
    let mut def = Def::union(name, discriminator, cases);
    if let DefKind::Union { key, .. } = &mut def.kind {
        *key = random.one_in(3);
    }
    def
}

fn bitset(random: &mut Random, name: &str, earlier: &[Def]) -> Def {
    let bases: Vec<usize> =
        (0..earlier.len()).filter(|i| matches!(earlier[*i].kind, DefKind::Bitset { base: None, .. })).collect();
    let mut fields: Vec<BitField> =
        (0..3).map(|i| BitField::new(format!("f{i}_{}", earlier.len()), *random.choose(&[1, 3, 8, 9]))).collect();
    fields[1].name = if random.one_in(2) { None } else { fields[1].name.clone() };
    fields[2].ty = Type::Uint64;
    let def = Def::bitset(name, fields);
    match bases.is_empty() || random.one_in(2) {
        true => def,
        false => def.with_base(DefId(*random.choose(&bases) as u32)),
    }
}

fn distinct_names(random: &mut Random) -> Vec<&'static str> {
    let start = random.below(NAMES.len());
    NAMES.iter().cycle().skip(start).take(1 + random.below(6)).copied().collect()
}

fn ty(random: &mut Random, earlier: &[Def], count: usize, depth: usize) -> Type {
    match random.below(if depth == 0 { 10 } else { 16 }) {
        0..8 => random.choose(&Type::PRIMITIVES).clone(),
        8 => Type::String { bound: *random.choose(&[0, 4, 300]) },
        9 => Type::WString { bound: *random.choose(&[0, 5]) },
        10 => Type::array(ty(random, earlier, count, depth - 1), [2, 3]),
        11 => Type::Map {
            key: Box::new(random.choose(&[Type::Int32, Type::String { bound: 4 }, Type::Bool]).clone()),
            value: Box::new(ty(random, earlier, count, depth - 1)),
            bound: *random.choose(&[0, 9]),
        },
        12 if !earlier.is_empty() => Type::Def(DefId(random.below(earlier.len()) as u32)),
        // Possibly a definition that comes later, or the own one.
        13 if count > 0 => Type::sequence(Type::Def(DefId(random.below(count) as u32))),
        _ => Type::Sequence {
            element: Box::new(ty(random, earlier, count, depth - 1)),
            bound: *random.choose(&[0, 0, 7, 4_000_000_000]),
        },
    }
}

/// A constant of the type, if there are any.
fn value(random: &mut Random, ty: &Type, earlier: &[Def]) -> Option<Literal> {
    Some(match ty {
        Type::Bool => Literal::Bool(random.one_in(2)),
        Type::Octet | Type::Uint8 => Literal::Int(*random.choose(&[0, 255])),
        Type::Int8 => Literal::Int(*random.choose(&[-128, 127])),
        Type::Int64 => Literal::Int(*random.choose(&[i64::MIN.into(), i64::MAX.into()])),
        Type::Uint64 => Literal::Int(u64::MAX.into()),
        Type::Int16 | Type::Int32 | Type::Uint16 | Type::Uint32 => Literal::Int(77),
        Type::Float32 => Literal::Float(f64::from(*random.choose(&[0.1f32, -0.0, 1e38, 3.0]))),
        Type::Float64 | Type::Float128 => Literal::Float(*random.choose(&[0.1, -0.0, 1e300, 5e-324, 3.0])),
        Type::Char8 => Literal::Char(*random.choose(&[97, 39, 92, 0, 255])),
        Type::Char16 => Literal::Char(*random.choose(&[97, 0x20AC, 0xD800])),
        Type::String { .. } => Literal::String(random.choose(&["", "a\"\\", "\n\u{1}", "\u{20ac}"]).to_string()),
        Type::WString { .. } => Literal::String(random.choose(&["", "\u{20ac}x"]).to_string()),
        Type::Def(id) => match &earlier.get(id.0 as usize)?.kind {
            DefKind::Enum { literals, .. } => Literal::Enum(random.choose(literals).name.clone()),
            DefKind::Bitmask { .. } => Literal::Int(5),
            _ => return None,
        },
        _ => return None,
    })
}

fn annotations(random: &mut Random) -> Vec<Annotation> {
    let unit = ("value".to_string(), Literal::String("m/s".into()));
    let some = ("first".to_string(), Literal::Int(-7));
    let more = ("second".to_string(), Literal::Enum("WORD".into()));
    match random.below(6) {
        0 => vec![Annotation { name: "unit".into(), args: vec![unit] }],
        1 => vec![
            Annotation { name: "vendor::mark".into(), args: vec![some, more] },
            Annotation { name: "bare".into(), args: vec![] },
        ],
        _ => vec![],
    }
}

fn doc(random: &mut Random) -> String {
    random.choose(&["", "", "One line.", "Two lines,\n\nthe second after a blank one: */ \"x\""]).to_string()
}
