//! Counts the subscribers that `polywire pub` reached, and the messages that they may have missed
//! because a link broke.

use polywire::engine::Sent;

/// The numbers of subscribers that messages went to, from the first message to the last.
#[derive(Debug, Default)]
pub struct Reach {
    least: Option<usize>,
    most: usize,
    last: usize,
    /// Whether the last message was held for nodes that had not answered yet.
    last_held: bool,
    /// Whether any message was held.
    any_held: bool,
    fall: Option<Fall>,
    unheard: u64,
}

/// A decrease of the number of subscribers. It is not known yet whether they closed their links or
/// the links broke.
#[derive(Debug)]
struct Fall {
    /// The number of subscribers before the decrease.
    before: usize,
    /// The number of messages published since the decrease.
    messages: u64,
    /// The number of links that had broken before the decrease.
    broken: u64,
}

impl Reach {
    /// Counts a published message. `broken` is the number of links that have broken so far.
    pub fn add(&mut self, sent: &Sent, broken: u64) {
        let now = sent.subscribers;
        self.last_held = sent.held > 0;
        self.any_held |= self.last_held;
        if !self.last_held {
            self.least = Some(self.least.map_or(now, |least| least.min(now)));
            self.fall(now, broken);
        }
        self.most = self.most.max(now);
        self.last = now;
    }

    /// Counts messages while subscribers are missing. A subscriber whose link broke returns later,
    /// but does not receive the messages published in between.
    fn fall(&mut self, now: usize, broken: u64) {
        if self.fall.as_ref().is_some_and(|fall| now >= fall.before) {
            self.end_fall(broken);
        }
        if now < self.last && self.fall.is_none() {
            // The break that caused this decrease may be counted already, or will be counted soon.
            self.fall = Some(Fall { before: self.last, messages: 0, broken: broken.saturating_sub(1) });
        }
        self.fall.iter_mut().for_each(|fall| fall.messages += 1);
    }

    fn end_fall(&mut self, broken: u64) {
        if let Some(fall) = self.fall.take().filter(|fall| broken > fall.broken) {
            self.unheard += fall.messages;
        }
    }

    /// Ends the count, when all messages have been sent. `now` is the current number of
    /// subscribers.
    pub fn end(&mut self, now: usize, messages: u64, broken: u64) {
        self.end_fall(broken);
        if self.last_held || messages == 0 {
            self.last = self.last.max(now);
        }
        if self.any_held {
            self.most = self.most.max(now);
        }
    }

    /// Returns the number of subscribers that the last message was sent to.
    pub fn last(&self) -> usize {
        self.last
    }

    /// Returns the number of messages published after a subscriber's link broke and before the
    /// subscriber returned.
    pub fn unheard(&self) -> u64 {
        self.unheard
    }

    /// Returns the lowest and the highest number of subscribers, if they differ.
    pub fn range(&self) -> Option<(usize, usize)> {
        let least = self.least.unwrap_or(self.last).min(self.last);
        (least < self.most).then_some((least, self.most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Counts messages, each given by its number of subscribers and the number of links broken so
    /// far.
    fn reach(messages: &[(usize, u64)], now: usize) -> Reach {
        let mut reach = Reach::default();
        for (subscribers, broken) in messages {
            reach.add(&Sent { subscribers: *subscribers, ..Sent::default() }, *broken);
        }
        let broken = messages.last().map_or(0, |(_, broken)| *broken);
        reach.end(now, messages.len() as u64, broken);
        reach
    }

    #[test]
    fn the_last_message_counts_and_what_was_before_is_said() {
        let steady = reach(&[(2, 0), (2, 0)], 0);
        assert_eq!((steady.last(), steady.range(), steady.unheard()), (2, None, 0), "they left after the last message");
        let late = reach(&[(0, 0), (0, 0), (1, 0)], 1);
        assert_eq!((late.last(), late.range(), late.unheard()), (1, Some((0, 1)), 0));
        let left = reach(&[(1, 0), (1, 0), (0, 0), (0, 0)], 0);
        assert_eq!((left.last(), left.range(), left.unheard()), (0, Some((0, 1)), 0), "in good order: nothing is lost");
        assert_eq!(reach(&[], 3).last(), 3);
    }

    #[test]
    fn what_is_published_while_a_broken_link_is_away_is_unheard() {
        assert_eq!(reach(&[(2, 0), (1, 0), (0, 1), (0, 1), (2, 1), (2, 1)], 2).unheard(), 3);
        assert_eq!(reach(&[(2, 0), (1, 1), (1, 1)], 2).unheard(), 2, "also when it does not come back");
    }

    #[test]
    fn held_messages_reach_those_that_answer() {
        let mut reach = Reach::default();
        reach.add(&Sent { peers: 1, held: 1, ..Sent::default() }, 0);
        reach.end(1, 1, 0);
        assert_eq!((reach.last(), reach.range()), (1, None));
    }
}
