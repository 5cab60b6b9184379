//! Decides which tier runs a message. `exec.rs` asks before each message and reports the outcome
//! afterwards. This file touches its own counters only.
//!
//! There are three tiers: the interpreter, machine code with a context, and *direct* machine code,
//! which needs no context but may bail out of a message. The rule:
//!
//! 1. Without machine code the interpreter runs all messages. Machine code may come at any time.
//! 2. With machine code, direct code is tried first if the program has some. If it bails out, the
//!    code with a context runs the message from its beginning.
//! 3. After a bail-out, direct code is not tried for the next [`PAUSE`] messages, because a message
//!    that bails out is run twice. In a stream, one unusual message does not start a pause: each
//!    bail-out adds [`BAIL_OUT`] to a sum, each message without one subtracts one, and a sum of
//!    [`TOO_OFTEN`] starts the pause.
//! 4. When the pause is over, rule 2 applies again.
//!
//! Any number of threads may run a program at once. They share the counters without locks: an
//! update may be lost, which only moves the end of a pause.

use core::{
    ptr::NonNull,
    sync::atomic::{AtomicPtr, AtomicU32, Ordering},
};

use crate::program::{Direction, Program};

/// Messages for which direct code is not tried after a bail-out.
const PAUSE: u32 = 15;

/// Sum of bail-outs in a stream that starts a pause.
const TOO_OFTEN: u32 = 4;

/// The amount that a bail-out in a stream adds to the sum.
const BAIL_OUT: u32 = 2;

/// Direct functions of different signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Encodes a message that refers to no other.
    Encode,
    Decode,
    /// Encodes a message of a program with a bank.
    EncodeStream,
    DecodeStream,
}

impl Kind {
    fn of(program: &Program) -> Kind {
        match (program.direction, program.bank.is_some()) {
            (Direction::Encode, false) => Kind::Encode,
            (Direction::Decode, false) => Kind::Decode,
            (Direction::Encode, true) => Kind::EncodeStream,
            (Direction::Decode, true) => Kind::DecodeStream,
        }
    }

    fn is_of_stream(self) -> bool {
        matches!(self, Kind::EncodeStream | Kind::DecodeStream)
    }
}

/// The functions of a program, and when the direct one is tried.
pub(super) struct Tiers {
    kind: Kind,
    /// The general function, or null.
    general: AtomicPtr<u8>,
    /// The direct function, by [`Kind`]: null for other kinds, and during a pause.
    tried: [AtomicPtr<u8>; 4],
    /// The direct function, also during a pause.
    direct: AtomicPtr<u8>,
    /// During a pause, the number of its messages that are left. Else the sum of bail-outs, times
    /// [`SUM`].
    count: AtomicU32,
}

/// The unit of the sum of bail-outs. It is larger than the number of messages of a pause.
const SUM: u32 = 1 << 16;

impl Tiers {
    /// The tiers of a program without machine code.
    pub(super) fn new(program: &Program) -> Tiers {
        Tiers::of(Kind::of(program))
    }

    fn of(kind: Kind) -> Tiers {
        Tiers {
            kind,
            general: AtomicPtr::default(),
            tried: Default::default(),
            direct: AtomicPtr::default(),
            count: AtomicU32::default(),
        }
    }

    /// Sets the machine code: the general function, and perhaps a direct one. The code must outlive
    /// all callers of [`Tiers::general`] and [`Tiers::direct`].
    pub(super) fn set(&self, general: *const u8, direct: *const u8) {
        self.direct.store(direct.cast_mut(), Ordering::Release);
        self.general.store(general.cast_mut(), Ordering::Release);
        self.resume();
    }

    /// The general function, if there is one.
    #[inline]
    pub(super) fn general(&self) -> Option<NonNull<u8>> {
        NonNull::new(self.general.load(Ordering::Acquire))
    }

    /// The direct function of a kind, if it should be tried.
    #[inline]
    pub(super) fn direct(&self, kind: Kind) -> Option<NonNull<u8>> {
        NonNull::new(self.tried[kind as usize].load(Ordering::Acquire))
    }

    /// True if there is a direct function, also during a pause.
    pub(super) fn has_direct(&self) -> bool {
        !self.direct.load(Ordering::Acquire).is_null()
    }

    /// Records that the direct function completed a message of a stream.
    #[inline]
    pub(super) fn went_well(&self) {
        let sum = self.count.load(Ordering::Relaxed);
        if sum >= SUM {
            // If another thread has begun a pause meanwhile, that stays.
            let _ = self.count.compare_exchange(sum, sum - SUM, Ordering::Relaxed, Ordering::Relaxed);
        }
    }

    /// Records that the direct function bailed out.
    #[cold]
    pub(super) fn bailed_out(&self) {
        let added = BAIL_OUT * SUM;
        let is_odd =
            self.kind.is_of_stream() && self.count.fetch_add(added, Ordering::Relaxed) + added < TOO_OFTEN * SUM;
        if !is_odd {
            self.pause();
        }
    }

    /// Begins a pause.
    fn pause(&self) {
        self.count.store(PAUSE, Ordering::Relaxed);
        self.tried[self.kind as usize].store(core::ptr::null_mut(), Ordering::Relaxed);
    }

    /// Records that the general function or the interpreter processed a message.
    #[inline]
    pub(super) fn went_generally(&self) {
        let left = self.count.load(Ordering::Relaxed);
        if left == 0 || left >= SUM {
            return;
        }
        self.count.store(left - 1, Ordering::Relaxed);
        if left == 1 {
            self.resume();
        }
    }

    fn resume(&self) {
        self.tried[self.kind as usize].store(self.direct.load(Ordering::Acquire), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Kind; 3] = [Kind::Encode, Kind::Decode, Kind::EncodeStream];

    /// Tiers with machine code that is never called.
    fn compiled(kind: Kind) -> Tiers {
        let (tiers, code) = (Tiers::of(kind), [1u8, 2]);
        tiers.set(&raw const code[0], &raw const code[1]);
        tiers
    }

    /// Messages until the direct function is tried again.
    fn pause_of(tiers: &Tiers) -> u32 {
        (0..100)
            .find(|_| {
                let is_tried = tiers.direct(tiers.kind).is_some();
                tiers.went_generally();
                is_tried
            })
            .expect("a pause ends")
    }

    #[test]
    fn without_machine_code_there_is_only_the_interpreter() {
        for kind in KINDS {
            let tiers = Tiers::of(kind);
            assert!(tiers.general().is_none() && tiers.direct(kind).is_none());
            tiers.went_generally();
            assert!(tiers.direct(kind).is_none());
        }
    }

    #[test]
    fn direct_code_is_tried_by_its_own_kind_alone() {
        for kind in KINDS {
            let tiers = compiled(kind);
            assert!(tiers.general().is_some());
            for other in KINDS {
                assert_eq!(tiers.direct(other).is_some(), other == kind);
            }
        }
    }

    #[test]
    fn a_program_that_needs_a_context_has_no_direct_code() {
        let (tiers, code) = (Tiers::of(Kind::Encode), 1u8);
        tiers.set(&raw const code, core::ptr::null());
        assert!(tiers.general().is_some() && tiers.direct(Kind::Encode).is_none());
        (0..2 * PAUSE).for_each(|_| tiers.went_generally());
        assert!(tiers.direct(Kind::Encode).is_none());
    }

    #[test]
    fn a_bail_out_makes_a_pause() {
        for kind in [Kind::Encode, Kind::Decode] {
            let tiers = compiled(kind);
            tiers.bailed_out();
            assert_eq!(pause_of(&tiers), PAUSE);
            assert_eq!(pause_of(&tiers), 0);
        }
    }

    #[test]
    fn in_a_stream_only_frequent_bail_outs_make_a_pause() {
        let tiers = compiled(Kind::EncodeStream);
        for _ in 0..10 {
            tiers.bailed_out();
            assert_eq!(pause_of(&tiers), 0, "one odd message");
            (0..BAIL_OUT).for_each(|_| tiers.went_well());
        }
        tiers.bailed_out();
        tiers.went_well();
        tiers.bailed_out();
        assert_eq!(pause_of(&tiers), 0, "three of four");
        tiers.bailed_out();
        assert_eq!(pause_of(&tiers), PAUSE);
        tiers.bailed_out();
        assert_eq!(pause_of(&tiers), 0, "a pause begins the sum anew");
    }

    #[test]
    fn machine_code_may_come_in_the_middle() {
        let (tiers, code) = (Tiers::of(Kind::Decode), [1u8, 2]);
        tiers.went_generally();
        tiers.set(&raw const code[0], &raw const code[1]);
        assert!(tiers.general().is_some() && tiers.direct(Kind::Decode).is_some());
    }
}
