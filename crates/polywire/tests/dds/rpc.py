"""A client or a server of DDS-RPC's basic service mapping, on Eclipse Cyclone DDS.

    rpc.py serve DOMAIN VERSION     serves plant/add; refuses negative numbers with REMOTE_EX_INVALID_ARGUMENT
    rpc.py call DOMAIN VERSION      calls plant/add twice and prints the replies; the second number is negative

VERSION is 1 or 2, of XCDR. It ends when its standard input does.
"""

import sys
import threading
import time
from dataclasses import dataclass
from enum import auto

from cyclonedds.core import Policy, Qos
from cyclonedds.domain import DomainParticipant
from cyclonedds.idl import IdlEnum, IdlStruct
from cyclonedds.idl.annotations import final
from cyclonedds.idl.types import array, bounded_str, byte, int32, int64, uint8, uint32
from cyclonedds.pub import DataWriter
from cyclonedds.sub import DataReader
from cyclonedds.topic import Topic
from cyclonedds.util import duration


@dataclass
@final
class EntityId_t(IdlStruct, typename="dds.EntityId_t"):
    entityKey: array[byte, 3]
    entityKind: byte


@dataclass
@final
class GUID_t(IdlStruct, typename="dds.GUID_t"):
    guidPrefix: array[byte, 12]
    entityId: EntityId_t


@dataclass
@final
class SequenceNumber_t(IdlStruct, typename="dds.SequenceNumber_t"):
    high: int32
    low: uint32


@dataclass
@final
class SampleIdentity(IdlStruct, typename="dds.SampleIdentity"):
    writer_guid: GUID_t
    sequence_number: SequenceNumber_t


@final
class RemoteExceptionCode_t(IdlEnum, typename="dds.rpc.RemoteExceptionCode_t", default="REMOTE_EX_OK"):
    REMOTE_EX_OK = 0
    REMOTE_EX_UNSUPPORTED = auto()
    REMOTE_EX_INVALID_ARGUMENT = auto()
    REMOTE_EX_OUT_OF_RESOURCES = auto()
    REMOTE_EX_UNKNOWN_OPERATION = auto()
    REMOTE_EX_UNKNOWN_EXCEPTION = auto()


@dataclass
@final
class RequestHeader(IdlStruct, typename="dds.rpc.RequestHeader"):
    requestId: SampleIdentity
    instanceName: bounded_str[255]


@dataclass
@final
class ReplyHeader(IdlStruct, typename="dds.rpc.ReplyHeader"):
    relatedRequestId: SampleIdentity
    remoteEx: RemoteExceptionCode_t


@dataclass
@final
class Call(IdlStruct, typename="plant.Add_Call"):
    unit: uint8
    number: int64


@dataclass
@final
class Return(IdlStruct, typename="plant.Add_Return"):
    sum: int64
    text: str


@dataclass
@final
class Request(IdlStruct, typename="plant.Add_Request"):
    header: RequestHeader
    data: Call


@dataclass
@final
class Reply(IdlStruct, typename="plant.Add_Reply"):
    header: ReplyHeader
    data: Return


def say(text):
    print(text, flush=True)


def parts(identity):
    guid, number = identity.writer_guid, identity.sequence_number
    return [*guid.guidPrefix, *guid.entityId.entityKey, guid.entityId.entityKind, number.high, number.low]


def serve(reader, writer, ended):
    codes, total = RemoteExceptionCode_t, 0
    say("ready")
    while not ended.wait(0.002):
        for request in reader.take(100):
            if not request.sample_info.valid_data:
                continue
            number = request.data.number
            total += max(number, 0)
            code = codes.REMOTE_EX_OK if number >= 0 else codes.REMOTE_EX_INVALID_ARGUMENT
            writer.write(Reply(ReplyHeader(request.header.requestId, code), Return(total, "so far")))


def call(reader, writer, ended):
    while not (writer.get_matched_subscriptions() and reader.get_matched_publications()):
        time.sleep(0.005)
    guid = GUID_t([1] * 12, EntityId_t([2] * 3, 4))
    for number in (40, -1):
        identity = SampleIdentity(guid, SequenceNumber_t(1, 7 + number))
        writer.write(Request(RequestHeader(identity, "hall"), Call(3, number)))
        replies = []
        while not replies:
            time.sleep(0.002)
            replies = reader.take(1)
        [reply] = replies
        is_ours = parts(reply.header.relatedRequestId) == parts(identity)
        say(f"{is_ours} {reply.header.remoteEx.name} {reply.data.sum} {reply.data.text}")
    ended.wait()


def main():
    mode, domain, version = sys.argv[1:]
    member = DomainParticipant(int(domain))
    representation = Policy.DataRepresentation(version == "1", version == "2")
    qos = Qos(Policy.Reliability.Reliable(duration(seconds=10)), Policy.History.KeepAll, representation)
    requests, replies = Topic(member, "plant/add_Request", Request), Topic(member, "plant/add_Reply", Reply)
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    if mode == "serve":
        serve(DataReader(member, requests, qos=qos), DataWriter(member, replies, qos=qos), ended)
    else:
        call(DataReader(member, replies, qos=qos), DataWriter(member, requests, qos=qos), ended)


main()
