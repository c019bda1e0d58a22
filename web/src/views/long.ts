// A long text: maps seen from afar, with the exact row of the chosen token.
import type { Actions } from '../actions.ts';
import { hatch } from '../canvas.ts';
import { cividis, css, weightColour, type Rgb } from '../colour.ts';
import { h, type Child, type Node_ } from '../dom.ts';
import { number, weightText } from '../format.ts';
import { choice, headIndex, ranked, rowOf } from '../select.ts';
import { isDark, isPhone, type Block, type State } from '../state.ts';
import { fadeOthers, tileImage, tileOf, tileOver, tokensOf } from '../tiles.ts';
import { nameOf } from '../tokens.ts';

const topHeight = 54;
const spokenAround = 12; // cells of the chosen row that a screen reader finds, on each side of the key

function colourOf(s: State): (weight: number, largest: number) => Rgb {
  const dark = isDark(s);
  if (s.scale === 'row') return (w, largest) => weightColour(w / (largest || 1), dark);
  if (s.scale === 'log') return (w) => weightColour(Math.max(0, 1 + Math.log10(Math.max(w, 1e-4)) / 4), dark);
  return (w) => weightColour(w, dark);
}

interface Drawn {
  name: string;
  run: unknown;
}
const drawn = new WeakMap<HTMLCanvasElement, Drawn>();

// Drawn again only when it shows something else: a hover moves frames, not cells.
function drawMap(canvas: HTMLCanvasElement, s: State): void {
  const run = s.run!;
  const { cells } = run.pooled!;
  const name = `${s.layer} ${s.over ?? s.head} ${s.scale} ${s.why} ${isDark(s)}`;
  const before = drawn.get(canvas);
  if (before && before.run === run && before.name === name) return;
  drawn.set(canvas, { name, run });
  const tile = s.over ? tileOver(run, s.layer, s.sizes!.num_heads, s.over) : tileOf(run.pooled!, headIndex(s));
  const picture = tileImage(tile, cells, colourOf(s), s.scale === 'row');
  if (s.why) fadeOthers(picture, run, s.why);
  const fine = 3; // pixels to a cell: the hatching is finer than cells
  [canvas.width, canvas.height] = [cells * fine, cells * fine];
  const to = canvas.getContext('2d')!;
  to.fillStyle = hatch(to, getComputedStyle(canvas).getPropertyValue('--hatch'));
  to.fillRect(0, 0, canvas.width, canvas.height);
  const off = new OffscreenCanvas(cells, cells);
  off.getContext('2d')!.putImageData(picture, 0, 0);
  to.imageSmoothingEnabled = false;
  to.beginPath(); // the hidden half stays hatched, and nothing shows through the rest
  for (let y = 0; y < cells; ++y) to.rect(0, y * fine, (y + 1) * fine, fine);
  to.save();
  to.clip();
  to.clearRect(0, 0, canvas.width, canvas.height);
  to.restore();
  to.drawImage(off, 0, 0, canvas.width, canvas.height);
}

// Ticks at round numbers, but not where the chosen label is.
function ticks(count: number, chosen: number, side: number): number[] {
  const step = [16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192].find((each) => count / each <= 6) ?? 16384;
  const out: number[] = [];
  for (let n = 0; n < count; n += step) {
    if (Math.abs(((n - chosen) / count) * side) > 18) out.push(n);
  }
  return out;
}

const clip = (name: string) => (name.length > 9 ? `${name.slice(0, 8)}…` : name);

function labels(s: State, side: number, left: number): Node_[] {
  const { tokens } = s.run!;
  const count = tokens.length;
  const { query, key } = choice(s);
  const at = (n: number) => ((n + 0.5) / count) * side;
  const y = topHeight + Math.max(4, Math.min(side - 12, at(query) - 4));
  const x = Math.max(24, Math.min(side - 24, at(key)));
  return [
    h('text', { class: 'lb on', x: left - 8, y, 'text-anchor': 'end' }, clip(nameOf(tokens[query]!, query))),
    h('text', { class: 'idx', x: left - 8, y: y + 13, 'text-anchor': 'end' }, query),
    h('text', { class: 'lb key', x: left + x, y: topHeight - 21, 'text-anchor': 'middle' }, clip(nameOf(tokens[key]!, key))),
    h('text', { class: 'idx', x: left + x, y: topHeight - 7, 'text-anchor': 'middle' }, key),
    ...ticks(count, query, side).map((n) => h('text', { class: 'idx tick', x: left - 8, y: topHeight + at(n) + 4, 'text-anchor': 'end' }, n)),
    ...ticks(count, key, side / 2).map((n) => h('text', { class: 'idx tick', x: left + at(n), y: topHeight - 7, 'text-anchor': 'middle' }, n)),
  ];
}

function frames(s: State, side: number, left: number): Node_[] {
  const count = s.run!.tokens.length;
  const { query, key } = choice(s);
  const size = Math.max(side / s.run!.pooled!.cells, 5);
  const [x, y] = [left + ((key + 0.5) / count) * side, topHeight + ((query + 0.5) / count) * side];
  return [
    h('rect', { class: 'frow', x: left - 0.5, y: y - size / 2, width: side + 1, height: size, rx: 2 }),
    h('rect', { class: 'fcell', x: x - size / 2 - 1, y: y - size / 2 - 1, width: size + 2, height: size + 2, rx: 2 }),
  ];
}

// Of the chosen row, the cells around the key: their places in the whole grid are said.
function spokenRow(s: State): Node_ {
  const { tokens } = s.run!;
  const { query, key } = choice(s);
  const row = rowOf(s, query);
  const first = Math.max(0, key - spokenAround);
  const cells: Node_[] = [];
  for (let j = first; j <= Math.min(query, key + spokenAround); ++j) {
    cells.push(h('span', { role: 'gridcell', id: `cell-${j}`, 'aria-colindex': j + 1, 'aria-selected': String(j === key) },
      `${nameOf(tokens[query]!, query)} → ${nameOf(tokens[j]!, j)} ${weightText(row[j]!)}`));
  }
  return h('div', { class: 'sr', role: 'row', 'aria-rowindex': query + 1 }, cells);
}

function longMatrix(s: State, a: Actions): Node_ {
  const run = s.run!;
  const count = run.tokens.length;
  const { cells } = run.pooled!;
  const left = isPhone(s) ? 70 : 78;
  const side = Math.floor(Math.max(96, Math.min(s.view.width - left - 2, isPhone(s) ? 100000 : s.view.height - 92)));
  const blockAt = (e: PointerEvent | MouseEvent): Block | null => {
    const box = (e.currentTarget as HTMLElement).getBoundingClientRect();
    const y = Math.floor(((e.clientY - box.top - topHeight) / side) * cells);
    const x = Math.floor(((e.clientX - box.left - left) / side) * cells);
    if (y < 0 || y >= cells || x >= cells) return null;
    // Left of the map and in the hidden half: the row, with whatever it looks at most.
    return { queries: tokensOf(run, y), keys: x < 0 || x > y ? [0, count] : tokensOf(run, x) };
  };
  return h('div', {
    class: 'mx', role: 'grid', tabindex: 0, id: 'grid', 'aria-rowcount': count, 'aria-colcount': count,
    'aria-activedescendant': `cell-${choice(s).key}`,
    'aria-label': `${s.over ? `Layer ${s.layer}` : `Layer ${s.layer} head ${s.head}`}: ` +
      'row is the query, column the key. Arrows move, Enter locks.',
    style: { width: `${left + side}px`, height: `${topHeight + side}px` },
    onpointermove: (e: PointerEvent) => e.pointerType !== 'touch' && a.hoverBlock(blockAt(e)),
    onpointerleave: () => a.hover(null),
    onclick: (e: MouseEvent) => {
      const block = blockAt(e);
      if (block) a.lockBlock(block);
    },
  },
  h('canvas', { 'aria-hidden': 'true', class: 'afar',
                style: { left: `${left}px`, top: `${topHeight}px`, width: `${side}px`, height: `${side}px` },
                after: (canvas: HTMLCanvasElement) => drawMap(canvas, s) }),
  h('svg', { 'aria-hidden': 'true', width: left + side, height: topHeight + side },
    labels(s, side, left), frames(s, side, left),
    h('text', { class: 'idx', x: left - 8, y: 12, 'text-anchor': 'end' }, 'looks at →'),
    h('text', { class: 'idx', x: left - 8, y: 27, 'text-anchor': 'end' }, 'token ↓')),
  spokenRow(s));
}

// The chosen token on the left, what it looks at most on the right, in the order of the text.
function longLines(s: State): Node_ {
  const { tokens } = s.run!;
  const { query, key } = choice(s);
  const row = rowOf(s, query);
  const rowHeight = 20;
  const most = Math.max(4, Math.min(24, Math.floor((s.view.height - 64) / rowHeight)));
  const keys = ranked(s, query).slice(0, isPhone(s) ? 16 : most).sort((x, y) => x - y);
  const width = Math.min(s.view.width, 560);
  const [from, to] = [width * 0.3, width * 0.62];
  const height = 30 + keys.length * rowHeight;
  const middle = 30 + (height - 30) / 2;
  const line = (j: number, n: number): Child[] => {
    const w = row[j]!;
    const y = 30 + (n + 0.5) * rowHeight;
    const colour = css(isDark(s) ? cividis(0.25 + 0.75 * w) : cividis(Math.max(0, 0.72 - 0.72 * w)));
    return [
      h('path', { d: `M${from + 8} ${middle}C${(from + to) / 2} ${middle} ${(from + to) / 2} ${y} ${to - 44} ${y}`,
                  stroke: colour, 'stroke-width': (0.6 + 4.6 * w).toFixed(2), opacity: Math.min(1, 0.3 + w).toFixed(2) }),
      h('text', { class: 'idx', x: to - 8, y: y + 4, 'text-anchor': 'end' }, j),
      h('text', { class: `lb${j === key ? ' key' : ''}`, x: to, y: y + 4 }, nameOf(tokens[j]!, j)),
      h('text', { class: 'idx', x: width, y: y + 4, 'text-anchor': 'end' }, number(w)),
    ];
  };
  return h('div', { class: 'lines-scroll' },
    h('svg', { class: 'ln', id: 'lines', width, height, role: 'img',
               'aria-label': `Lines from one token to the ${keys.length} that it looks at most, layer ${s.layer} head ${s.head}` },
      h('text', { class: 'strong', x: from, y: 14, 'text-anchor': 'end' }, 'this token'),
      h('text', { class: 'strong', x: to, y: 14 }, 'looks at'),
      h('text', { class: 'lb on', x: from, y: middle + 4, 'text-anchor': 'end' }, nameOf(tokens[query]!, query)),
      h('text', { class: 'idx', x: from, y: middle + 18, 'text-anchor': 'end' }, query),
      keys.flatMap(line)));
}

export function long(s: State, a: Actions): Node_ {
  return s.tab === 'lines' ? longLines(s) : longMatrix(s, a);
}

export const stepsNote = 'The steps need the whole model, and this page keeps what one text looked at: its weights, and where ' +
  'they come from (on the right, under “Where … comes from”). A live page has every step: cephalo page TEXT --live';
