// What archives of the collector have: a member over any time as a plot, and the newest messages
// of that time as a table. The server thins what it sends.

import { chart, number, watch } from './plot.js';
import { line } from './table.js';

const MAX_COLUMNS = 40;

const find = (id) => document.getElementById(id);

export class Recorded {
  // `live` has the topics that come now, and the units of their members.
  constructor(live) {
    Object.assign(this, { live, canvas: find('recorded-plot'), width: 0, height: 0, asked: 0, plotted: undefined });
    watch(this.canvas, this);
    find('recall').addEventListener('submit', (event) => {
      event.preventDefault();
      this.show();
    });
    find('archive').addEventListener('change', () => this.topics());
    find('recorded-topic').addEventListener('change', () => this.show());
    find('recorded-range').addEventListener('change', () => {
      const isOpen = find('recorded-range').value !== '';
      find('recorded-times').hidden = isOpen;
      if (isOpen || find('recorded-from').value) return;
      find('recorded-from').value = local(Date.now() - 3600e3, 19);
      find('recorded-to').value = local(Date.now(), 19);
    });
  }

  // The archives that there are now.
  offer(names) {
    find('recorded-section').hidden = !names.length;
    document.querySelector('nav a[href="#recorded-section"]').hidden = !names.length;
    const select = find('archive');
    if (JSON.stringify([...select.options].map((option) => option.value)) === JSON.stringify(names)) return;
    const before = select.value;
    select.replaceChildren(...names.map((name) => new Option(name, name)));
    if (names.includes(before)) select.value = before; else if (names.length) this.topics();
  }

  async topics() {
    const answer = await this.ask({});
    const topics = new Set([...(answer?.topics ?? []), ...this.live.topics()]);
    suggest('recorded-topics', [...topics].sort());
  }

  async show() {
    const [topic, member] = [find('recorded-topic').value, find('recorded-member').value];
    const range = times();
    if (!topic || !range) return;
    this.asked += 1;
    const asked = this.asked;
    this.tell('reading', '');
    const wanted = [this.ask({ topic, ...range })];
    if (member) wanted.push(this.ask({ topic, member, ...range }));
    const [found, series] = await Promise.all(wanted);
    // Somebody has asked for something else meanwhile.
    if (asked !== this.asked) return;
    this.table(found?.messages ?? []);
    find('recorded-figure').hidden = !series;
    if (series) this.plot(topic, member, range, series);
    if (!found || (member && !series)) return;
    const cut = [found, series].some((part) => part && !part.complete) ? '; it took too long, so the rest is missing' : '';
    const messages = `the ${found.messages.length} newest messages`;
    if (series) {
      const without = series.without ? `, ${series.without} without one` : '';
      this.tell(`${series.numbers} numbers, drawn by ${series.points.length}${without}; ${messages}${cut}`, '');
    } else {
      this.tell(found.messages.length ? `${messages}; choose a member for a plot${cut}` : `nothing in this time${cut}`, '');
    }
  }

  // JSON for a question; nothing if there is a problem, which is told.
  async ask(question) {
    const query = new URLSearchParams({ archive: find('archive').value, ...question });
    try {
      const response = await fetch(`/recorded?${query}`);
      if (response.ok) return await response.json();
      this.tell(await response.text(), 'bad');
    } catch (error) {
      this.tell(String(error), 'bad');
    }
    return undefined;
  }

  tell(text, kind) {
    find('recorded-note').textContent = text;
    find('recorded-note').className = kind;
  }

  table(messages) {
    const paths = new Set();
    for (const { members } of messages) for (const [path] of members) if (paths.size < MAX_COLUMNS) paths.add(path);
    const topic = find('recorded-topic').value;
    const heads = ['Time', ...[...paths].map((path) => titled(path, this.live.unit(topic, path)))];
    const head = document.createElement('tr');
    head.append(...heads.map((text) => {
      const th = document.createElement('th');
      th.textContent = text;
      return th;
    }));
    const rows = messages.map(({ time, members }) => {
      const of = new Map(members);
      return line([when(time), ...[...paths].map((path) => short(of.get(path)))], 1);
    });
    find('recorded-messages').tHead.replaceChildren(head);
    find('recorded-messages').tBodies[0].replaceChildren(...rows);
    const numbers = new Set();
    for (const { members } of messages) for (const [path, value] of members) if (number(value) !== undefined) numbers.add(path);
    suggest('recorded-members', [...numbers]);
  }

  plot(topic, member, range, { points }) {
    const unit = this.live.unit(topic, member);
    const [from, to] = [range.from ?? points[0]?.[0], range.to ?? points[points.length - 1]?.[0]];
    this.plotted = {
      times: points.map(([time]) => time),
      values: points.map(([, value]) => value),
      range: { from, to: Math.max(to, from + 1), text: period(to - from), unit },
    };
    find('recorded-title').textContent = `${titled(`${topic} ${member}`, unit)}, ${when(from)} – ${when(to)}`;
    this.canvas.setAttribute('aria-label', `${member} of ${topic} from ${when(from)} to ${when(to)}`);
    this.draw();
  }

  resize(width, height) {
    Object.assign(this, { width, height });
    this.draw();
  }

  draw() {
    if (!this.plotted || !this.width) return;
    const { times, values, range } = this.plotted;
    chart(this, times, values, 0, range, this.live.colours());
  }
}

// The times that are chosen, in milliseconds; nothing if they cannot be.
function times() {
  const last = find('recorded-range').value;
  if (last) return { from: Date.now() - 1000 * Number(last), to: Date.now() };
  const [from, to] = ['recorded-from', 'recorded-to'].map((id) => new Date(find(id).value).getTime());
  return Number.isNaN(from) || Number.isNaN(to) ? undefined : { from, to };
}

const titled = (text, unit) => (unit ? `${text} [${unit}]` : text);

// Local time, in a form that sorts.
function when(time) {
  return local(time, 23).replace('T', ' ');
}

function period(ms) {
  for (const [unit, length] of [['d', 86400e3], ['h', 3600e3], ['min', 60e3]]) {
    if (ms >= 2 * length) return `${Number((ms / length).toPrecision(3))} ${unit}`;
  }
  return `${Number((ms / 1000).toPrecision(3))} s`;
}

function short(value) {
  if (value === undefined) return '-';
  return typeof value === 'number' && !Number.isInteger(value) ? String(Number(value.toPrecision(7))) : String(value);
}

// A local time with so many characters, 19 for seconds and 23 for milliseconds.
function local(time, length) {
  return new Date(time - 60e3 * new Date(time).getTimezoneOffset()).toISOString().slice(0, length);
}

function suggest(id, names) {
  find(id).replaceChildren(...names.map((name) => new Option(name, name)));
}
