//! The schemas and layouts that `#[derive(Message)]` describes, compared with the real memory of
//! the types.

use polywire_core::layout::{
    Char8, Char16, EnumNode, Float128, Kind, Layout, Message, MessageField, Node, Scalar, Shape, ShapeError,
};
use polywire_core::schema::{
    Annotation, AutoId, BitField, Case, Def, DefKind, EnumLiteral, Extensibility, Literal, Member, SchemaBuilder,
    TryConstruct, Type, hash_id,
};
use polywire_derive::Message;
use std::collections::BTreeMap;

#[derive(Message, Debug, PartialEq)]
#[polywire(name = "Demo::Everything", final)]
#[expect(clippy::box_collection)]
struct Everything {
    flag: bool,
    a: i8,
    b: i16,
    c: i32,
    d: i64,
    #[polywire(idl = "octet")]
    e: u8,
    f: u16,
    g: u32,
    h: u64,
    x: f32,
    y: f64,
    z: Float128,
    letter: Char8,
    unit: Char16,
    text: String,
    #[polywire(idl = "wstring<9>")]
    wide: String,
    list: Vec<i32>,
    #[polywire(idl = "sequence<octet, 8192>")]
    image: Vec<u8>,
    grid: [[f32; 3]; 2],
    #[polywire(idl = "string<4>[40]")]
    names: [String; 40],
    maybe: Option<i32>,
    boxed: Box<u64>,
    both: Option<Box<String>>,
    sorted: BTreeMap<String, i32>,
}

fn members_of<T: Message>() -> Vec<Member> {
    match &T::shape().schema().def_of(T::shape().schema().root()).unwrap().kind {
        DefKind::Struct { members, .. } => members.clone(),
        other => panic!("{other:?}"),
    }
}

fn root<T: Message>() -> &'static Node {
    let layout = T::shape().layout();
    layout.node(layout.root())
}

fn fields<T: Message>() -> Vec<(u32, &'static Node)> {
    let layout: &'static Layout = T::shape().layout();
    match &root::<T>().kind {
        Kind::Struct { fields } => fields.iter().map(|f| (f.offset, layout.node(f.node))).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_rust_type_has_its_idl_type() {
    let schema = Everything::shape().schema();
    assert_eq!(schema.name(), "Demo::Everything");
    assert_eq!(schema.def_of(schema.root()).unwrap().extensibility, Extensibility::Final);
    let members = members_of::<Everything>();
    let types: Vec<Type> = members.iter().map(|m| m.ty.clone()).collect();
    let want = [
        Type::Bool,
        Type::Int8,
        Type::Int16,
        Type::Int32,
        Type::Int64,
        Type::Octet,
        Type::Uint16,
        Type::Uint32,
        Type::Uint64,
        Type::Float32,
        Type::Float64,
        Type::Float128,
        Type::Char8,
        Type::Char16,
        Type::string(),
        Type::WString { bound: 9 },
        Type::sequence(Type::Int32),
        Type::Sequence { element: Type::Octet.into(), bound: 8192 },
        Type::array(Type::Float32, [2, 3]),
        Type::array(Type::String { bound: 4 }, [40]),
        Type::Int32,
        Type::Uint64,
        Type::string(),
        Type::map(Type::string(), Type::Int32),
    ];
    assert_eq!(types, want);
    let marks: Vec<(bool, bool)> = members[20..].iter().map(|m| (m.optional, m.external)).collect();
    assert_eq!(marks, [(true, false), (false, true), (true, true), (false, false)]);
}

#[cfg(feature = "std")]
#[test]
fn hash_maps_are_maps() {
    #[derive(Message)]
    struct Hashed {
        of: std::collections::HashMap<i32, Vec<String>>,
    }
    assert_eq!(members_of::<Hashed>()[0].ty, Type::map(Type::Int32, Type::sequence(Type::string())));
}

#[test]
fn layouts_say_where_fields_are() {
    let mut value = Everything::default_value();
    value.c = -7;
    value.grid[1][2] = 2.5;
    value.list = vec![1, 2, 3];
    value.both = Some(Box::new("deep".into()));
    let base = (&raw const value).cast::<u8>();
    let layout = Everything::shape().layout();
    let fields = fields::<Everything>();
    assert_eq!(fields[3].0 as usize, std::mem::offset_of!(Everything, c));
    assert!(matches!(fields[3].1.kind, Kind::Scalar(Scalar::I32)));
    let Kind::Array { element, len } = fields[18].1.kind else { panic!("{:?}", fields[18].1) };
    assert_eq!((len, layout.node(element).size), (6, 4));
    let Kind::Sequence(list) = &fields[16].1.kind else { panic!("{:?}", fields[16].1) };
    let Kind::Optional(both) = &fields[22].1.kind else { panic!("{:?}", fields[22].1) };
    let Kind::Boxed(inner) = &layout.node(both.inner).kind else { panic!("{:?}", layout.node(both.inner)) };
    // SAFETY: the layout is that of this very type.
    unsafe {
        assert_eq!(base.add(fields[3].0 as usize).cast::<i32>().read(), -7);
        assert_eq!(base.add(fields[18].0 as usize).cast::<f32>().add(5).read(), 2.5);
        let at = base.add(fields[16].0 as usize);
        let (first, len) = list.access.slice(at);
        assert_eq!(std::slice::from_raw_parts(first.cast::<i32>(), len), [1, 2, 3]);
        let words = list.words.expect("this standard library keeps three words");
        assert_eq!(at.add(words.len as usize).cast::<usize>().read(), 3);
        assert_eq!(at.add(words.pointer as usize).cast::<*const u8>().read(), first);
        assert_eq!(at.add(words.capacity as usize).cast::<usize>().read(), value.list.capacity());
        let boxed = both.access.get(base.add(fields[22].0 as usize));
        assert_eq!(*inner.access.get(boxed).cast::<String>(), "deep");
    }
}

#[derive(Message)]
#[polywire(mutable, nested, autoid = "hash")]
struct Marked {
    #[polywire(name = "isEcho", id = 3, key)]
    is_echo: bool,
    #[polywire(hashid, must_understand)]
    color: i32,
    #[polywire(hashid = "color2", default = -5, unit = "m", min = -10, max = 10.5)]
    level: i16,
    #[polywire(default = "off", try_construct = "use_default")]
    text: String,
    #[polywire(default = "Busy")]
    state: State,
    #[polywire(default = 2)]
    ratio: f64,
    #[polywire(default = 'x', idl = "char")]
    grade: u8,
    #[polywire(skip)]
    scratch: std::cell::Cell<u32>,
}

#[derive(Message, Clone, Copy, Debug, PartialEq)]
#[polywire(bit_bound = 8)]
enum State {
    Idle,
    #[polywire(name = "Busy", default_literal)]
    Working = 5,
    Failed = -2,
}

#[test]
fn attributes_reach_the_schema() {
    let schema = Marked::shape().schema();
    let def = schema.def_of(schema.root()).unwrap();
    assert_eq!((def.extensibility, def.nested, def.auto_id), (Extensibility::Mutable, true, AutoId::Hash));
    let m = members_of::<Marked>();
    assert_eq!(m.len(), 7);
    assert_eq!((m[0].name.as_str(), m[0].id, m[0].explicit_id, m[0].key), ("isEcho", 3, Some(3), true));
    assert_eq!((m[1].explicit_id, m[1].must_understand), (Some(0x0FA5_DD70), true));
    assert_eq!(m[2].id, hash_id("color2"));
    assert_eq!(m[2].default, Some(Literal::Int(-5)));
    let one = |name: &str, value| Annotation { name: name.into(), args: vec![("value".into(), value)] };
    let want =
        [one("unit", Literal::String("m".into())), one("min", Literal::Int(-10)), one("max", Literal::Float(10.5))];
    assert_eq!(m[2].annotations, want);
    assert_eq!(
        (m[3].default.clone(), m[3].try_construct),
        (Some(Literal::String("off".into())), TryConstruct::UseDefault)
    );
    assert_eq!(m[3].id, hash_id("text"));
    assert_eq!(m[4].default, Some(Literal::Enum("Busy".into())));
    assert_eq!(m[5].default, Some(Literal::Float(2.0)));
    assert_eq!((m[6].ty.clone(), m[6].default.clone()), (Type::Char8, Some(Literal::Char(120))));
}

#[test]
fn new_messages_have_the_defaults() {
    let fresh = Marked::default_value();
    assert_eq!((fresh.level, fresh.text.as_str(), fresh.state), (-5, "off", State::Working));
    assert_eq!((fresh.ratio, fresh.grade, fresh.scratch.get()), (2.0, b'x', 0));
    assert_eq!(State::default_value(), State::Working);
    let everything = Everything::default_value();
    assert_eq!((everything.maybe, *everything.boxed, everything.names[39].as_str()), (None, 0, ""));
}

#[test]
fn enums_say_which_integer_they_are() {
    let Kind::Enum(EnumNode { repr, literals }) = &root::<State>().kind else { panic!() };
    assert_eq!((*repr, literals.as_ref()), (Scalar::I8, &[-2, 0, 5][..]));
    let schema = State::shape().schema();
    let literal = |name: &str, value| EnumLiteral::new(name, value);
    let busy = EnumLiteral { is_default: true, ..literal("Busy", 5) };
    let want = DefKind::Enum { bit_bound: 8, literals: vec![literal("Idle", 0), busy, literal("Failed", -2)] };
    assert_eq!(schema.defs()[0].kind, want);
}

#[derive(Message)]
#[repr(u16)]
enum Wide {
    Low = 1,
    High = 65_535,
}

#[derive(Message)]
#[repr(i64)]
enum Single {
    Only = -1,
}

#[test]
fn representations_are_checked_not_assumed() {
    assert!(matches!(&root::<Wide>().kind, Kind::Enum(EnumNode { repr: Scalar::U16, .. })));
    assert!(matches!(&root::<Single>().kind, Kind::Enum(EnumNode { repr: Scalar::I64, .. })));
    assert!([Wide::Low as i32, Wide::High as i32, Single::Only as i32].contains(&65_535));
}

#[derive(Message, Debug, PartialEq)]
#[polywire(switch = "boolean")]
enum Wind {
    #[polywire(case(true), name = "gust_kt")]
    Gust(f32),
    #[polywire(case(false), name = "mean_kt")]
    Mean(f64),
}

#[derive(Message, Debug, PartialEq)]
#[polywire(name = "Demo::Choice", switch_type = "State", mutable)]
enum Choice {
    #[polywire(case("Idle", "Failed"), idl = "string<7>")]
    Text(String),
    #[polywire(default, id = 9)]
    Other(Box<Wind>),
}

#[test]
fn unions_are_enums_with_data() {
    let schema = Choice::shape().schema();
    let def = schema.def_of(schema.root()).unwrap();
    let DefKind::Union { discriminator, cases, key: false } = &def.kind else { panic!("{def:?}") };
    assert!(matches!(&schema.def_of(discriminator).unwrap().kind, DefKind::Enum { .. }));
    assert_eq!((cases[0].labels.as_slice(), cases[0].is_default), (&[0, -2][..], false));
    assert_eq!((cases[0].member.name.as_str(), cases[0].member.ty.clone()), ("Text", Type::String { bound: 7 }));
    assert_eq!((cases[1].is_default, cases[1].member.id, cases[1].member.external), (true, 9, true));
    // The default literal is nobody's label, so the default case is taken; of booleans, false comes
    // first.
    assert_eq!(Choice::default_value(), Choice::Other(Box::new(Wind::Mean(0.0))));
}

#[test]
fn programs_change_unions_through_functions() {
    let Kind::Union(node) = &root::<Choice>().kind else { panic!() };
    let mut value = Choice::Text("abc".into());
    let at = (&raw mut value).cast::<u8>();
    // SAFETY: the access is that of this very type.
    unsafe {
        let now = node.access.get(at);
        assert_eq!((now.discriminator, now.case), (0, Some(0)));
        assert_eq!(*now.value.cast::<String>(), "abc");
        let same = node.access.select(at, -2, Some(0)).unwrap();
        assert_eq!(*same.cast::<String>(), "abc", "the same case keeps its value");
        let other = node.access.select(at, 5, Some(1)).unwrap();
        **other.cast::<Box<Wind>>() = Wind::Gust(3.0);
        // The smallest literal without a label stands for the default case.
        assert_eq!(node.access.get(at).discriminator, 5);
        assert!(node.access.select(at, 1, None).is_err());
        assert!(node.access.select(at, 1, Some(2)).is_err());
    }
    assert_eq!(value, Choice::Other(Box::new(Wind::Gust(3.0))));
}

#[derive(Message)]
#[polywire(name = "Demo::Equipment", bitmask(bit_bound = 8, MODE_A = 0, MODE_C = 1, ADS_B = 7))]
struct Equipment(pub u8);

#[derive(Message)]
#[polywire(bitmask(LOW = 0, bit_bound = 3))]
struct Bounded(pub u32);

#[test]
fn only_the_first_entry_of_a_bitmask_is_its_bound() {
    let schema = Bounded::shape().schema();
    let Type::Def(id) = schema.root() else { panic!() };
    let DefKind::Bitmask { bit_bound, flags } = &schema.def(*id).kind else { panic!() };
    assert_eq!((*bit_bound, flags[1].name.as_str(), flags[1].position), (32, "bit_bound", 3));
}

#[derive(Message)]
#[polywire(bitset(a(3), _(2), b(1, "octet"), c(20)))]
struct Bits(u32);

#[derive(Message)]
#[polywire(mutable, autoid = "hash", bitset(base = "Bits", d(4), base(2)))]
struct MoreBits(u64);

#[test]
fn bitsets_inherit() {
    let schema = MoreBits::shape().schema();
    let Type::Def(id) = schema.root() else { panic!() };
    let fields: Vec<(Option<&str>, u8)> =
        schema.bit_fields(*id).iter().map(|f| (f.name.as_deref(), f.position)).collect();
    let want = [(Some("a"), 0), (None, 3), (Some("b"), 5), (Some("c"), 6), (Some("d"), 26), (Some("base"), 30)];
    assert_eq!(fields, want);
}

#[derive(Message, Debug, PartialEq)]
#[polywire(switch_type = "State", key)]
enum Numbered {
    #[polywire(case(0), default, default = -4)]
    Small(i8),
    #[polywire(case(5), default = 7, must_understand)]
    Large(u64),
}

#[test]
fn labels_may_be_numbers_and_cases_have_defaults() {
    assert_eq!(Numbered::default_value(), Numbered::Large(7));
    let DefKind::Union { cases, key: true, .. } = &Numbered::shape().schema().defs().last().unwrap().kind else {
        panic!()
    };
    assert_eq!(
        (cases[0].labels[0], cases[0].is_default, cases[0].member.default.clone()),
        (0, true, Some(Literal::Int(-4)))
    );
    assert_eq!((cases[1].labels[0], cases[1].is_default, cases[1].member.must_understand), (5, false, true));
}

#[test]
fn bits_are_wrapped_integers() {
    let DefKind::Bitmask { bit_bound: 8, flags } = &Equipment::shape().schema().defs()[0].kind else { panic!() };
    let flags: Vec<(&str, u8)> = flags.iter().map(|f| (f.name.as_str(), f.position)).collect();
    assert_eq!(flags, [("MODE_A", 0), ("MODE_C", 1), ("ADS_B", 7)]);
    assert!(matches!(root::<Equipment>().kind, Kind::Scalar(Scalar::U8)));
    let DefKind::Bitset { fields, .. } = &Bits::shape().schema().defs()[0].kind else { panic!() };
    let fields: Vec<(Option<&str>, u8, u8, &Type)> =
        fields.iter().map(|f| (f.name.as_deref(), f.position, f.width, &f.ty)).collect();
    let want = [
        (Some("a"), 0, 3, &Type::Octet),
        (None, 3, 2, &Type::Octet),
        (Some("b"), 5, 1, &Type::Octet),
        (Some("c"), 6, 20, &Type::Uint32),
    ];
    assert_eq!(fields, want);
    assert!(matches!(root::<Bits>().kind, Kind::Scalar(Scalar::U32)));
}

#[derive(Message, Debug)]
struct Vehicle {
    wheels: u8,
    parts: Vec<Car>,
}

#[derive(Message, Debug)]
struct Car {
    #[polywire(base)]
    vehicle: Vehicle,
    doors: u16,
}

#[derive(Message)]
struct Taxi {
    #[polywire(base)]
    car: Car,
    meter: f64,
}

#[test]
fn inherited_members_come_first_even_through_recursion() {
    let schema = Taxi::shape().schema();
    let Type::Def(id) = schema.root() else { panic!() };
    let names: Vec<&str> = schema.members(*id).iter().map(|m| m.name.as_str()).collect();
    assert_eq!(names, ["wheels", "parts", "doors", "meter"]);
    let offsets: Vec<usize> = fields::<Taxi>().iter().map(|f| f.0 as usize).collect();
    let car = std::mem::offset_of!(Taxi, car);
    let vehicle = car + std::mem::offset_of!(Car, vehicle);
    let want = [
        vehicle + std::mem::offset_of!(Vehicle, wheels),
        vehicle + std::mem::offset_of!(Vehicle, parts),
        car + std::mem::offset_of!(Car, doors),
        std::mem::offset_of!(Taxi, meter),
    ];
    assert_eq!(offsets, want);
    assert_eq!(fields::<Car>().len(), 3, "described while its base was not finished");
}

#[derive(Message, Debug, PartialEq)]
struct Tree {
    label: String,
    children: Vec<Tree>,
    next: Option<Box<Tree>>,
    named: BTreeMap<String, Tree>,
}

#[test]
fn recursion_terminates() {
    let layout = Tree::shape().layout();
    let Kind::Sequence(children) = &fields::<Tree>()[1].1.kind else { panic!() };
    assert_eq!(children.element, layout.root());
    assert_eq!(Tree::shape().schema().defs().len(), 1);
    assert!(std::ptr::eq(Tree::shape(), Tree::shape()));
}

#[test]
fn equal_types_make_equal_schemas() {
    let mut types = SchemaBuilder::new();
    let wind = types.add(Def::union(
        "Wind",
        Type::Bool,
        vec![Case::new([1], "gust_kt", Type::Float32), Case::new([0], "mean_kt", Type::Float64)],
    ));
    assert_eq!(Wind::shape().schema(), &types.finish(Type::Def(wind)).unwrap());
    let mut types = SchemaBuilder::new();
    let padding = BitField { name: None, ..BitField::new("", 2) };
    let b = BitField { ty: Type::Octet, ..BitField::new("b", 1) };
    let bits = types.add(Def::bitset("Bits", vec![BitField::new("a", 3), padding, b, BitField::new("c", 20)]));
    assert_eq!(Bits::shape().schema(), &types.finish(Type::Def(bits)).unwrap());
}

#[derive(Message)]
struct Misfit {
    #[polywire(idl = "sequence<octet>")]
    text: String,
}

#[derive(Message)]
struct Overflow {
    #[polywire(default = 300)]
    small: u8,
}

#[derive(Message)]
#[polywire(bitmask(bit_bound = 9, A = 8))]
struct Narrow(u8);

#[derive(Message)]
#[polywire(switch = "boolean")]
enum Crowded {
    #[polywire(case(true, false))]
    Both(u8),
    #[polywire(default)]
    Nobody(u8),
}

#[derive(Message)]
#[polywire(bit_bound = 8)]
enum Large {
    Small,
    Huge = 256,
}

#[test]
fn contradictions_are_refused() {
    let error = |result: Result<Shape, ShapeError>| result.unwrap_err().to_string();
    let want = "Misfit.text: the IDL text of a sequence does not fit the Rust type, which is String { bound: 0 }";
    assert_eq!(error(Shape::of_type::<Misfit>()), want);
    assert_eq!(error(Shape::of_type::<Overflow>()), "Overflow.small: its type Uint8 cannot hold the default Int(300)");
    assert_eq!(error(Shape::of_type::<Narrow>()), "Narrow: a bit_bound of 9 needs an integer of 16 bits");
    assert_eq!(error(Shape::of_type::<Crowded>()), "Crowded: no discriminator is left for a case without labels");
    assert_eq!(error(Shape::of_type::<Large>()), "Large: Huge is 256, which 8 bits cannot hold");
    assert!(std::panic::catch_unwind(Misfit::shape).is_err());
}

/// Tokens passed to a `macro_rules!` have other spans than the tokens that it adds.
macro_rules! make {
    ($(#[$attribute:meta])* $vis:vis $name:ident, $choice:ident, $mask:ident: $field:ident, $ty:ty, $bits:ty, $default:literal) => {
        $(#[$attribute])*
        $vis struct $name {
            $vis $field: $ty,
            $vis maybe: Option<$ty>,
            many: Vec<$ty>,
            some: [$ty; 3],
            #[polywire(key, id = 9, default = $default)]
            number: i32,
            #[polywire(skip)]
            aside: Option<$ty>,
            choice: $choice,
            flags: $mask,
        }

        $(#[$attribute])*
        #[polywire(switch = "int32")]
        $vis enum $choice {
            #[polywire(case(1))]
            One($ty),
            #[polywire(default)]
            Many(Vec<$ty>),
        }

        $(#[$attribute])*
        #[polywire(bitmask(bit_bound = 8, A = 0))]
        $vis struct $mask($vis $bits);
    };
}

make! { #[derive(Message, Debug, PartialEq)] pub(crate) Made, MadeChoice, MadeMask: level, f32, u8, -7 }

macro_rules! derived {
    ($base:ty, $($name:ident: $ty:ty),*) => {
        #[derive(Message, Debug, PartialEq)]
        struct Derived {
            #[polywire(base)]
            base: $base,
            $($name: $ty),*
        }
    };
}

derived!(Made, text: std::string::String, nested: Option<Box<Made>>, grid: [[u16; 2]; 3]);

#[test]
fn macros_make_messages() {
    let def = |schema: &polywire_core::schema::Schema, name: &str| {
        let def = schema.defs().iter().find(|def| def.name == name).unwrap_or_else(|| panic!("there is no {name}"));
        format!("{:?}", def.kind)
    };
    let made = Made::shape().schema();
    let root = |schema: &polywire_core::schema::Schema| match schema.root() {
        Type::Def(id) => *id,
        other => panic!("{other:?} is no definition"),
    };
    let types = made.members(root(made)).into_iter().map(|m| (m.name.as_str(), m.ty.clone(), m.optional));
    let want = [
        ("level", Type::Float32, false),
        ("maybe", Type::Float32, true),
        ("many", Type::sequence(Type::Float32), false),
        ("some", Type::array(Type::Float32, [3]), false),
        ("number", Type::Int32, false),
    ];
    assert_eq!(types.take(5).collect::<Vec<_>>(), want);
    assert!(def(made, "MadeChoice").contains("Float32") && def(made, "MadeMask").contains("bit_bound: 8"));
    assert_eq!((Made::default_value().number, Made::default_value().flags), (-7, MadeMask(0)));
    assert_eq!(Made::default_value().choice, MadeChoice::Many(vec![]));
    let derived = Derived::shape().schema();
    let DefKind::Struct { base, members } = &derived.def(root(derived)).kind else { unreachable!() };
    assert!(base.is_some() && members.len() == 3, "{members:?}");
    assert_eq!(Derived::default_value().base, Made::default_value());
}

/// Names that hold the words of other attributes.
#[derive(Message)]
#[polywire(name = "Plant::bitmask_state", final)]
struct Named {
    #[polywire(name = "bitset", default = "bitmask(A = 0)")]
    text: String,
    #[polywire(default = 3)]
    absent: Option<i32>,
    #[polywire(default = 4)]
    present: Box<i32>,
}

#[test]
fn names_are_not_mistaken_for_attributes() {
    let schema = Named::shape().schema();
    assert_eq!(schema.name(), "Plant::bitmask_state");
    let members = schema.members(schema.find("Plant::bitmask_state").expect("it is there"));
    assert_eq!(members.iter().map(|member| member.name.as_str()).collect::<Vec<_>>(), ["bitset", "absent", "present"]);
}

/// spec/evolution.md, 4: an optional member is absent, whatever else is said.
#[test]
fn an_optional_member_is_absent_by_default() {
    let fresh = Named::default_value();
    assert_eq!((fresh.text.as_str(), fresh.absent, *fresh.present), ("bitmask(A = 0)", None, 4));
}
