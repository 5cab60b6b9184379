// The page: its connection to the collector, and what is done with what comes.

import { Plot, at, members, shown, unit } from './plot.js';
import { Recorded } from './recorded.js';
import { System, time } from './system.js';
import { Table, line } from './table.js';

const FORMATS = ['cdr', 'xcdr2', 'fast', 'protobuf', 'json', 'bson', 'msgpack', 'cbor', 'ubjson', 'xml', 'yaml'];
const ALERTS = 'telemetry/alerts';
const MAX_PLOTS = 200;
const MAX_ALERTS = 200;
// How long plots may be drawn in a frame, so that the page always answers.
const DRAW_MS = 10;
const LABEL_MS = 250;
const SETTLE_S = 5;
// How often a cost is looked at, once a second, until there is one.
const LOOKS = 20;

const find = (id) => document.getElementById(id);
const secret = location.hash.slice(1).match(/^[0-9a-f]{32}$/) ? location.hash.slice(1) : '';
// It is in no history and no address that somebody copies.
if (secret) history.replaceState(null, '', location.pathname);

const system = new System(find('edges').tBodies[0]);
const channels = new Map(); // number: topic
const topics = new Map(); // topic: { members, sample, schema }
const plots = [];
const plotted = new Map(); // topic: its plots
const replies = new Map();
const probeTable = new Table(find('probes').tBodies[0]);
const handlerTable = new Table(find('handlers').tBodies[0]);
const valueTable = new Table(find('values').tBodies[0]);
const controls = new Map(); // node and probe: { select, agent, probe, until }
const decoder = new TextDecoder();
const dark = matchMedia('(prefers-color-scheme: dark)');
const unitOf = (topic, member) => unit(topics.get(topic)?.schema, member);
let socket;
let held = false;
let commands = 0;
let colours = look();
const recorded = new Recorded({ topics: () => topics.keys(), unit: unitOf, colours: () => colours });

function connect() {
  const scheme = location.protocol === 'https:' ? 'wss' : 'ws';
  socket = new WebSocket(`${scheme}://${location.host}/`, ['foxglove.sdk.v1', 'foxglove.websocket.v1']);
  socket.binaryType = 'arraybuffer';
  socket.addEventListener('open', () => state('live', 'good'));
  socket.addEventListener('close', () => {
    state('the collector does not answer; trying again', 'bad');
    channels.clear();
    subscribed.clear();
    for (const done of replies.values()) done({ problem: 'the collector has gone' });
    replies.clear();
    setTimeout(connect, 1000);
  });
  socket.addEventListener('message', ({ data }) => {
    if (typeof data === 'string') told(JSON.parse(data)); else sampled(data);
  });
}

function state(text, kind) {
  find('state').textContent = text;
  find('state').className = kind;
}

function send(message) {
  if (socket.readyState === WebSocket.OPEN) socket.send(JSON.stringify(message));
}

function told(message) {
  if (message.op === 'advertise') advertised(message.channels);
  else if (message.op === 'system') pictured(message);
  else if (message.op === 'reply') replied(message);
  else if (message.op === 'status') state(message.message, 'bad');
}

function advertised(all) {
  for (const { id, topic, schema } of all) {
    channels.set(id, topic);
    topics.set(topic, { members: [], sample: undefined, ...topics.get(topic), schema: JSON.parse(schema) });
  }
  const before = find('topic').value;
  options(find('topic'), [...topics.keys()].sort());
  if (find('topic').value !== before) chosen(); else resubscribe();
}

const wants = (topic) => topic === ALERTS || topic === find('topic').value || plotted.has(topic);
const subscribe = (id) => send({ op: 'subscribe', subscriptions: [{ id, channelId: id }] });

const subscribed = new Set();
function resubscribe() {
  for (const [id, topic] of channels) {
    if (wants(topic) === subscribed.has(id)) continue;
    if (wants(topic)) subscribe(id); else send({ op: 'unsubscribe', subscriptionIds: [id] });
    if (wants(topic)) subscribed.add(id); else subscribed.delete(id);
  }
}

function sampled(data) {
  const view = new DataView(data);
  if (view.getUint8(0) !== 1) return;
  const topic = channels.get(view.getUint32(1, true));
  const time = Number(view.getBigUint64(5, true)) / 1e9;
  const sample = JSON.parse(decoder.decode(new Uint8Array(data, 13)));
  if (topic === ALERTS) return alerted(sample);
  const known = topics.get(topic);
  if (!known) return;
  known.sample = sample;
  if (!known.members.length) {
    known.members = members(sample);
    if (find('topic').value === topic) chosen();
  }
  for (const plot of plotted.get(topic) ?? []) plot.add(time, sample);
}

function pictured({ nodes, agents, handlers, archives }) {
  system.take(nodes);
  system.draw(find('picture'));
  system.fill();
  find('no-edges').hidden = system.edges.length > 0;
  probes(agents);
  handled(handlers);
  recorded.offer(archives);
}

function handled(handlers) {
  handlerTable.update(handlers.map((of) => {
    const counts = [of.received, of.stored, of.dropped, of.refused, of.failures, of.waiting].map(shown);
    return { key: of.name, cells: [of.name, of.kind, of.problem || 'works', ...counts], texts: 3 };
  }));
}

function probes(agents) {
  const rows = agents.flatMap((agent) => agent.probes.map((probe) => {
    probe.wire = system.format(probe.topic) || probe.wire.split('@')[0];
    const key = JSON.stringify([agent.uuid, probe.instance]);
    const cells = [agent.name, probe.instance, `${probe.every_s} s`, control(key, agent, probe), probe.thin || 'off'];
    cells.push(probe.problem || (probe.enabled ? 'on' : 'stopped'));
    return { key, cells, texts: cells.length };
  }));
  probeTable.update(rows);
  for (const key of controls.keys()) if (!probeTable.rows.has(key)) controls.delete(key);
  find('no-probes').hidden = rows.length > 0;
  find('rights').textContent = secret
    ? 'Choose another wire for a probe, and see what it costs.'
    : 'This page is read-only. Open it by the address in the file that `control` of the handler names to change probes.';
}

// The choice of a probe's wire. It stays the same element, so that nobody's open choice closes.
function control(key, agent, probe) {
  const format = probe.wire;
  if (!secret) return format || 'as configured';
  const known = controls.get(key) ?? { select: document.createElement('select'), until: 0 };
  const { select } = known;
  if (!controls.has(key)) {
    controls.set(key, known);
    select.setAttribute('aria-label', `Wire of ${agent.name}/${probe.instance}`);
    select.addEventListener('change', () => change(known));
  }
  Object.assign(known, { agent, probe });
  const names = FORMATS.includes(format) ? FORMATS : [format, ...FORMATS];
  if (select.options.length !== names.length || select.options[0].value !== names[0]) options(select, names);
  // What was chosen is in the picture of the system a little later.
  if (Date.now() >= known.until && select.value !== format) select.value = format;
  return select;
}

function change(known) {
  const { agent, probe, select } = known;
  const [from, to] = [probe.wire, select.value];
  known.until = Infinity;
  const before = system.cost(probe.topic, SETTLE_S);
  select.disabled = true;
  commands += 1;
  replies.set(commands, ({ problem }) => {
    select.disabled = false;
    known.until = problem ? 0 : Date.now() + 3000;
    if (problem) {
      select.value = from;
      return state(problem, 'bad');
    }
    state(`${agent.name}/${probe.instance}: ${to}`, 'good');
    const told = (looks) => {
      const after = system.cost(probe.topic, SETTLE_S);
      // No sample may have come in that time.
      if (!(after?.each > 0) && looks > 1) return setTimeout(told, 1000, looks - 1);
      return effect(`${agent.name}/${probe.instance}`, [[from || 'before', before], [to, after]]);
    };
    setTimeout(told, (SETTLE_S + 2) * 1000, LOOKS);
  });
  send({ op: 'command', id: commands, secret, node: agent.uuid, instance: probe.instance, settings: [['wire', to]] });
}

function replied(message) {
  const done = replies.get(message.id);
  replies.delete(message.id);
  if (done) done(message);
}

function effect(name, costs) {
  for (const [wire, cost] of costs) {
    const { messages, each, cpu, latency } = cost || {};
    const share = cpu === undefined ? '-' : `${(100 * cpu).toFixed(2)} %`;
    find('effects').tBodies[0].append(line([name, wire, shown(messages), shown(each), share, time(latency)], 2));
  }
  find('effects').hidden = find('effects-title').hidden = false;
}

function alerted(alert) {
  const item = document.createElement('li');
  const when = new Date(Number(alert.time_ns ?? 0) / 1e6 || Date.now()).toLocaleTimeString();
  const values = (alert.values || []).map(({ field, value }) => `${field} = ${value}`).join(', ');
  const about = [alert.prefix, alert.instance].filter(Boolean).join(' ');
  item.textContent = [when, alert.state, alert.name, about, alert.condition, values].filter(Boolean).join(' · ');
  if (alert.state === 'Raised') item.className = 'bad';
  find('alerts').prepend(item);
  while (find('alerts').children.length > MAX_ALERTS) find('alerts').lastChild.remove();
  find('no-alerts').hidden = true;
}

function options(select, names) {
  const value = select.value;
  select.replaceChildren(...names.map((name) => new Option(name, name)));
  if (names.includes(value)) select.value = value;
}

function chosen() {
  const known = topics.get(find('topic').value);
  options(find('member'), known ? known.members : []);
  resubscribe();
}

function addPlot(event) {
  event.preventDefault();
  const [topic, member] = [find('topic').value, find('member').value];
  if (!topic || !member || plots.length >= MAX_PLOTS) return;
  if (plots.some((plot) => plot.topic === topic && plot.member === member)) return;
  const plot = new Plot(topic, member, unitOf(topic, member), (gone) => {
    plots.splice(plots.indexOf(gone), 1);
    plotted.get(topic).delete(gone);
    if (!plotted.get(topic).size) plotted.delete(topic);
    gone.figure.remove();
    resubscribe();
  });
  plots.push(plot);
  plotted.set(topic, (plotted.get(topic) ?? new Set()).add(plot));
  find('plots').append(plot.figure);
  resubscribe();
}

function values() {
  const topic = find('topic').value;
  const { sample } = topics.get(topic) || {};
  const names = sample === undefined ? [] : members(sample);
  const text = (path) => String(typeof sample === 'object' ? at(sample, path) : sample);
  valueTable.update(names.map((name) => ({ key: name, cells: [name, text(name), unitOf(topic, name)], texts: 1 })));
}

function look() {
  const style = getComputedStyle(document.documentElement);
  return { mark: style.getPropertyValue('--mark'), faint: style.getPropertyValue('--faint') };
}

// Draws as many plots as there is time for, and goes on with the others in the next frame.
let turn = 0;
function draw() {
  requestAnimationFrame(draw);
  if (held || !plots.length) return;
  const [now, end, span] = [Date.now() / 1000, performance.now() + DRAW_MS, Number(find('span').value)];
  for (let count = 0; count < plots.length; count += 1) {
    turn = (turn + 1) % plots.length;
    if (plots[turn].draw(now, span, colours) && performance.now() >= end) return;
  }
}

find('add').addEventListener('submit', addPlot);
find('topic').addEventListener('change', chosen);
find('hold').addEventListener('click', () => {
  held = !held;
  find('hold').setAttribute('aria-pressed', String(held));
});
addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || /^(SELECT|INPUT|TEXTAREA)$/.test(event.target.tagName)) return;
  if (event.key === ' ' && event.target === document.body) {
    event.preventDefault();
    return find('hold').click();
  }
  const link = document.querySelector(`nav a[data-key="${CSS.escape(event.key)}"]`);
  if (link) link.click();
});
dark.addEventListener('change', () => {
  colours = look();
  recorded.draw();
});
setInterval(values, 500);
setInterval(() => {
  if (!held) for (const plot of plots) if (plot.isSeen) plot.label();
}, LABEL_MS);
probes([]);
connect();
requestAnimationFrame(draw);
