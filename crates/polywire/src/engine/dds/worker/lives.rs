//! The worker's part for the liveliness of writers of programs that are not nodes. Nodes assert the
//! liveliness of their publishers by messages.

use polywire_core::envelope::ChannelId;
use polywire_dds::Guid;

use super::{super::peer::EndId, Worker};

impl Worker {
    /// Handles a report of DDS about a writer of the reader `end`: the writer is alive, has missed
    /// its lease, or (`None`) no longer matches.
    pub(super) fn lives(&self, end: EndId, writer: u64, is_alive: Option<bool>) {
        let end = self.shared.state.lock().read_ends().find(|known| known.id == end);
        let Some(writer) = end.and_then(|end| end.silent.note(&end.reader, writer, is_alive)) else { return };
        let channel = {
            let state = self.shared.state.lock();
            state.peers.get(&writer.participant()).and_then(|peer| peer.by_writer.get(&writer)).copied()
        };
        channel.into_iter().for_each(|channel| self.report_liveliness(writer.participant(), channel));
    }

    /// Reports to the node whether the writer of a channel is alive. The node may know it already.
    pub(super) fn report_liveliness(&self, guid: Guid, channel: ChannelId) {
        let found = {
            let state = self.shared.state.lock();
            let peer = state.peers.get(&guid).filter(|peer| peer.node.is_none());
            peer.and_then(|peer| {
                let incoming = peer.incoming.get(&channel)?;
                let end = incoming.reading.as_ref()?.reader.clone()?;
                Some((peer.link.clone()?, incoming.writer?, end))
            })
        };
        if let Some((link, writer, end)) = found {
            link.sink.liveliness_changed(channel, !end.silent.has(writer));
        }
    }
}
