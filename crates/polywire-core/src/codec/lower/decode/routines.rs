//! Routines in the walk for decoding: the operations of types that contain themselves. The walk
//! (`mod.rs`) calls this file. It touches the walk only.

use super::*;

/// A routine that is emitted later. Its slot is one of a definition, so its type is enough: neither
/// a structure nor a union has a default of its own.
pub(super) struct Waiting {
    routine: u32,
    id: DefId,
    place: Place,
    reader: Option<Type>,
    try_construct: TryConstruct,
    key: bool,
    context: u64,
    path: String,
}

impl DecodeWalk<'_> {
    /// Emits a call of the routine for a definition of the writer. The routine is emitted when the
    /// walk has ended, if the dialect allows, so that types that contain each other need no stack.
    pub(super) fn routine(&mut self, id: DefId, slot: &Slot<'_>) -> Lowered {
        let target = self.reader_def(slot);
        let is_union = matches!(self.writer.def(id).kind, DefKind::Union { .. });
        let (policy, context) = (is_union.then_some(slot.try_construct as u8), self.dialect.context());
        let key = (id, target.zip(slot.place.node()), policy, context);
        if let Some(routine) = self.routine_of.get(&key) {
            self.emit(OpKind::Call { routine: *routine, place: slot.place });
            return Ok(());
        }
        let routine = self.routines.len() as u32;
        self.routine_of.insert(key, routine);
        self.routines.push(None);
        let place = match slot.place {
            Place::At { node, .. } => Place::At { offset: 0, node },
            sink => sink,
        };
        let (reader, path) = (target.map(Type::Def), self.paths.current.clone());
        let (try_construct, key) = (slot.try_construct, slot.key);
        let waiting = Waiting { routine, id, place, reader, try_construct, key, context, path };
        if self.dialect.resume(context) {
            self.waiting.push_back(waiting);
        } else {
            self.fill_routine(&waiting)?;
        }
        self.emit(OpKind::Call { routine, place: slot.place });
        Ok(())
    }

    fn fill_routine(&mut self, waiting: &Waiting) -> Lowered {
        let &Waiting { routine, id, place, try_construct, key, .. } = waiting;
        let slot = Slot { place, reader: waiting.reader.as_ref(), try_construct, member: None, key };
        let block = self.block(|walk| walk.aggregate(id, &slot))?;
        self.routines[routine as usize] = Some(Routine { frame: place.node(), block, levels: 1 });
        Ok(())
    }

    /// Emits the routines that wait, and those that they need.
    pub(super) fn waiting_routines(&mut self) -> Lowered {
        while let Some(mut waiting) = self.waiting.pop_front() {
            self.dialect.resume(waiting.context);
            self.paths.set(core::mem::take(&mut waiting.path));
            self.fill_routine(&waiting)?;
        }
        Ok(())
    }
}
