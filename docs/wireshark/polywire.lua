-- Wireshark dissector for Polywire's frames over TCP (spec/frame.md, version 1).
--
-- Copy this file to the folder of personal Lua plugins (Help, About Wireshark, Folders), or name it
-- on the command line:
--
--     tshark -X lua_script:docs/wireshark/polywire.lua -r capture.pcapng -Y polywire
--
-- A stream is recognised by its Hello frame, on any TCP port, so the capture must contain the
-- beginning of the connection. If it does not, choose "Decode As" for the TCP port. Frames are then
-- dissected without the data of earlier announcements.

local polywire = Proto("polywire", "Polywire")

local MAGIC = "504c5957"
local LONGEST_FRAME = 256 * 1024 * 1024

local CONTROL = {
  [0x01] = "Hello", [0x02] = "Announce", [0x03] = "Answer", [0x04] = "Retire", [0x05] = "Position",
  [0x06] = "Want", [0x07] = "Document", [0x08] = "Heartbeat", [0x09] = "Bye", [0x40] = "Taken",
  [0x42] = "Offer", [0x43] = "Offer", [0x48] = "Lease", [0x4a] = "Relay",
}
local KINDS = { [0] = "Data", [1] = "Dispose", [2] = "Unregister", [3] = "Request", [4] = "Reply" }
local ANSWERS = { [0] = "Accept", [1] = "Decline", [2] = "Refuse", [3] = "Accept in part", [4] = "Renew" }
-- Codecs for which Wireshark has a dissector, and its name.
local PAYLOADS = { json = "json", cbor = "cbor", msgpack = "messagepack", xml = "xml", ["xml-dom"] = "xml" }

local f = {
  length = ProtoField.uint32("polywire.length", "Length"),
  head = ProtoField.uint8("polywire.head", "Head", base.HEX),
  frame = ProtoField.string("polywire.frame", "Frame"),
  version = ProtoField.uint8("polywire.version", "Version"),
  node = ProtoField.bytes("polywire.node", "Node"),
  incarnation = ProtoField.uint64("polywire.incarnation", "Incarnation"),
  channel = ProtoField.uint32("polywire.channel", "Channel"),
  sequence = ProtoField.uint64("polywire.sequence", "Sequence number"),
  time = ProtoField.absolute_time("polywire.time", "Time", base.UTC),
  gap = ProtoField.uint64("polywire.gap", "Gap"),
  anchor = ProtoField.uint64("polywire.anchor", "Key frame"),
  key = ProtoField.bytes("polywire.key_hash", "Key hash"),
  extensions = ProtoField.bytes("polywire.extensions", "Extensions"),
  writer = ProtoField.bytes("polywire.writer", "Writer"),
  type_hash = ProtoField.bytes("polywire.type_hash", "Type hash"),
  schema = ProtoField.bytes("polywire.schema", "Schema document"),
  configuration = ProtoField.bytes("polywire.configuration", "Configuration document"),
  topic = ProtoField.string("polywire.topic", "Topic"),
  type_name = ProtoField.string("polywire.type", "Type"),
  codec = ProtoField.string("polywire.codec", "Codec"),
  options = ProtoField.string("polywire.options", "Codec options"),
  compressor = ProtoField.string("polywire.compressor", "Compressor"),
  answer = ProtoField.string("polywire.answer", "Answer"),
  reason = ProtoField.string("polywire.reason", "Reason"),
  subscribers = ProtoField.uint32("polywire.subscribers", "Subscribers"),
  lost = ProtoField.uint64("polywire.lost", "Lost messages"),
  taken = ProtoField.uint64("polywire.taken", "Messages taken"),
  lease = ProtoField.uint64("polywire.lease", "Lease in milliseconds"),
  document = ProtoField.bytes("polywire.document", "Document"),
  bytes = ProtoField.bytes("polywire.bytes", "Bytes"),
  payload = ProtoField.bytes("polywire.payload", "Payload"),
}
polywire.fields = f
local malformed = ProtoExpert.new("polywire.malformed", "Malformed frame", expert.group.MALFORMED, expert.severity.ERROR)
polywire.experts = { malformed }

-- `channels` has the open channels by direction and id. `results` has the result of each data frame
-- by packet and frame number, because later passes visit packets in any order.
local channels, results = {}, {}

function polywire.init()
  channels, results = {}, {}
end

-- Reads the fields of one frame in order. It raises an error if the frame ends too early.
local Reader = {}
Reader.__index = Reader

function Reader.new(tvb, tree)
  return setmetatable({ tvb = tvb, at = 0, tree = tree }, Reader)
end

function Reader:range(size)
  if self.at + size > self.tvb:len() then error("the frame ends too early", 0) end
  self.at = self.at + size
  return self.tvb(self.at - size, size)
end

function Reader:byte()
  return self:range(1):uint()
end

-- Reads a varint. Returns it as UInt64, and its range of bytes.
function Reader:varint()
  local first, value = self.at, UInt64.new(0)
  for shift = 0, 63, 7 do
    local byte = self:byte()
    value = value:bor(UInt64.new(byte % 128):lshift(shift))
    if byte < 128 then return value, self.tvb(first, self.at - first) end
  end
  error("a varint is too long", 0)
end

function Reader:add_varint(field)
  local value, range = self:varint()
  self.tree:add(field, range, value)
  return value
end

function Reader:add_small(field)
  local value, range = self:varint()
  self.tree:add(field, range, value:tonumber())
  return value:tonumber()
end

function Reader:add_bytes(field, size)
  if size > 0 then self.tree:add(field, self:range(size)) end
end

function Reader:add_incarnation()
  local range = self:range(8)
  self.tree:add(f.incarnation, range, range:le_uint64())
end

function Reader:add_text(field)
  local size = self:varint():tonumber()
  if size == 0 then return "" end
  local range = self:range(size)
  local text = range:string(ENC_UTF_8)
  self.tree:add(field, range, text)
  return text
end

function Reader:rest()
  return self.tvb:len() - self.at
end

local function as_time(ns)
  local billion = Int64.new(1000000000)
  return NSTime.new((ns / billion):tonumber(), (ns % billion):tonumber())
end

local function zigzag(value)
  local half = value:rshift(1)
  local number = Int64.new(half:lower(), half:higher())
  if value:band(1):tonumber() == 1 then return -number - Int64.new(1) end
  return number
end

-- Sequence number and time of the last message, from which those of the next message are computed.
function Reader:start()
  local sequence = self:add_varint(f.sequence)
  local range = self:range(8)
  local time = range:le_int64()
  self.tree:add(f.time, range, as_time(time))
  return sequence, time
end

local control = {}

control[0x01] = function(reader)
  reader:range(4)
  reader.tree:add(f.version, reader:range(1))
  reader:add_bytes(f.node, 16)
  reader:add_incarnation()
  return "Hello"
end

control[0x02] = function(reader, direction, first_pass)
  local id = reader:add_small(f.channel)
  local channel = {}
  channel.sequence, channel.time = reader:start()
  reader:add_bytes(f.writer, 16)
  reader:add_incarnation()
  reader:add_bytes(f.type_hash, 16)
  reader:add_bytes(f.schema, 16)
  if reader:byte() == 1 then reader:add_bytes(f.configuration, 16) end
  channel.topic = reader:add_text(f.topic)
  reader:add_text(f.type_name)
  channel.codec = reader:add_text(f.codec)
  reader:add_text(f.options)
  channel.compressor = reader:add_text(f.compressor)
  if first_pass then channels[direction .. id] = channel end
  return string.format("Announce %d: %s as %s", id, channel.topic, channel.codec)
end

control[0x03] = function(reader)
  local id = reader:add_small(f.channel)
  local range = reader:range(1)
  local number = range:uint()
  local answer = ANSWERS[number] or "unknown answer"
  reader.tree:add(f.answer, range, answer)
  if number == 2 or number == 3 then reader:add_text(f.reason) end
  local said = string.format("%s %d", answer, id)
  while reader:rest() > 0 do
    local extension, size = reader:varint():tonumber(), reader:varint():tonumber()
    if extension == 2 then
      said = string.format("%s for %d", said, reader:add_small(f.subscribers))
    else
      reader:add_bytes(f.extensions, size)
    end
  end
  return said
end

control[0x04] = function(reader)
  return string.format("Retire %d", reader:add_small(f.channel))
end

control[0x05] = function(reader, direction, first_pass)
  local id = reader:add_small(f.channel)
  local sequence, time = reader:start()
  local channel = channels[direction .. id]
  if first_pass and channel then channel.sequence, channel.time = sequence, time end
  return string.format("Position %d: %s lost", id, tostring(reader:add_varint(f.lost)))
end

control[0x06] = function(reader)
  reader:add_bytes(f.document, 16)
  return "Want"
end

control[0x07] = function(reader)
  reader:add_bytes(f.document, 16)
  if reader:byte() == 0 then return "Document: not there" end
  local size = reader:rest()
  reader:add_bytes(f.bytes, size)
  return string.format("Document of %d bytes", size)
end

control[0x08] = function() return "Heartbeat" end
control[0x09] = function() return "Bye" end

control[0x40] = function(reader)
  return string.format("Taken %s", tostring(reader:add_varint(f.taken)))
end

control[0x42] = function(reader)
  local id = reader:add_small(f.channel)
  reader:add_bytes(f.extensions, reader:rest())
  return string.format("Offer for %d", id)
end

control[0x43] = control[0x42]

control[0x48] = function(reader)
  return string.format("Lease of %s ms", tostring(reader:add_varint(f.lease)))
end

control[0x4a] = function() return "Relay" end

-- Returns bit `number` of the head.
local function has(head, number)
  return math.floor(head / 2 ^ number) % 2 == 1
end

local function dissect_data(reader, head, direction, first_pass, place, pinfo, root)
  local id = reader:add_small(f.channel)
  local gap = has(head, 3) and reader:add_varint(f.gap) or UInt64.new(0)
  local delta, time_range = reader:varint()
  local channel = channels[direction .. id]
  if first_pass and channel then
    channel.sequence = channel.sequence + UInt64.new(1) + gap
    channel.time = channel.time + zigzag(delta)
    results[place] = {
      sequence = channel.sequence, time = channel.time, topic = channel.topic, codec = channel.codec, compressor = channel.compressor,
    }
  end
  local known = results[place]
  if known then
    reader.tree:add(f.sequence, known.sequence):set_generated()
    reader.tree:add(f.time, time_range, as_time(known.time))
    reader.tree:add(f.topic, known.topic):set_generated()
    reader.tree:add(f.codec, known.codec):set_generated()
  end
  if has(head, 4) then reader:add_bytes(f.key, 16) end
  if has(head, 5) then
    local back, range = reader:varint()
    if known then reader.tree:add(f.anchor, range, known.sequence - back) end
  end
  if has(head, 6) then reader:add_bytes(f.extensions, reader:varint():tonumber()) end
  local size = reader:rest()
  if size > 0 then
    local range = reader:range(size)
    reader.tree:add(f.payload, range)
    local name = known and known.compressor == "" and PAYLOADS[known.codec]
    local found = name and pcall(Dissector.get, name)
    if found then pcall(function() Dissector.get(name):call(range:tvb(), pinfo, root) end) end
  end
  local kind = KINDS[head % 8] or "unknown kind"
  if not known then return string.format("%s on %d", kind, id) end
  return string.format("%s %s #%s, %d bytes", kind, known.topic, tostring(known.sequence), size)
end

-- Dissects one frame, which begins with its length.
local function dissect_frame(range, head_at, pinfo, root, direction, place)
  local tree = root:add(polywire, range)
  tree:add(f.length, range(0, head_at), range:len() - head_at)
  local body = range(head_at):tvb()
  local reader = Reader.new(body, tree)
  local head = reader:byte()
  tree:add(f.head, body(0, 1))
  local first_pass = not pinfo.visited
  local fine, said = pcall(function()
    if head >= 0x80 then return dissect_data(reader, head, direction, first_pass, place, pinfo, root) end
    if not control[head] and head >= 0x40 and head % 2 == 0 then return "unknown frame, may be passed over" end
    if not control[head] then error("the head is unknown", 0) end
    return control[head](reader, direction, first_pass)
  end)
  if not fine then
    tree:add_proto_expert_info(malformed, tostring(said))
    said = "malformed frame"
  end
  tree:add(f.frame, body(0, 1), head >= 0x80 and (KINDS[head % 8] or "Data") or CONTROL[head] or "unknown"):set_generated()
  tree:append_text(", " .. said)
  return said
end

-- Reads the length of the frame at an offset. Returns the length of the whole frame, with the
-- length field, and the size of the length field; or nothing if more bytes are needed.
local function frame_length(tvb, at)
  local length, scale = 0, 1
  for i = 0, 4 do
    if at + i >= tvb:len() then return nil end
    local byte = tvb(at + i, 1):uint()
    length, scale = length + byte % 128 * scale, scale * 128
    if byte < 128 then return length + i + 1, i + 1 end
  end
  return LONGEST_FRAME + 1, 5
end

function polywire.dissector(tvb, pinfo, root)
  local direction = string.format("%s:%d>%s:%d/", tostring(pinfo.src), pinfo.src_port, tostring(pinfo.dst), pinfo.dst_port)
  local at, said = 0, {}
  -- Wireshark calls this function several times for a packet in which a reassembled frame ends and
  -- others follow.
  local before = tonumber(pinfo.private.polywire_frames or 0)
  pinfo.cols.protocol = "Polywire"
  while at < tvb:len() do
    local length, head_at = frame_length(tvb, at)
    if length and length > LONGEST_FRAME then
      root:add(polywire, tvb(at)):add_proto_expert_info(malformed, "a length is beyond all limits")
      break
    end
    if not length or at + length > tvb:len() then
      pinfo.desegment_offset = at
      pinfo.desegment_len = length and at + length - tvb:len() or DESEGMENT_ONE_MORE_SEGMENT
      break
    end
    local place = string.format("%d/%d", pinfo.number, before + #said)
    said[#said + 1] = dissect_frame(tvb(at, length), head_at, pinfo, root, direction, place)
    at = at + length
  end
  if #said > 0 then
    local text = table.concat(said, "; ")
    if before == 0 then pinfo.cols.info:set(text) else pinfo.cols.info:append("; " .. text) end
    pinfo.cols.info:fence()
    pinfo.private.polywire_frames = tostring(before + #said)
  end
  return tvb:len()
end

-- If the first frame of a stream is a Hello, the whole connection is dissected as Polywire, in both
-- directions.
polywire:register_heuristic("tcp", function(tvb, pinfo, root)
  if tvb:len() < 6 or tvb(1, 1):uint() ~= 1 or tvb(2, 4):bytes():tohex():lower() ~= MAGIC then return false end
  pinfo.conversation = polywire
  polywire.dissector(tvb, pinfo, root)
  return true
end)

DissectorTable.get("tcp.port"):add_for_decode_as(polywire)
