"""A program that knows only DDS: Eclipse Cyclone DDS, by its Python package.

    peer.py write DOMAIN TOPIC TYPE     waits for a reader, writes three samples, disposes of the first one unless it is a Note
    peer.py keep DOMAIN TOPIC TYPE      writes three samples at once, and keeps them for late joiners
    peer.py go DOMAIN TOPIC Pump        writes a sample every 10 ms
    peer.py store DOMAIN TOPIC Pump     the same, and keeps them for late joiners
    peer.py rise DOMAIN TOPIC Pump      writes a sample every 10 ms while it has a reader, with ownership, and offers more strength from the hundredth sample on
    peer.py lease DOMAIN TOPIC Pump     writes a sample every 10 ms, with a lease of one second
    peer.py manual DOMAIN TOPIC Pump    writes a sample every two seconds, which is longer than its lease, which it asserts by nothing else
    peer.py lively DOMAIN TOPIC Pump    requests a lease, asserted by the application, and prints how many writers are alive, and how many are not
    peer.py waits DOMAIN TOPIC Pump     the same, asserted by anybody
    peer.py hasty DOMAIN TOPIC Pump     the same, with a short lease, and prints the policy that does not match
    peer.py read DOMAIN TOPIC TYPE      prints each sample that it reads
    peer.py strict DOMAIN TOPIC TYPE    requests a deadline, and prints the policy that does not match
    peer.py any DOMAIN TOPIC -          reads a topic whose type it learns from its writer, and prints each sample

It ends when its standard input does.
"""

import itertools
import sys
import threading
import time
from dataclasses import dataclass

from cyclonedds.builtin import BuiltinDataReader, BuiltinTopicDcpsPublication
from cyclonedds.core import Listener, Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.dynamic import get_types_for_typeid
from cyclonedds.idl import IdlStruct
from cyclonedds.idl.annotations import appendable, final, key, mutable
from cyclonedds.idl.types import float64, int32, sequence, uint32
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration


@dataclass
@final
class Pump(IdlStruct, typename="plant.Pump"):
    id: uint32
    key("id")
    level: float64
    name: str


@dataclass
@final
class Note(IdlStruct, typename="plant.Note"):
    text: str
    marks: sequence[int32]


@dataclass
@appendable
class Grown(IdlStruct, typename="plant.Grown"):
    id: uint32
    key("id")
    level: float64


@dataclass
@appendable
class Taller(IdlStruct, typename="plant.Grown"):
    id: uint32
    key("id")
    level: float64
    unit: str


@dataclass
@mutable
class Loose(IdlStruct, typename="plant.Loose"):
    id: uint32
    key("id")
    level: float64
    name: str


def say(text):
    print(text, flush=True)


def values(of):
    if of is Note:
        return [Note(text=f"note {number}", marks=[number, -number]) for number in (1, 2, 3)]
    if of is Loose:
        return [Loose(id=number, level=number / 2, name=f"loose {number}") for number in (1, 2, 3)]
    if of is Taller:
        return [Taller(id=number, level=number / 2, unit="m") for number in (1, 2, 3)]
    if of is Grown:
        return [Grown(id=number, level=number / 2) for number in (1, 2, 3)]
    return [Pump(id=number, level=number / 2, name=f"pump {number}") for number in (1, 2, 3)]


class Told(Listener):
    def on_requested_incompatible_qos(self, reader, status):
        say(f"incompatible {status.last_policy_id}")


class Lively(Listener):
    on_requested_incompatible_qos = Told.on_requested_incompatible_qos

    def on_liveliness_changed(self, reader, status):
        say(f"alive {status.alive_count} {status.not_alive_count}")


def show(sample):
    state = {16: "alive", 32: "disposed"}.get(int(sample.sample_info.instance_state), "no writers")
    say(f"{state} {sample}" if sample.sample_info.valid_data else state)


def wait_for_end(read):
    """Calls `read` again and again until standard input ends."""
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    while not ended.wait(0.01):
        read()


def learned(member, topic_name):
    """The type that a topic's writer tells."""
    writers = BuiltinDataReader(member, BuiltinTopicDcpsPublication)
    while True:
        for writer in writers.take(100):
            if writer.sample_info.valid_data and writer.topic_name == topic_name:
                of, _ = get_types_for_typeid(member, writer.type_id, duration(seconds=20))
                return of
        time.sleep(0.01)


def main():
    mode, domain, topic_name, type_name = sys.argv[1:]
    member = DomainParticipant(int(domain))
    of = {"Pump": Pump, "Note": Note, "Grown": Grown, "Taller": Taller, "Loose": Loose}.get(type_name) or learned(member, topic_name)
    topic = Topic(member, topic_name, of)
    reliable = Policy.Reliability.Reliable(duration(seconds=10))
    # With transient local, DDS loses nothing while two programs are still finding each other.
    service = Policy.DurabilityService(0, Policy.History.KeepLast(10), -1, -1, -1)
    kept = Qos(reliable, Policy.Durability.TransientLocal, service)
    if mode in ("write", "keep"):
        writer = DataWriter(member, topic, qos=kept)
        while mode == "write" and not writer.get_matched_subscriptions():
            time.sleep(0.01)
        for value in values(of):
            writer.write(value)
        if of is not Note and mode == "write":
            writer.dispose(values(of)[0])
        say("ready")
        wait_for_end(lambda: None)
    elif mode == "manual":
        liveliness = Policy.Liveliness.ManualByTopic(duration(milliseconds=500))
        writer, numbers, last = DataWriter(member, topic, qos=Qos(reliable, liveliness)), itertools.count(1), [0]

        def write():
            if time.monotonic() >= last[0] + 2:
                writer.write(Pump(id=next(numbers), level=0.0, name=""))
                last[0] = time.monotonic()

        wait_for_end(write)
    elif mode == "rise":
        weak = Qos(reliable, Policy.History.KeepAll, Policy.Ownership.Exclusive, Policy.OwnershipStrength(1))
        writer, numbers = DataWriter(member, topic, qos=weak), itertools.count(1)

        def write():
            if writer.get_matched_subscriptions():
                if next(numbers) == 100:
                    writer.set_qos(Qos(Policy.OwnershipStrength(2)))
                writer.write(Pump(id=7, level=0.0, name=""))

        wait_for_end(write)
    elif mode in ("lively", "waits", "hasty"):
        kind = Policy.Liveliness.ManualByTopic if mode == "lively" else Policy.Liveliness.Automatic
        liveliness = kind(duration(milliseconds=100) if mode == "hasty" else duration(seconds=60))
        reader = DataReader(member, topic, qos=Qos(reliable, liveliness), listener=Lively())
        wait_for_end(lambda: reader.take(100))
    elif mode in ("go", "store", "lease"):
        leased = Qos(reliable, Policy.Liveliness.Automatic(duration(seconds=1)))
        qos = {"store": kept, "lease": leased}.get(mode, Qos(reliable))
        writer, numbers = DataWriter(member, topic, qos=qos), itertools.count(1)
        wait_for_end(lambda: writer.write(Pump(id=next(numbers), level=0.0, name="")))
    else:
        strict = [Policy.Deadline(duration(milliseconds=10))] if mode == "strict" else []
        told = Told()
        reader = DataReader(member, topic, qos=Qos(reliable, Policy.Durability.TransientLocal, Policy.History.KeepAll, *strict), listener=told)
        say("ready")
        wait_for_end(lambda: [show(sample) for sample in reader.take(100)])


main()
