//! Benchmark of Polywire's CDR beside other kinds of serialisation that the papers compare with:
//! formats without names or numbers of members (`postcard`), an archive that is readable in place
//! (`rkyv`), and dynamic objects that are encoded as MessagePack.

use polywire_core::program::Backend;
use polywire_workloads::{CodecsTest10, CodecsTest500, Floats, MarketData, ProcessorProbe};

use super::{
    Measured, Subject,
    serde_peers::{Peer, decode, encode, rows_of},
};
use crate::{
    measure::{Candidate, Effort},
    report::{Group, Row},
};

pub fn group(effort: Effort) -> Group {
    let (rows, lengths): (Vec<[Row; 2]>, Vec<Lengths>) = [
        rows::<MarketData>(effort, peers::market_data()),
        rows::<CodecsTest10>(effort, peers::codecs_test()),
        rows::<CodecsTest500>(effort, peers::many_members()),
        rows::<ProcessorProbe>(effort, peers::processor_probe()),
        rows::<Floats>(effort, peers::floats()),
    ]
    .into_iter()
    .unzip();
    let note = "Times are multiples of Polywire's CDR with a derived type, which decodes into one value and reuses it; the others decode \
         into new values. *Dynamic objects* are trees of values in the order of the members, built and taken apart for each message. \
         First, the mean bytes of a message:"
        .into();
    let left_out = match cfg!(feature = "peers") {
        true => Vec::new(),
        false => vec!["postcard, rkyv and dynamic objects (need the feature `peers`)".into()],
    };
    let rows = rows.into_iter().flatten().collect();
    Group { title: "Alternatives", note, lengths: table(&lengths), rows, left_out, ..Group::default() }
}

/// The mean length of each candidate's messages of a type, in bytes.
struct Lengths {
    workload: &'static str,
    of: Vec<(&'static str, usize)>,
}

/// One line per type, one column per candidate.
fn table(lengths: &[Lengths]) -> Vec<Vec<String>> {
    let mut names: Vec<&'static str> = Vec::new();
    for (name, _) in lengths.iter().flat_map(|lengths| &lengths.of) {
        if !names.contains(name) {
            names.push(*name);
        }
    }
    let heading: Vec<String> = ["message"].iter().chain(&names).map(|name| name.to_string()).collect();
    let line = |lengths: &Lengths| -> Vec<String> {
        let cell = |name: &&'static str| {
            let found = lengths.of.iter().find(|(of, _)| of == name);
            found.map_or_else(|| String::from("-"), |(_, bytes)| bytes.to_string())
        };
        [lengths.workload.to_string()].into_iter().chain(names.iter().map(cell)).collect()
    };
    [heading].into_iter().chain(lengths.iter().map(line)).collect()
}

/// The rows of encoding and decoding, and the mean length of each candidate's messages.
fn rows<T: Measured>(effort: Effort, peers: Vec<Peer<T>>) -> ([Row; 2], Lengths) {
    let subject = Subject::<T>::new();
    let ours = subject.encoded("cdr");
    let theirs: Vec<Vec<Vec<u8>>> = peers.iter().map(|peer| written(&subject, peer)).collect();
    let mut encoders = vec![Candidate::new("cdr", subject.encode("cdr", Backend::Jit))];
    encoders.extend(peers.iter().map(|peer| encode(peer, subject.messages()).without_bar()));
    let mut decoders = vec![Candidate::new("cdr", subject.decode("cdr", Backend::Jit, &ours))];
    decoders.extend(peers.iter().zip(&theirs).map(|(peer, encoded)| decode(peer, encoded).without_bar()));
    let mean = |encoded: &[Vec<u8>]| encoded.iter().map(Vec::len).sum::<usize>() / encoded.len().max(1);
    let length = |(peer, encoded): (&Peer<T>, &Vec<Vec<u8>>)| (peer.name, mean(encoded));
    let of = [("cdr", mean(&ours))].into_iter().chain(peers.iter().zip(&theirs).map(length)).collect();
    (rows_of(&subject, &ours, encoders, decoders, effort), Lengths { workload: T::NAME, of })
}

/// The peer's encoding of each message. Panics unless the peer decodes it to the same value.
fn written<T: Measured>(subject: &Subject<T>, peer: &Peer<T>) -> Vec<Vec<u8>> {
    let write = |message: &T| {
        let mut bytes = Vec::new();
        (peer.write)(message, &mut bytes);
        assert!((peer.read)(&bytes) == *message, "{} does not read its own {}", peer.name, T::NAME);
        bytes
    };
    subject.messages().iter().map(write).collect()
}

#[cfg(not(feature = "peers"))]
mod peers {
    use super::*;

    pub fn market_data() -> Vec<Peer<MarketData>> {
        Vec::new()
    }

    pub fn codecs_test() -> Vec<Peer<CodecsTest10>> {
        Vec::new()
    }

    pub fn many_members() -> Vec<Peer<CodecsTest500>> {
        Vec::new()
    }

    pub fn processor_probe() -> Vec<Peer<ProcessorProbe>> {
        Vec::new()
    }

    pub fn floats() -> Vec<Peer<Floats>> {
        Vec::new()
    }
}

#[cfg(feature = "peers")]
mod peers {
    use rkyv::rancor::Error;

    use super::*;

    pub fn market_data() -> Vec<Peer<MarketData>> {
        vec![postcard(), rkyv(), objects()]
    }

    pub fn codecs_test() -> Vec<Peer<CodecsTest10>> {
        vec![postcard(), rkyv(), objects()]
    }

    /// Without `rkyv`: compiling its derived code for 500 members takes long.
    pub fn many_members() -> Vec<Peer<CodecsTest500>> {
        vec![postcard(), objects()]
    }

    pub fn processor_probe() -> Vec<Peer<ProcessorProbe>> {
        vec![postcard(), rkyv(), objects()]
    }

    pub fn floats() -> Vec<Peer<Floats>> {
        vec![postcard(), rkyv(), objects()]
    }

    fn postcard<T: Measured>() -> Peer<T> {
        Peer {
            name: "postcard",
            write: |message, out| *out = postcard::to_extend(message, std::mem::take(out)).expect("encoding succeeds"),
            read: |bytes| postcard::from_bytes(bytes).expect("decoding succeeds"),
        }
    }

    /// `from_bytes` validates the bytes before it decodes them.
    fn rkyv<T>() -> Peer<T>
    where
        T: Measured + rkyv::Archive,
        T: for<'a> rkyv::Serialize<
                rkyv::api::high::HighSerializer<Vec<u8>, rkyv::ser::allocator::ArenaHandle<'a>, Error>,
            >,
        T::Archived: for<'a> rkyv::bytecheck::CheckBytes<rkyv::api::high::HighValidator<'a, Error>>
            + rkyv::Deserialize<T, rkyv::api::high::HighDeserializer<Error>>,
    {
        Peer {
            name: "rkyv",
            write: |message, out| {
                *out =
                    rkyv::api::high::to_bytes_in::<_, Error>(message, std::mem::take(out)).expect("encoding succeeds");
            },
            read: |bytes| rkyv::from_bytes::<T, Error>(bytes).expect("decoding succeeds"),
        }
    }

    fn objects<T: Measured>() -> Peer<T> {
        Peer {
            name: "dynamic objects",
            write: |message, out| {
                let object = rmpv::ext::to_value(message).expect("the message can become an object");
                rmpv::encode::write_value(out, &object).expect("encoding succeeds");
            },
            read: |mut bytes| {
                let object = rmpv::decode::read_value(&mut bytes).expect("decoding succeeds");
                rmpv::ext::from_value(object).expect("the object has the members of the type")
            },
        }
    }
}
