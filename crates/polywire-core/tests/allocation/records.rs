//! Records of random schemas, filled as codec programs fill them, while memory is granted or
//! refused. Nothing may leak.

use polywire_core::layout::{Inserted, Kind, Layout, NodeId, OutOfMemory, Record, Scalar, Selected, Shape, ValueRef};
use polywire_core::schema::{Case, DefKind, Schema, Type, arbitrary::Random, array_shape};
use polywire_testing::allocator::{Counts, grant, irrefusable, refusable};
use polywire_testing::random_schema;

/// Writes random values through the layout, as a program does.
struct Filler<'a> {
    schema: &'a Schema,
    layout: &'a Layout,
    random: Random,
}

impl<'a> Filler<'a> {
    fn new(shape: &'a Shape, seed: u64) -> Filler<'a> {
        Filler { schema: shape.schema(), layout: shape.layout(), random: Random::new(seed) }
    }

    /// # Safety
    /// `at` holds a value of `node`, which is that of `ty`.
    unsafe fn fill(&mut self, ty: &'a Type, node: NodeId, at: *mut u8, depth: usize) -> Result<(), OutOfMemory> {
        let ty = self.schema.resolve(ty);
        let few = if depth > 4 { 1 } else { 4 };
        // SAFETY: the caller guarantees that `at` holds a value of `node`, and the layout has a
        // node for each type of the schema.
        unsafe {
            match (&self.layout.node(node).kind, ty) {
                (Kind::Scalar(Scalar::Bool), _) => at.write(self.random.below(2) as u8),
                (Kind::Scalar(scalar), _) => (0..scalar.size()).for_each(|i| at.add(i).write(self.random.bits() as u8)),
                (Kind::Enum(node), _) => at.cast::<i32>().write(*self.random.choose(&node.literals)),
                (Kind::String { .. }, _) => {
                    let text = &"ein längerer Text"[..self.random.below(5)];
                    let string = &mut *at.cast::<String>();
                    string.clear();
                    refusable(|| string.try_reserve(text.len())).map_err(|_| OutOfMemory)?;
                    string.push_str(text);
                }
                (Kind::Sequence(sequence), Type::Sequence { element, .. }) => {
                    let len = self.random.below(few);
                    let first = refusable(|| sequence.access.resize(at, len))?;
                    let stride = self.layout.node(sequence.element).size as usize;
                    for i in 0..len {
                        self.fill(element, sequence.element, first.add(i * stride), depth + 1)?;
                    }
                }
                (Kind::Array { element: node, len }, Type::Array { .. }) => {
                    let element = array_shape(self.schema, ty).0;
                    let stride = self.layout.node(*node).size as usize;
                    for i in 0..*len as usize {
                        self.fill(element, *node, at.add(i * stride), depth + 1)?;
                    }
                }
                (Kind::Struct { fields }, Type::Def(id)) => {
                    for (field, member) in fields.iter().zip(self.schema.members(*id)) {
                        self.member(&member.ty, field.node, at.add(field.offset as usize), depth + 1)?;
                    }
                }
                (Kind::Union(union), Type::Def(id)) => {
                    let DefKind::Union { discriminator, cases, .. } = &self.schema.def(*id).kind else { panic!() };
                    let free = self.free(discriminator, cases).filter(|_| !cases.iter().any(|c| c.is_default));
                    if let Some(number) = free.filter(|_| self.random.one_in(4)) {
                        refusable(|| union.access.select(at, number, None))?;
                        let now = union.access.get(at);
                        assert_eq!((now.discriminator, now.case), (number, None));
                        return Ok(());
                    }
                    let case = self.random.below(cases.len());
                    let Some(number) = self.discriminator(discriminator, cases, case) else { return Ok(()) };
                    let value = refusable(|| union.access.select(at, number, Some(case as u32)))?;
                    let now = union.access.get(at);
                    assert_eq!(now, Selected { discriminator: number, case: Some(case as u32), value });
                    self.member(&cases[case].member.ty, union.cases[case], value, depth + 1)?;
                }
                (Kind::Map(map), Type::Map { key, value, .. }) => {
                    refusable(|| map.access.clear(at));
                    for _ in 0..self.random.below(few) {
                        let mut done = Ok(());
                        let was = map.access.len(at);
                        let fate = refusable(|| {
                            map.access.insert(at, &mut |k, v| {
                                done = irrefusable(|| {
                                    self.fill(key, map.key, k, depth + 1)?;
                                    self.fill(value, map.value, v, depth + 1)
                                });
                                done.is_ok()
                            })
                        })?;
                        done?;
                        assert_eq!(map.access.len(at), was + usize::from(fate == Inserted::Yes));
                    }
                }
                (kind, ty) => panic!("{kind:?} does not stand for {ty:?}"),
            }
        }
        Ok(())
    }

    /// Fills a member, which may be optional or external.
    ///
    /// # Safety
    /// `at` holds a value of `node`, which is that of the member's type or wraps it.
    unsafe fn member(&mut self, ty: &'a Type, node: NodeId, at: *mut u8, depth: usize) -> Result<(), OutOfMemory> {
        // SAFETY: the caller guarantees that `at` holds a value of `node`; each access function
        // gives a place that holds a value of the inner node.
        unsafe {
            match &self.layout.node(node).kind {
                Kind::Optional(optional) => {
                    if depth > 6 || self.random.one_in(3) {
                        refusable(|| optional.access.set_none(at));
                        return Ok(());
                    }
                    let value = refusable(|| optional.access.set_some(at))?;
                    self.member(ty, optional.inner, value, depth)
                }
                Kind::Boxed(boxed) => self.member(ty, boxed.inner, boxed.access.get_mut(at), depth),
                _ => self.fill(ty, node, at, depth),
            }
        }
    }

    /// A discriminator that chooses `case`, unless there is none.
    fn discriminator(&self, ty: &Type, cases: &[Case], case: usize) -> Option<i64> {
        cases[case].labels.first().copied().or_else(|| self.free(ty, cases))
    }

    /// A discriminator that is no case's label.
    fn free(&self, ty: &Type, cases: &[Case]) -> Option<i64> {
        let possible: Vec<i64> = match self.schema.def_of(ty).map(|d| &d.kind) {
            Some(DefKind::Enum { literals, .. }) => literals.iter().map(|l| l.value.into()).collect(),
            _ if *self.schema.resolve(ty) == Type::Bool => vec![0, 1],
            _ => (0..100).collect(),
        };
        possible.into_iter().find(|v| !cases.iter().any(|c| c.labels.contains(v)))
    }
}

fn fill(record: &mut Record, seed: u64) -> Result<(), OutOfMemory> {
    let (shape, at) = (record.shape().clone(), record.as_mut_ptr());
    let mut filler = Filler::new(&shape, seed);
    // SAFETY: the memory holds a value of the shape's root.
    unsafe { filler.fill(shape.schema().root(), shape.layout().root(), at, 0) }
}

/// Every path into a value leads to what the view of the value has there.
fn check_paths(record: &Record, value: ValueRef<'_>, path: &str) {
    assert_eq!(record.get(path).unwrap(), value, "{path}");
    let join = |name: &str| if path.is_empty() { name.into() } else { format!("{path}.{name}") };
    match value {
        ValueRef::Struct(of) => of.fields().iter().for_each(|(m, v)| check_paths(record, *v, &join(&m.name))),
        ValueRef::Union(of) => of.case().iter().for_each(|(c, v)| check_paths(record, *v, &join(&c.member.name))),
        ValueRef::List(list) => {
            list.iter().take(3).enumerate().for_each(|(i, v)| check_paths(record, v, &format!("{path}[{i}]")));
        }
        _ => {}
    }
}

fn try_schema(seed: u64) {
    let schema = random_schema(seed, 12);
    let shape = Shape::of(&schema).unwrap();
    let fresh = Record::new(&shape);
    let mut record = Record::new(&shape);
    assert_eq!(record, fresh, "seed {seed}");
    for round in 0..4 {
        fill(&mut record, seed ^ round << 32).unwrap();
        let copy = record.clone();
        assert_eq!(copy, record, "seed {seed}");
        assert_eq!(format!("{copy:?}"), format!("{record:?}"));
        check_paths(&record, record.view(), "");
    }
    let mut other = Record::new(&shape);
    fill(&mut other, seed + 1).unwrap();
    assert!(other.try_clone_from(&record).unwrap());
    assert_eq!(other, record, "seed {seed}: a copy over another value");
    record.clear().unwrap();
    assert_eq!(record, fresh, "seed {seed}");
    without_memory(&shape, &other, seed);
}

/// Refuses the first, second, third, .. request for memory of everything a record can be asked to
/// do.
fn without_memory(shape: &std::sync::Arc<Shape>, source: &Record, seed: u64) {
    for refusal in 0..40 {
        grant(refusal);
        let made = refusable(|| Record::try_new(shape));
        let Ok(mut record) = made else { continue };
        grant(refusal);
        let filled = fill(&mut record, seed);
        let _ = format!("{record:?}");
        grant(refusal);
        let copied = refusable(|| record.try_clone_from(source));
        let _ = format!("{record:?}");
        grant(usize::MAX);
        assert!(record.try_clone_from(source).unwrap());
        assert_eq!(record, *source, "seed {seed}: after {refusal} requests");
        if filled.is_ok() && copied.is_ok() {
            return;
        }
    }
}

#[test]
fn records_of_random_schemas_live_and_die() {
    // Whatever is allocated once and for all, is now.
    try_schema(0);
    let seeds = if cfg!(miri) { 1..3 } else { 1..400 };
    for seed in seeds {
        let before = Counts::of_this_thread().held_blocks;
        try_schema(seed);
        assert_eq!(Counts::of_this_thread().held_blocks, before, "seed {seed} leaks");
    }
}
