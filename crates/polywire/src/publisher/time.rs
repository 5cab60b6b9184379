//! The time of publication. Messages of a burst share it.

use crate::clock;

/// The most messages of a burst that have the same time. Reading the clock costs about as much as
/// gathering a small message.
const SAME: u32 = 8;

#[derive(Default)]
pub(super) struct Time {
    wall_ns: i64,
    /// The number of further messages that may have this time, while the port's number is
    /// `gathering`.
    left: u32,
    gathering: u64,
}

impl Time {
    /// Returns the time of a message. `gathering` is the number of [`Port::gathering`], or 0.
    ///
    /// [`Port::gathering`]: crate::engine::Port::gathering
    #[inline]
    pub(super) fn of(&mut self, gathering: u64) -> i64 {
        if gathering > 0 && gathering == self.gathering && self.left > 0 {
            self.left -= 1;
        } else {
            *self = Time { wall_ns: clock::wall_ns(), left: SAME - 1, gathering };
        }
        self.wall_ns
    }
}

#[cfg(test)]
mod tests {
    use std::{thread, time::Duration};

    use super::*;

    /// Whether each message has another time than the one before it.
    fn changes(gathering: impl Iterator<Item = u64>) -> Vec<bool> {
        let (mut time, mut last) = (Time::default(), 0);
        let times = gathering.map(|gathering| {
            thread::sleep(Duration::from_millis(1));
            let before = std::mem::replace(&mut last, time.of(gathering));
            before != last
        });
        times.collect()
    }

    #[test]
    fn only_messages_that_are_gathered_under_one_number_share_a_time() {
        let at = |changes: Vec<bool>| changes.iter().enumerate().filter(|(_, is)| **is).map(|(at, _)| at).collect();
        let all: Vec<usize> = at(changes([0; 5].into_iter()));
        assert_eq!(all, [0, 1, 2, 3, 4]);
        let some: Vec<usize> = at(changes([0, 1, 1, 1, 2, 2, 0, 2].into_iter()));
        assert_eq!(some, [0, 1, 4, 6, 7]);
        let few: Vec<usize> = at(changes([1; 20].into_iter()));
        assert_eq!(few, [0, 8, 16]);
    }
}
