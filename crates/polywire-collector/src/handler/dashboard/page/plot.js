// Plots of a member over time, on canvases.

const MAX_POINTS = 20000;
const TOP = 14;
const BOTTOM = 14;
// What has come is shown so often at least, also if the plot moves by less than a pixel meanwhile.
const REFRESH_MS = 250;

const plots = new WeakMap(); // canvas: plot
// Reading a size makes the browser lay out the page anew if anything has changed, so nobody asks.
const sizes = new ResizeObserver((entries) => {
  for (const { target, contentRect } of entries) plots.get(target)?.resize(contentRect.width, contentRect.height);
});
const views = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) plots.get(target).isSeen = isIntersecting;
});

// Tells a plot the size of its canvas from now on.
export function watch(canvas, plot) {
  plots.set(canvas, plot);
  sizes.observe(canvas);
}

// A plot of what comes.
export class Plot {
  constructor(topic, member, unit, remove) {
    Object.assign(this, { topic, member, unit, times: [], values: [], width: 0, height: 0, isSeen: false });
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
    this.drawn = { now: 0, at: 0, span: 0 };
    watch(this.canvas, this);
    views.observe(this.canvas);
  }

  resize(width, height) {
    Object.assign(this, { width, height });
    this.drawn.span = 0;
  }

  add(time, sample) {
    const value = number(at(sample, this.member));
    if (value === undefined) return;
    this.times.push(time);
    this.values.push(value);
    if (this.times.length > 2 * MAX_POINTS) {
      this.times.splice(0, MAX_POINTS);
      this.values.splice(0, MAX_POINTS);
    }
  }

  // Draws if anybody sees the difference. Returns whether it did.
  draw(now, span, colours) {
    if (!this.isSeen || !this.width) return false;
    const { drawn, times, values } = this;
    const moved = ((now - drawn.now) / span) * this.width * scale();
    const isSame = drawn.span === span && drawn.colours === colours;
    const isLate = drawn.at !== times[times.length - 1] && (now - drawn.now) * 1000 >= REFRESH_MS;
    if (isSame && moved < 1 && !isLate) return false;
    this.drawn = { now, at: times[times.length - 1], span, colours };
    const range = { from: now - span, to: now, text: `${span} s`, unit: this.unit };
    chart(this, times, values, this.firstSince(now - span), range, colours);
    return true;
  }

  // Changes the page, so it is not for each frame.
  label() {
    if (!this.values.length) return;
    const text = `${shown(this.values[this.values.length - 1])} ${this.unit}`.trim();
    if (this.last.textContent !== text) this.last.textContent = text;
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

const scale = () => window.devicePixelRatio || 1;

// Draws points from the first one on. There may be many more than pixels: of those in a column of
// pixels, the first, lowest, highest and last are drawn, which looks the same.
export function chart({ canvas, width, height }, times, values, first, range, colours) {
  const [wide, high] = [Math.round(width * scale()), Math.round(height * scale())];
  if (canvas.width !== wide) canvas.width = wide;
  if (canvas.height !== high) canvas.height = high;
  const draw = canvas.getContext('2d');
  draw.setTransform(scale(), 0, 0, scale(), 0, 0);
  draw.clearRect(0, 0, width, height);
  draw.font = '11px system-ui, sans-serif';
  draw.fillStyle = colours.faint;
  if (first >= values.length) {
    draw.fillText('waiting for samples', 4, height / 2);
    return;
  }
  let [least, most] = [Infinity, -Infinity];
  for (let index = first; index < values.length; index += 1) {
    if (values[index] < least) least = values[index];
    if (values[index] > most) most = values[index];
  }
  if (least === most) [least, most] = [least - 1, most + 1];
  draw.fillText(`${shown(most)} ${range.unit}`, 2, 10);
  draw.fillText(`${shown(least)} ${range.unit}`, 2, height - 2);
  draw.textAlign = 'right';
  draw.fillText(range.text, width - 2, height - 2);
  draw.textAlign = 'left';
  draw.strokeStyle = colours.mark;
  draw.lineWidth = 1.5;
  draw.beginPath();
  const [perSecond, perUnit] = [width / (range.to - range.from), (height - TOP - BOTTOM) / (most - least)];
  const y = (value) => height - BOTTOM - (value - least) * perUnit;
  let index = first;
  while (index < values.length) {
    const x = (times[index] - range.from) * perSecond;
    const column = Math.floor(x);
    let [low, top, last] = [values[index], values[index], values[index]];
    if (index === first) draw.moveTo(x, y(last)); else draw.lineTo(x, y(last));
    let count = 0;
    for (; index < values.length && Math.floor((times[index] - range.from) * perSecond) === column; index += 1) {
      last = values[index];
      if (last < low) low = last;
      if (last > top) top = last;
      count += 1;
    }
    if (count > 3) {
      draw.lineTo(x, y(low));
      draw.lineTo(x, y(top));
    }
    if (count > 1) draw.lineTo(x, y(last));
  }
  draw.stroke();
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

// The unit of a member in the JSON Schema of its type, or nothing.
export function unit(schema, path) {
  let unit = '';
  for (const name of path.split('.')) {
    schema = own(schema?.properties, name) ?? schema?.items ?? schema?.additionalProperties;
    unit = schema?.unit ?? unit;
  }
  return typeof unit === 'string' ? unit : '';
}

export function at(sample, path) {
  return path.split('.').reduce((value, name) => own(value, name), sample);
}

function own(value, name) {
  return value && Object.hasOwn(value, name) ? value[name] : undefined;
}

// 64-bit integers come as texts.
export function number(value) {
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
