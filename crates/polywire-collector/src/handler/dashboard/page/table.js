// Tables whose rows change in place, so that what a person has opened, marked or focused stays.

export class Table {
  constructor(body) {
    this.body = body;
    this.rows = new Map();
  }

  // Shows these rows: { key, cells, texts }. A cell is a text or an element.
  update(rows) {
    const keys = new Set(rows.map(({ key }) => key));
    for (const [key, row] of this.rows) {
      if (keys.has(key)) continue;
      row.remove();
      this.rows.delete(key);
    }
    let next = this.body.firstElementChild;
    for (const { key, cells, texts } of rows) {
      const row = this.rows.get(key) ?? line(cells, texts);
      if (this.rows.has(key)) fill(row, cells); else this.rows.set(key, row);
      if (row === next) next = next.nextElementSibling; else this.body.insertBefore(row, next);
    }
  }
}

// A row; the cells behind the first texts are numbers.
export function line(cells, texts) {
  const row = document.createElement('tr');
  cells.forEach((cell, index) => {
    const td = document.createElement('td');
    if (index >= texts) td.className = 'number';
    td.append(cell);
    row.append(td);
  });
  return row;
}

function fill(row, cells) {
  cells.forEach((cell, index) => {
    const td = row.cells[index];
    if (typeof cell !== 'string') {
      if (td.firstChild !== cell) td.replaceChildren(cell);
    } else if (td.textContent !== cell) {
      td.textContent = cell;
    }
  });
}
