// The picture of the system: nodes, who reads whom, and rates made of what nodes count.

import { shown } from './plot.js';
import { Table } from './table.js';

const SVG = 'http://www.w3.org/2000/svg';
const MAX_EDGES = 200;

// Per node and topic, what was counted lately: [time_ns, messages, bytes, lost, cpu_ns, latency_ns].
const counted = new Map();

export class System {
  // The body of the table of edges.
  constructor(body) {
    this.nodes = [];
    this.edges = [];
    this.table = new Table(body);
  }

  take(nodes) {
    this.nodes = nodes;
    for (const node of nodes) this.count(node);
    const writers = new Map();
    for (const node of nodes) for (const publisher of node.publishers) writers.set(publisher.id, [node, publisher]);
    const edges = new Map();
    for (const reader of nodes) {
      for (const subscriber of reader.subscribers) {
        for (const id of subscriber.reads) {
          const [node, publisher] = writers.get(id) || [];
          if (!node || publisher.topic.startsWith('polywire/')) continue;
          const key = JSON.stringify([node.id, publisher.topic, reader.id]);
          if (!edges.has(key)) edges.set(key, { node, reader, topic: publisher.topic, by: subscriber.topic, wire: wire(publisher) });
        }
      }
    }
    this.edges = [...edges.values()].slice(0, MAX_EDGES);
    for (const edge of this.edges) edge.rate = received(edge, 3) || {};
  }

  count(node) {
    if (!node.stats) return;
    const { time_ns: time, cpu_ns: cpu, topics } = node.stats;
    for (const of of topics) {
      const latency = of.latency_ns;
      note(node.id, of.topic, 'out', [time, of.sent, of.sent_bytes, 0, cpu, latency]);
      note(node.id, of.topic, 'in', [time, of.received, of.received_bytes, of.lost, cpu, latency]);
    }
  }

  // The format in which the topic is published now.
  format(topic) {
    const publishers = this.nodes.flatMap((node) => node.publishers);
    const [wire] = publishers.find((publisher) => publisher.topic === topic)?.wires || [];
    return wire ? wire[0] : '';
  }

  // What the topic costs, over the last seconds.
  cost(topic, seconds) {
    const node = this.nodes.find((node) => node.publishers.some((of) => of.topic === topic));
    const edge = node && this.edges.find((edge) => edge.node.id === node.id && edge.topic === topic);
    const came = edge && received(edge, seconds);
    // Until the sender has told its counts twice, those of a reader count. Its CPU time is another's.
    const sent = node && (rate(node.id, topic, 'out', seconds) ?? (came && { ...came, cpu: undefined }));
    return sent && { ...sent, latency: came?.latency };
  }

  draw(svg) {
    const left = unique(this.edges.map((edge) => edge.node));
    const right = unique(this.edges.map((edge) => edge.reader));
    const [width, row, box] = [Math.max(640, svg.parentNode.clientWidth), 64, 200];
    const height = Math.max(left.length, right.length, 1) * row + 8;
    const place = (nodes, node) => nodes.findIndex((other) => other.id === node.id) * row + 8;
    svg.replaceChildren();
    svg.setAttribute('viewBox', `0 0 ${width} ${height}`);
    svg.setAttribute('height', height);
    const pairs = new Map();
    for (const edge of this.edges) {
      const key = JSON.stringify([edge.node.id, edge.reader.id]);
      pairs.set(key, [...(pairs.get(key) || []), edge]);
    }
    for (const edges of pairs.values()) {
      const [y1, y2] = [place(left, edges[0].node) + 24, place(right, edges[0].reader) + 24];
      const [x1, x2, middle] = [box, width - box, width / 2];
      const lost = edges.some((edge) => edge.rate.lost > 0);
      const bytes = edges.reduce((sum, edge) => sum + (edge.rate.bytes || 0), 0);
      const path = add(svg, 'path', { d: `M${x1} ${y1} C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}` });
      path.setAttribute('stroke-width', String(1 + Math.min(6, Math.log10(1 + bytes))));
      if (lost) path.setAttribute('class', 'bad');
      const wires = [...new Set(edges.map((edge) => edge.wire))].join(' ');
      const text = add(svg, 'text', { x: middle, y: (y1 + y2) / 2 - 5, 'text-anchor': 'middle', class: 'faint' });
      text.textContent = `${wires}  ${shown(bytes)} B/s`;
    }
    for (const [nodes, x] of [[left, 0], [right, width - box]]) {
      nodes.forEach((node) => {
        const group = add(svg, 'g', { class: node.own ? 'own' : '' });
        add(group, 'rect', { x, y: place(nodes, node), width: box, height: 48, rx: 6 });
        label(group, x + 10, place(nodes, node) + 20, node.name, '');
        label(group, x + 10, place(nodes, node) + 37, `${node.host} ${node.process}`, 'faint');
      });
    }
  }

  fill() {
    this.table.update(this.edges.map((edge) => {
      const { messages, bytes, each, latency, lost } = edge.rate;
      const cells = [edge.topic, edge.node.name, edge.reader.name, edge.wire];
      const numbers = [shown(messages), shown(bytes), shown(each), time(latency), shown(lost)];
      const key = JSON.stringify([edge.node.id, edge.topic, edge.reader.id]);
      return { key, cells: [...cells, ...numbers], texts: cells.length };
    }));
  }
}

export function time(ns) {
  if (ns === undefined || ns === null) return '-';
  return ns < 1e7 ? `${shown(Math.ceil(ns / 1e3))} us` : `${shown(ns / 1e6)} ms`;
}

function note(node, topic, way, values) {
  const key = JSON.stringify([node, topic, way]);
  const notes = counted.get(key) || [];
  if (notes.length && notes[notes.length - 1][0] >= values[0]) return;
  notes.push(values);
  if (notes.length > 30) notes.shift();
  counted.set(key, notes);
}

// Messages, bytes and CPU time a second over the last seconds of what was counted.
function rate(node, topic, way, seconds) {
  const notes = counted.get(JSON.stringify([node, topic, way])) || [];
  if (notes.length < 2) return undefined;
  const last = notes[notes.length - 1];
  const first = notes.find((note) => last[0] - note[0] <= seconds * 1e9 + 5e8 && note !== last) || notes[notes.length - 2];
  const s = (last[0] - first[0]) / 1e9;
  const [messages, bytes] = [(last[1] - first[1]) / s, (last[2] - first[2]) / s];
  const each = last[1] > first[1] ? (last[2] - first[2]) / (last[1] - first[1]) : undefined;
  return { messages, bytes, each, lost: last[3], cpu: (last[4] - first[4]) / 1e9 / s, latency: last[5] };
}

// What came over an edge. A subscription by pattern has one latency for all its topics.
function received(edge, seconds) {
  const came = rate(edge.reader.id, edge.topic, 'in', seconds);
  const latency = came?.latency ?? rate(edge.reader.id, edge.by, 'in', seconds)?.latency;
  return came && { ...came, latency };
}

function wire(publisher) {
  return publisher.wires.map(([codec, endpoint]) => `${codec}@${endpoint}`).join(' ');
}

function unique(nodes) {
  return [...new Map(nodes.map((node) => [node.id, node])).values()];
}

function add(parent, name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  parent.append(element);
  return element;
}

function label(parent, x, y, text, kind) {
  const element = add(parent, 'text', { x, y, class: kind });
  element.textContent = text.length > 26 ? `${text.slice(0, 25)}…` : text;
}
