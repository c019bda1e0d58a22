// A map without labels beside the large one. The pointer on it chooses the same cell everywhere.
import type { Actions } from '../actions.ts';
import { context, hatch, image } from '../canvas.ts';
import { css, type Rgb } from '../colour.ts';
import { h, type Node_ } from '../dom.ts';

export interface SmallMap {
  name: string; // for a screen reader
  values: Float32Array; // [count, count]
  count: number;
  side: number; // px
  colour: (value: number, row: number) => Rgb;
  chosen: { query: number; key: number };
  visible?: (row: number) => { first: number; end: number }; // keys; causal unless said
}

const keysOf = (map: SmallMap, i: number) => map.visible?.(i) ?? { first: 0, end: i + 1 };

function draw(canvas: HTMLCanvasElement, map: SmallMap): void {
  const { count, side } = map;
  const to = context(canvas, side, side);
  const cell = side / count;
  to.fillStyle = hatch(to, getComputedStyle(canvas).getPropertyValue('--hatch'));
  for (let i = 0; i < count; ++i) {
    const { first, end } = keysOf(map, i);
    to.fillRect(0, i * cell, first * cell, cell);
    to.fillRect(end * cell, i * cell, side - end * cell, cell);
  }
  if (cell < 2 && !map.visible) {
    const picture = image({ weights: map.values, count, colour: map.colour }, Math.floor(side));
    const off = new OffscreenCanvas(picture.width, picture.height);
    off.getContext('2d')!.putImageData(picture, 0, 0);
    to.drawImage(off, 0, 0, side, side);
    return;
  }
  const gap = cell >= 6 ? 0.5 : 0;
  for (let i = 0; i < count; ++i) {
    const { first, end } = keysOf(map, i);
    for (let j = first; j < end; ++j) {
      to.fillStyle = css(map.colour(map.values[i * count + j]!, i));
      to.fillRect(j * cell, i * cell, cell - gap, cell - gap);
    }
  }
}

export function smallMap(a: Actions, map: SmallMap): Node_ {
  const { count, side, chosen } = map;
  const cell = side / count;
  const at = (e: PointerEvent | MouseEvent) => {
    const box = (e.currentTarget as HTMLElement).getBoundingClientRect();
    const [i, j] = [(e.clientY - box.top) / cell, (e.clientX - box.left) / cell].map(Math.floor);
    return i! < 0 || i! >= count || j! < 0 || j! >= count ? null : { query: i!, key: j! };
  };
  const row = chosen.query < count;
  return h('div', {
    class: 'smap', style: { width: `${side}px`, height: `${side}px` }, role: 'img', 'aria-label': map.name,
    onpointermove: (e: PointerEvent) => e.pointerType !== 'touch' && a.hover(at(e)),
    onpointerleave: () => a.hover(null),
    onclick: (e: MouseEvent) => {
      const cell = at(e);
      if (!cell) return;
      const { first, end } = keysOf(map, cell.query);
      a.lock({ query: cell.query, key: cell.key >= first && cell.key < end ? cell.key : null });
    },
  },
  h('canvas', { 'aria-hidden': 'true', style: { width: `${side}px`, height: `${side}px` },
                after: (canvas: HTMLCanvasElement) => draw(canvas, map) }),
  h('svg', { 'aria-hidden': 'true', width: side, height: side },
    row && h('rect', { class: 'frow', x: -0.5, y: chosen.query * cell - 0.5, width: side + 1, height: cell + 1, rx: Math.min(4, cell) }),
    row && chosen.key < count && (map.visible !== undefined || chosen.key <= chosen.query) &&
      h('rect', { class: 'fcell', x: chosen.key * cell, y: chosen.query * cell, width: cell, height: cell, rx: Math.min(3, cell / 2) })));
}
