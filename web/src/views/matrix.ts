// A head's weights as a matrix: cells on a canvas, labels and frames above it.
import type { Actions } from '../actions.ts';
import { context, hatch, image } from '../canvas.ts';
import { css, textOn, type Rgb } from '../colour.ts';
import { h, type Node_ } from '../dom.ts';
import { number, short } from '../format.ts';
import { choice } from '../select.ts';
import { type State } from '../state.ts';
import { nameOf } from '../tokens.ts';

export interface MatrixOptions {
  values: Float32Array; // [tokens, tokens]
  colour: (value: number, row: number) => Rgb;
  cell: number;
  causal: boolean; // false: the future is shown too, as before the mask
  visible?: (row: number) => { first: number; end: number }; // the keys that are shown, where not so
  faded?: boolean; // of a head that passes nothing on
  side?: RowBars;
  labelWidth: number;
  numbers?: boolean;
  outlined?: (i: number, j: number) => boolean;
  beside?: Beside;
}

// A bar and a number beside each row.
export interface Beside {
  width: number;
  heading: string;
  row: (i: number) => { share: number; value: number; text: string };
}

// A number for each row, drawn beside it.
export interface RowBars {
  width: number; // of bars and numbers
  title: string;
  unit: string;
  values: ArrayLike<number>;
}

const topHeight = 54;
const numbersFrom = 32; // px of a cell
const readable = 9; // below, cells are too small for a label each

// As large as fits.
export function cellSize(s: State, room: { width: number; height: number }, most = 54): number {
  const count = s.run!.tokens.length;
  const size = Math.max(Math.min(room.width / count, room.height / count, most), 0.25);
  return size >= 4 ? Math.floor(size * 2) / 2 : size;
}

function keysOf(s: State, o: MatrixOptions, i: number): { first: number; end: number } {
  return o.visible?.(i) ?? { first: 0, end: o.causal ? i + 1 : s.run!.tokens.length };
}

function drawCells(canvas: HTMLCanvasElement, s: State, o: MatrixOptions): void {
  const count = s.run!.tokens.length;
  const side = count * o.cell;
  const to = context(canvas, side, side);
  const isolated = s.hover !== null || s.lock !== null;
  const { query } = choice(s);
  const colours = getComputedStyle(canvas);
  if (o.causal || o.visible) {
    to.fillStyle = hatch(to, colours.getPropertyValue('--hatch'));
    for (let i = 0; i < count; ++i) {
      const { first, end } = keysOf(s, o, i);
      to.globalAlpha = isolated && i !== query ? 0.38 : 1;
      to.fillRect(0, i * o.cell, first * o.cell, o.cell);
      to.fillRect(end * o.cell, i * o.cell, side - end * o.cell, o.cell);
    }
    to.globalAlpha = 1;
  }
  if (o.cell < 4 && o.causal && !o.visible) return drawSmall(to, count, side, o);
  const gap = o.cell >= 14 ? 1 : o.cell >= 9 ? 0.5 : 0;
  const radius = o.cell >= 14 ? 2.5 : o.cell >= 9 ? 1 : 0;
  to.textAlign = 'center';
  to.textBaseline = 'middle';
  to.font = `${o.cell > 40 ? 13 : 11}px ${colours.fontFamily}`;
  for (let i = 0; i < count; ++i) {
    to.globalAlpha = isolated && i !== query ? 0.38 : 1;
    const { first, end } = keysOf(s, o, i);
    for (let j = first; j < end; ++j) {
      const value = o.values[i * count + j]!;
      const colour = o.colour(value, i);
      to.fillStyle = css(colour);
      to.beginPath();
      to.roundRect(j * o.cell + gap / 2, i * o.cell + gap / 2, o.cell - gap, o.cell - gap, radius);
      to.fill();
      if (o.numbers && o.cell >= numbersFrom && value >= 0.005) {
        to.fillStyle = textOn(colour);
        to.fillText(value >= 0.995 ? '1.0' : short(value), (j + 0.5) * o.cell, (i + 0.5) * o.cell + 1);
      }
    }
  }
  to.globalAlpha = 1;
  outline(to, count, o, colours.getPropertyValue('--ink'));
}

function outline(to: CanvasRenderingContext2D, count: number, o: MatrixOptions, ink: string): void {
  if (!o.outlined) return;
  to.strokeStyle = ink;
  to.lineWidth = Math.min(1.6, o.cell / 6);
  for (let i = 0; i < count; ++i) {
    for (let j = 0; j <= i; ++j) {
      if (!o.outlined(i, j)) continue;
      to.beginPath();
      to.roundRect(j * o.cell + 1, i * o.cell + 1, o.cell - 2, o.cell - 2, 2.5);
      to.stroke();
    }
  }
}

// Cells under 4 px: an image, each pixel the largest of what it covers.
function drawSmall(to: CanvasRenderingContext2D, count: number, side: number, o: MatrixOptions): void {
  const picture = image({ weights: o.values, count, colour: o.colour }, Math.floor(side));
  const off = new OffscreenCanvas(picture.width, picture.height);
  off.getContext('2d')!.putImageData(picture, 0, 0);
  to.imageSmoothingEnabled = false;
  to.drawImage(off, 0, 0, side, side);
}

function rowLabels(s: State, o: MatrixOptions): Node_[] {
  const { query } = choice(s);
  const out: Node_[] = [];
  s.run!.tokens.forEach((token, i) => {
    if (o.cell < readable && i !== query) return;
    const y = topHeight + (i + 0.5) * o.cell + 4;
    out.push(
      h('text', { class: `lb${i === 0 ? ' it' : ''}${i === query ? ' on' : ''}`, x: o.labelWidth - 26, y,
                  'text-anchor': 'end' }, clip(nameOf(token, i))),
      h('text', { class: 'idx', x: o.labelWidth - 6, y, 'text-anchor': 'end' }, i));
  });
  return out;
}

function columnLabels(s: State, o: MatrixOptions): Node_[] {
  const { key } = choice(s);
  const out: Node_[] = [];
  s.run!.tokens.forEach((token, j) => {
    if (o.cell < readable && j !== key) return;
    const x = o.labelWidth + (j + 0.5) * o.cell;
    const classes = `lb${j === 0 ? ' it' : ''}${j === key ? ' key' : ''}`;
    const name = clip(nameOf(token, j));
    if (o.cell < 17) {
      out.push(h('text', { class: `${classes} upright`, transform: `translate(${x + 4},${topHeight - 6}) rotate(-90)` },
                 name));
    } else {
      out.push(h('text', { class: 'idx', x, y: topHeight - 6, 'text-anchor': 'middle' }, j),
               h('text', { class: classes, transform: `translate(${x - 1},${topHeight - 20}) rotate(-45)` }, name));
    }
  });
  return out;
}

const clip = (name: string) => (name.length > 9 ? `${name.slice(0, 8)}…` : name);

function frames(s: State, o: MatrixOptions): Node_[] {
  const { query, key } = choice(s);
  const side = s.run!.tokens.length * o.cell;
  const [x, y] = [o.labelWidth, topHeight + query * o.cell];
  return [
    h('rect', { class: 'frow', x: x - 0.5, y: y - 0.5, width: side + 1, height: o.cell + 1, rx: Math.min(4, o.cell) }),
    h('rect', { class: 'fcell', x: x + key * o.cell, y, width: o.cell, height: o.cell, rx: Math.min(3, o.cell / 2) }),
  ];
}

// The chosen row for a screen reader: its cells are numbered as in the whole grid.
function spokenRow(s: State, o: MatrixOptions): Node_ {
  const { query, key } = choice(s);
  const { tokens } = s.run!;
  const count = tokens.length;
  const { first, end } = keysOf(s, o, query);
  const cells = Array.from({ length: end - first }, (_, n) => first + n).map((j) =>
    h('span', { role: 'gridcell', id: `cell-${j}`, 'aria-colindex': j + 1, 'aria-selected': String(j === key) },
      `${nameOf(tokens[query]!, query)} → ${nameOf(tokens[j]!, j)} ${number(o.values[query * count + j]!)}`));
  return h('div', { class: 'sr', role: 'row', 'aria-rowindex': query + 1 }, cells);
}

function rowBars(o: MatrixOptions, count: number): Node_[] {
  if (!o.side) return [];
  const { width: sideWidth, title, unit, values } = o.side;
  const x = o.labelWidth + count * o.cell + 16;
  const most = Math.max(...Array.from(values), 0.001);
  const room = sideWidth - 16 - 36;
  const bars = Array.from(values, (value, i) => {
    const width = Math.max(1, (room * value) / most);
    const y = topHeight + (i + 0.5) * o.cell;
    return [h('rect', { class: 'moved', x, y: y - Math.min(4, o.cell / 2), width, height: Math.min(8, o.cell), rx: 2 }),
            o.cell >= readable && h('text', { class: 'idx', x: x + width + 6, y: y + 4 }, value.toFixed(2))];
  });
  return [h('text', { class: 'strong', x, y: topHeight - 22 }, title), h('text', { class: 'idx', x, y: topHeight - 7 }, unit),
          ...bars.flat().filter((bar): bar is Node_ => bar !== false)];
}

function barsBeside(s: State, o: MatrixOptions): Node_[] {
  const { beside, cell } = o;
  if (!beside) return [];
  const count = s.run!.tokens.length;
  const left = o.labelWidth + count * cell + 10;
  const { query } = choice(s);
  const longest = beside.width - 48;
  return [
    h('text', { class: 'idx', x: left, y: topHeight - 6 }, beside.heading),
    ...s.run!.tokens.flatMap((_, i) => {
      const { share, value, text } = beside.row(i);
      const middle = topHeight + (i + 0.5) * cell;
      const height = Math.max(1, Math.min(8, cell - 1));
      return [
        h('rect', { class: 'spread', x: left, y: middle - height / 2, height, width: Math.max(1, share * longest), rx: Math.min(2, height / 2),
                    'data-share': share, 'data-value': value }),
        cell >= readable || i === query
          ? h('text', { class: i === query ? 'lb on' : 'idx', x: left + beside.width - 14, y: middle + 4, 'text-anchor': 'end' }, text) : null,
      ].filter((each): each is Node_ => each !== null);
    }),
  ];
}

export function matrix(s: State, a: Actions, o: MatrixOptions): Node_ {
  const count = s.run!.tokens.length;
  const side = count * o.cell;
  const width = o.labelWidth + side + (o.side?.width ?? o.beside?.width ?? 0);
  const at = (e: PointerEvent | MouseEvent) => {
    const box = (e.currentTarget as HTMLElement).getBoundingClientRect();
    const i = Math.floor((e.clientY - box.top - topHeight) / o.cell);
    const j = Math.floor((e.clientX - box.left - o.labelWidth) / o.cell);
    return i < 0 || i >= count || j >= count ? null : { query: i, key: j < 0 ? null : j };
  };
  const { key } = choice(s);
  return h('div', {
    class: 'mx', role: 'grid', tabindex: 0, id: 'grid', 'aria-rowcount': count, 'aria-colcount': count,
    'aria-activedescendant': `cell-${key}`,
    'aria-label': `${s.over ? `Layer ${s.layer}` : `Layer ${s.layer} head ${s.head}`}: ` +
      'row is the query, column the key. Arrows move, Enter locks.',
    style: { width: `${width}px`, height: `${topHeight + side}px` },
    onpointermove: (e: PointerEvent) => e.pointerType !== 'touch' && a.hover(at(e)),
    onpointerleave: () => a.hover(null),
    onclick: (e: MouseEvent) => {
      const cell = at(e);
      if (cell) a.openCell(cell);
    },
  },
  h('canvas', { 'aria-hidden': 'true', class: o.faded ? 'faded' : '',
                style: { left: `${o.labelWidth}px`, top: `${topHeight}px`, width: `${side}px`, height: `${side}px` },
                after: (canvas: HTMLCanvasElement) => drawCells(canvas, s, o) }),
  h('svg', { 'aria-hidden': 'true', width, height: topHeight + side },
    rowLabels(s, o), columnLabels(s, o), rowBars(o, count),
    h('text', { class: 'idx', x: o.labelWidth - 6, y: topHeight - 21, 'text-anchor': 'end' }, 'looks at →'),
    h('text', { class: 'idx', x: o.labelWidth - 6, y: topHeight - 6, 'text-anchor': 'end' }, 'token ↓'),
    frames(s, o), barsBeside(s, o)),
  spokenRow(s, o));
}
