// The same head as lines: this token on the left, what it looks at on the right.
import type { Actions } from '../actions.ts';
import { cividis, css } from '../colour.ts';
import { h, type Node_ } from '../dom.ts';
import { choice, isOff, shownWeights, visible } from '../select.ts';
import { isDark, isPhone, type State } from '../state.ts';
import { nameOf } from '../tokens.ts';

const drawnFrom = 0.04;
const topHeight = 30;

interface Place {
  width: number;
  rowHeight: number;
  left: number; // where the labels of queries end
  right: number; // where those of keys begin
}

function placeOf(s: State): Place {
  const count = s.run!.tokens.length;
  const width = Math.min(s.view.width, 560);
  const phone = isPhone(s);
  const rowHeight = Math.max(15, Math.min(phone ? 26 : 34, Math.floor((s.view.height - 64) / count)));
  return { width, rowHeight, left: Math.min(104, width * 0.22), right: width - (width < 420 ? 112 : 176) };
}

const middle = (p: Place, i: number) => topHeight + (i + 0.5) * p.rowHeight;

function curves(s: State, p: Place, i: number): Node_ {
  const count = s.run!.tokens.length;
  const weights = shownWeights(s);
  const isolated = s.hover !== null || s.lock !== null;
  const chosen = i === choice(s).query;
  const half = (p.left + p.right) / 2;
  const paths: Node_[] = [];
  const { first, end } = visible(s, i);
  for (let j = first; j < end; ++j) {
    const w = weights[i * count + j]!;
    if (w < drawnFrom) continue;
    const colour = css(isDark(s) ? cividis(0.25 + 0.75 * w) : cividis(Math.max(0, 0.72 - 0.72 * w)));
    paths.push(h('path', {
      d: `M${p.left + 28} ${middle(p, i)}C${half} ${middle(p, i)} ${half} ${middle(p, j)} ${p.right - 28} ${middle(p, j)}`,
      class: chosen && isolated ? 'picked' : '', stroke: chosen && isolated ? undefined : colour,
      'stroke-width': (0.6 + 4.6 * w).toFixed(2), opacity: Math.min(1, 0.3 + w).toFixed(2) }));
  }
  return h('g', { class: `rw${chosen ? ' on' : ''}` }, paths);
}

export function lines(s: State, a: Actions): Node_ {
  const { tokens } = s.run!;
  const count = tokens.length;
  const p = placeOf(s);
  const { query, key } = choice(s);
  const isolated = s.hover !== null || s.lock !== null;
  const weights = shownWeights(s);
  const looks = tokens.map((_, j) => {
    let sum = 0;
    for (let i = 0; i < count; ++i) sum += weights[i * count + j]!; // 0 where it is hidden
    return sum;
  });
  const most = Math.max(...looks);
  const order = [...tokens.keys()].filter((i) => i !== query).concat(query); // the chosen one on top
  const at = (e: PointerEvent | MouseEvent) => {
    const box = (e.currentTarget as Element).getBoundingClientRect();
    const i = Math.floor((e.clientY - box.top - topHeight) / p.rowHeight);
    return i < 0 || i >= count ? null : { query: i, key: null };
  };
  const row = (i: number) => {
    const y = middle(p, i) + 4;
    const name = nameOf(tokens[i]!, i);
    return [
      h('text', { class: `lb${i === query ? ' on' : ''}`, x: p.left, y, 'text-anchor': 'end' }, name),
      h('text', { class: 'idx', x: p.left + 22, y, 'text-anchor': 'end' }, i),
      h('text', { class: 'idx', x: p.right - 22, y }, i),
      h('text', { class: `lb${isolated && i === key ? ' key' : ''}`, x: p.right, y }, name),
      h('rect', { class: 'looked', x: p.right + 62, y: y - 8, rx: 2, height: 8,
                  width: Math.max(1, ((p.width - p.right - 96) * looks[i]!) / most) }),
      h('text', { class: 'idx', x: p.width, y, 'text-anchor': 'end' }, looks[i]!.toFixed(1)),
    ];
  };
  return h('div', { class: 'lines-scroll' },
    h('svg', {
      class: `ln${isolated ? ' iso' : ''}${isOff(s) ? ' faded' : ''}`, width: p.width, height: topHeight + count * p.rowHeight, role: 'img',
      id: 'lines', 'aria-label': `Lines from each token to what it looks at, layer ${s.layer} head ${s.head}`,
      onpointermove: (e: PointerEvent) => e.pointerType !== 'touch' && a.hover(at(e)),
      onpointerleave: () => a.hover(null),
      onclick: (e: MouseEvent) => {
        const cell = at(e);
        if (cell) a.lock(cell);
      },
    },
    h('text', { class: 'strong', x: p.left, y: 14, 'text-anchor': 'end' }, 'this token'),
    h('text', { class: 'strong', x: p.right, y: 14 }, 'looks at'),
    h('text', { class: 'idx', x: p.width, y: 14, 'text-anchor': 'end' }, 'is looked at'),
    order.map((i) => curves(s, p, i)), tokens.flatMap((_, i) => row(i))));
}
