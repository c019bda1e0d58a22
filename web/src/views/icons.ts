import { h, type Node_ } from '../dom.ts';

const paths: Record<string, { size: number; d: string[]; width?: number }> = {
  link: { size: 17, d: ['M7 10a3 3 0 0 0 4.2 0l2.4-2.4a3 3 0 0 0-4.2-4.2L8.2 4.6',
                        'M10 7a3 3 0 0 0-4.2 0L3.4 9.4a3 3 0 0 0 4.2 4.2l1.2-1.2'] },
  print: { size: 17, d: ['M5 6V2.5h7V6', 'M5 12.5H3.5a1 1 0 0 1-1-1V7a1 1 0 0 1 1-1h10a1 1 0 0 1 1 1v4.5a1 1 0 0 1-1 1H12', 'M5 10h7v4.5H5z'] },
  help: { size: 17, d: ['M6 6.3a2.5 2.5 0 1 1 3.6 2.2c-.8.4-1.1.9-1.1 1.8', 'M8.5 13.2v.1'] },
  more: { size: 17, d: ['M3.2 8.5h.1', 'M8.5 8.5h.1', 'M13.8 8.5h.1'], width: 2.2 },
  before: { size: 12, d: ['M8 2 4 6l4 4'], width: 1.7 },
  after: { size: 12, d: ['m4 2 4 4-4 4'], width: 1.7 },
};

export function icon(name: 'link' | 'print' | 'help' | 'more' | 'before' | 'after' | 'theme' | 'lock'): Node_ {
  if (name === 'theme') {
    return h('svg', { width: 17, height: 17, viewBox: '0 0 17 17', 'aria-hidden': 'true' },
             h('circle', { cx: 8.5, cy: 8.5, r: 6, fill: 'none', stroke: 'currentColor', 'stroke-width': 1.5 }),
             h('path', { d: 'M8.5 2.5a6 6 0 0 1 0 12z', fill: 'currentColor' }));
  }
  if (name === 'lock') {
    return h('svg', { width: 11, height: 12, fill: 'none', stroke: 'currentColor', 'stroke-width': 1.5,
                      'aria-hidden': 'true' },
             h('rect', { x: 1.5, y: 5, width: 8, height: 6, rx: 1.5, fill: 'currentColor' }),
             h('path', { d: 'M3.2 5V3.4a2.3 2.3 0 0 1 4.6 0V5' }));
  }
  const { size, d, width } = paths[name]!;
  return h('svg', { width: size, height: size, viewBox: `0 0 ${size} ${size}`, fill: 'none',
                    stroke: 'currentColor', 'stroke-width': width ?? 1.5, 'stroke-linecap': 'round',
                    'stroke-linejoin': 'round', 'aria-hidden': 'true' },
           d.map((each) => h('path', { d: each })));
}
