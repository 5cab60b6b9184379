//! The worker's part for writers of programs that are not nodes and that change what they offer.

use std::sync::Arc;

use polywire_core::{
    envelope::{Announcement, ChannelId},
    frame::Start,
};
use polywire_dds::Guid;

use super::{
    super::{dispatch::Dispatch, kept, peer::Gate},
    Worker,
};

impl Worker {
    /// Replaces the channel of a writer if the writer's offer has changed: the node applies the
    /// offer of a channel to all its messages.
    ///
    /// The new channel is announced before the old one retires, as publishers do when they change
    /// their wire. So the node goes on with the writer's numbers, instances and lease. The reader
    /// stays, and samples wait until the node has answered the new channel.
    pub(super) fn renew_offer(&mut self, dispatch: &mut Dispatch, writer: Guid, old: ChannelId, offer: Vec<u8>) {
        let participant = writer.participant();
        let (link, announcement, history, channel, of_history, old_history) = {
            let mut state = self.shared.state.lock();
            let Some(peer) = state.peers.get_mut(&participant) else { return };
            let Some(link) = peer.link.clone() else { return };
            if peer.incoming.get(&old).is_none_or(|incoming| incoming.announcement.offer == offer) {
                return;
            }
            let Some(mut incoming) = peer.incoming.remove(&old) else { return };
            let announcement = Announcement { offer, ..Announcement::clone(&incoming.announcement) };
            incoming.announcement = Arc::new(announcement.clone());
            incoming.is_answered = false;
            if let (Some(route), Some(reading)) = (dispatch.route(writer), &mut incoming.reading) {
                reading.gate = Gate::Open(route.place);
                // The new channel does not bring these messages.
                incoming.has_missed = true;
            }
            let old_history = incoming.history.take();
            let history = kept::history_of(writer, &announcement);
            let (channel, of_history) = peer.add_writer(writer, incoming, history.as_ref());
            state.types.ended((participant, old));
            (link, announcement, history, channel, of_history, old_history)
        };
        dispatch.shut(writer);
        link.sink.announced(channel, Start::default(), &announcement);
        if let Some((channel, announcement)) = of_history.zip(history) {
            link.sink.announced(channel, Start::default(), &announcement);
        }
        old_history.into_iter().for_each(|history| self.forget_history(&link, writer, history));
        link.sink.retired(old);
    }
}
