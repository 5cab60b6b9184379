// A plot of one member of a topic's samples over time, on a canvas.

const MOST_POINTS = 20000;

export class Plot {
  constructor(topic, member, remove) {
    this.topic = topic;
    this.member = member;
    this.times = [];
    this.values = [];
    this.figure = document.createElement('figure');
    this.canvas = document.createElement('canvas');
    this.canvas.setAttribute('role', 'img');
    this.canvas.setAttribute('aria-label', `${member} of ${topic} over time`);
    this.last = document.createElement('b');
    const caption = document.createElement('figcaption');
    const name = document.createElement('span');
    name.textContent = `${topic} ${member}`;
    const close = document.createElement('button');
    close.textContent = '×';
    close.setAttribute('aria-label', `Remove the plot of ${member} of ${topic}`);
    close.addEventListener('click', () => remove(this));
    caption.append(name, this.last, close);
    this.figure.append(caption, this.canvas);
    this.changed = true;
  }

  add(time, sample) {
    const value = number(at(sample, this.member));
    if (value === undefined) return;
    this.times.push(time);
    this.values.push(value);
    if (this.times.length > 2 * MOST_POINTS) {
      this.times.splice(0, MOST_POINTS);
      this.values.splice(0, MOST_POINTS);
    }
    this.changed = true;
  }

  draw(now, span, colours) {
    const { canvas } = this;
    const scale = window.devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (!width) return;
    if (canvas.width !== Math.round(width * scale)) canvas.width = Math.round(width * scale);
    if (canvas.height !== Math.round(height * scale)) canvas.height = Math.round(height * scale);
    const first = this.firstSince(now - span);
    const values = this.values.slice(first);
    let [low, high] = [Infinity, -Infinity];
    for (const value of values) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
    if (low === high) [low, high] = [low - 1, high + 1];
    const draw = canvas.getContext('2d');
    draw.setTransform(scale, 0, 0, scale, 0, 0);
    draw.clearRect(0, 0, width, height);
    draw.font = '11px system-ui, sans-serif';
    draw.fillStyle = colours.faint;
    if (!values.length) {
      draw.fillText('waiting for samples', 4, height / 2);
      return;
    }
    const [top, bottom] = [14, height - 14];
    draw.fillText(shown(high), 2, 10);
    draw.fillText(shown(low), 2, height - 2);
    draw.fillText(`${span} s`, width - 40, height - 2);
    draw.strokeStyle = colours.mark;
    draw.lineWidth = 1.5;
    draw.beginPath();
    const step = Math.max(1, Math.floor(values.length / (2 * width)));
    for (let index = 0; index < values.length; index += step) {
      const x = width - ((now - this.times[first + index]) / span) * width;
      const y = bottom - ((values[index] - low) / (high - low)) * (bottom - top);
      if (index) draw.lineTo(x, y); else draw.moveTo(x, y);
    }
    draw.stroke();
    this.last.textContent = shown(values[values.length - 1]);
  }

  firstSince(time) {
    let [low, high] = [0, this.times.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.times[middle] < time) low = middle + 1; else high = middle;
    }
    return Math.max(0, low - 1);
  }
}

// The numbers of a sample: the paths of its members, at most a hundred.
export function members(sample, path = '', found = []) {
  if (found.length >= 100) return found;
  if (number(sample) !== undefined) {
    found.push(path || 'value');
  } else if (sample && typeof sample === 'object') {
    for (const [name, value] of Object.entries(sample)) {
      members(value, path ? `${path}.${name}` : name, found);
    }
  }
  return found;
}

function at(sample, path) {
  return path.split('.').reduce((value, name) => (value && Object.hasOwn(value, name) ? value[name] : undefined), sample);
}

// 64-bit integers come as texts.
function number(value) {
  if (typeof value === 'number') return value;
  if (typeof value === 'boolean') return Number(value);
  if (typeof value === 'string' && /^-?[0-9]{1,20}$/.test(value)) return Number(value);
  return undefined;
}

export function shown(value) {
  if (value === undefined || value === null || Number.isNaN(value)) return '-';
  const size = Math.abs(value);
  for (const [unit, factor] of [['G', 1e9], ['M', 1e6], ['k', 1e3]]) {
    if (size >= 10 * factor) return (value / factor).toFixed(1) + unit;
  }
  return Number.isInteger(value) ? String(value) : value.toPrecision(4);
}
