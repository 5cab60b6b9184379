//! Whom published messages reached, and what may be lost.

use polywire::engine::Sent;

/// Subscribers that messages went to, from the first to the last.
#[derive(Debug, Default)]
pub struct Reach {
    least: Option<usize>,
    most: usize,
    last: usize,
    /// Of the last message, and of any: held for nodes that had not answered yet.
    last_held: bool,
    any_held: bool,
    fall: Option<Fall>,
    unheard: u64,
}

/// Subscribers have gone; it has to turn out whether in good order.
#[derive(Debug)]
struct Fall {
    before: usize,
    messages: u64,
    /// Links that had broken before.
    broken: u64,
}

impl Reach {
    /// A message was published; so many links have broken so far.
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

    /// A subscriber whose link broke comes back: what is published meanwhile, it does not get.
    fn fall(&mut self, now: usize, broken: u64) {
        if self.fall.as_ref().is_some_and(|fall| now >= fall.before) {
            self.end_fall(broken);
        }
        if now < self.last && self.fall.is_none() {
            // What breaks a link is told just after it.
            self.fall = Some(Fall { before: self.last, messages: 0, broken: broken.saturating_sub(1) });
        }
        self.fall.iter_mut().for_each(|fall| fall.messages += 1);
    }

    fn end_fall(&mut self, broken: u64) {
        if let Some(fall) = self.fall.take().filter(|fall| broken > fall.broken) {
            self.unheard += fall.messages;
        }
    }

    /// Everything has left, to so many subscribers that are there now.
    pub fn end(&mut self, now: usize, messages: u64, broken: u64) {
        self.end_fall(broken);
        if self.last_held || messages == 0 {
            self.last = self.last.max(now);
        }
        if self.any_held {
            self.most = self.most.max(now);
        }
    }

    /// Those that the last message went to.
    pub fn last(&self) -> usize {
        self.last
    }

    /// Messages published while a subscriber whose link had broken was away.
    pub fn unheard(&self) -> u64 {
        self.unheard
    }

    /// Fewest and most at a time, where these differ.
    pub fn range(&self) -> Option<(usize, usize)> {
        let least = self.least.unwrap_or(self.last).min(self.last);
        (least < self.most).then_some((least, self.most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the numbers of subscribers, and of links broken after each message, lead to.
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
