// The page: its connection to the collector, and what is done with what comes.

import { Plot, members, shown } from './plot.js';
import { System, line, time } from './system.js';

const FORMATS = ['cdr', 'xcdr2', 'fast', 'protobuf', 'json', 'bson', 'msgpack', 'cbor', 'ubjson', 'xml', 'yaml'];
const ALERTS = 'telemetry/alerts';
const MOST_PLOTS = 200;
const MOST_ALERTS = 200;
const FRAME_MS = 33;
const SETTLE_S = 5;

const find = (id) => document.getElementById(id);
const secret = location.hash.slice(1).match(/^[0-9a-f]{32}$/) ? location.hash.slice(1) : '';
// It is in no history and no address that somebody copies.
if (secret) history.replaceState(null, '', location.pathname);

const system = new System();
const channels = new Map(); // number: { topic, ids }
const topics = new Map(); // topic: { members, sample, at }
const plots = [];
const replies = new Map();
let socket;
let agents = [];
let held = false;
let commands = 0;

function connect() {
  const scheme = location.protocol === 'https:' ? 'wss' : 'ws';
  socket = new WebSocket(`${scheme}://${location.host}/`, ['foxglove.sdk.v1', 'foxglove.websocket.v1']);
  socket.binaryType = 'arraybuffer';
  socket.addEventListener('open', () => state('live', 'good'));
  socket.addEventListener('close', () => {
    state('the collector does not answer; trying again', 'bad');
    channels.clear();
    subscribed.clear();
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
  if (message.op === 'advertise') message.channels.forEach(advertised);
  else if (message.op === 'system') pictured(message);
  else if (message.op === 'reply') replied(message);
  else if (message.op === 'status') state(message.message, 'bad');
}

function advertised({ id, topic }) {
  channels.set(id, topic);
  if (!topics.has(topic)) {
    topics.set(topic, { members: [], sample: undefined });
    options(find('topic'), [...topics.keys()].sort());
    if (find('topic').value === topic) chosen();
  }
  resubscribe();
}

const wants = (topic) => topic === ALERTS || topic === find('topic').value || plots.some((plot) => plot.topic === topic);
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
  const at = Number(view.getBigUint64(5, true)) / 1e9;
  const sample = JSON.parse(new TextDecoder().decode(data.slice(13)));
  if (topic === ALERTS) return alerted(sample);
  const known = topics.get(topic);
  if (!known) return;
  Object.assign(known, { sample, at });
  if (!known.members.length) {
    known.members = members(sample);
    if (find('topic').value === topic) chosen();
  }
  for (const plot of plots) if (plot.topic === topic) plot.add(at, sample);
}

function pictured({ nodes, agents: described }) {
  system.take(nodes);
  system.draw(find('picture'));
  system.fill(find('edges').tBodies[0]);
  find('no-edges').hidden = system.edges.length > 0;
  for (const probe of described.flatMap((agent) => agent.probes)) {
    probe.wire = system.format(probe.topic) || probe.wire.split('@')[0];
  }
  if (JSON.stringify(described) !== JSON.stringify(agents)) {
    agents = described;
    probes();
  }
}

function probes() {
  const rows = agents.flatMap((agent) => agent.probes.map((probe) => {
    const cells = [agent.name, probe.instance, `${probe.every_s} s`, control(agent, probe), probe.thin || 'off'];
    return line([...cells, probe.problem || (probe.enabled ? 'on' : 'stopped')], cells.length + 1);
  }));
  find('probes').tBodies[0].replaceChildren(...rows);
  find('no-probes').hidden = rows.length > 0;
  find('rights').textContent = secret
    ? 'Choose another wire for a probe, and see what it costs.'
    : 'This page is read-only. Open it by the address in the file that `control` of the handler names to change probes.';
}

function control(agent, probe) {
  const format = probe.wire;
  if (!secret) return format || 'as configured';
  const select = document.createElement('select');
  select.setAttribute('aria-label', `Wire of ${agent.name}/${probe.instance}`);
  options(select, FORMATS.includes(format) ? FORMATS : [format, ...FORMATS]);
  select.value = format;
  select.addEventListener('change', () => change(agent, probe, select));
  return select;
}

function change(agent, probe, select) {
  const [from, to] = [probe.wire, select.value];
  const before = system.cost(probe.topic, SETTLE_S);
  select.disabled = true;
  commands += 1;
  replies.set(commands, ({ problem }) => {
    select.disabled = false;
    if (problem) {
      select.value = from;
      return state(problem, 'bad');
    }
    state(`${agent.name}/${probe.instance}: ${to}`, 'good');
    setTimeout(() => {
      const after = system.cost(probe.topic, SETTLE_S);
      effect(`${agent.name}/${probe.instance}`, [[from || 'before', before], [to, after]]);
    }, (SETTLE_S + 2) * 1000);
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
  while (find('alerts').children.length > MOST_ALERTS) find('alerts').lastChild.remove();
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
  if (!topic || !member || plots.length >= MOST_PLOTS) return;
  if (plots.some((plot) => plot.topic === topic && plot.member === member)) return;
  const plot = new Plot(topic, member, (gone) => {
    plots.splice(plots.indexOf(gone), 1);
    gone.figure.remove();
    resubscribe();
  });
  plots.push(plot);
  find('plots').append(plot.figure);
  resubscribe();
}

function values() {
  const { sample } = topics.get(find('topic').value) || {};
  const names = sample ? members(sample) : [];
  const text = (path) => path.split('.').reduce((value, name) => value?.[name], sample);
  find('values').tBodies[0].replaceChildren(...names.map((name) => line([name, String(text(name))], 1)));
}

let drawn = 0;
function draw(now) {
  if (!held && now - drawn >= FRAME_MS) {
    drawn = now;
    const style = getComputedStyle(document.documentElement);
    const colours = { mark: style.getPropertyValue('--mark'), faint: style.getPropertyValue('--faint') };
    const span = Number(find('span').value);
    for (const plot of plots) plot.draw(Date.now() / 1000, span, colours);
  }
  requestAnimationFrame(draw);
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
setInterval(values, 500);
probes();
connect();
requestAnimationFrame(draw);
