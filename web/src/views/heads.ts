// The model: layers × heads, one small map each, and what they do here.
import type { Actions } from '../actions.ts';
import { drawThumbnail } from '../canvas.ts';
import { css, signColour, textOn, weightColour } from '../colour.ts';
import { h, type Node_ } from '../dom.ts';
import { score } from '../format.ts';
import { thumbnailWeights } from '../select.ts';
import { isDark, isLayerFull, type State } from '../state.ts';
import { effectsOf } from '../switch_asking.ts';
import { bentIndices, canSwitch, isSwitched, offIndices } from '../switches.ts';
import { drawTile, tileImage, tileOf } from '../tiles.ts';
import type { Head, Run } from '../types.ts';
import { does, labels, letter, noLayer } from '../words.ts';
import { quoted } from './whatif.ts';

interface Drawn {
  run: Run;
  dark: boolean;
  byValue: boolean;
}
const drawn = new WeakMap<HTMLCanvasElement, Drawn>();

// A map is drawn again only when what it shows has changed.
function drawIfNew(canvas: HTMLCanvasElement, s: State, index: number): void {
  const now = { run: s.run!, dark: isDark(s), byValue: s.byValue };
  const before = drawn.get(canvas);
  if (before && before.run === now.run && before.dark === now.dark && before.byValue === now.byValue) return;
  drawn.set(canvas, now);
  const { pooled } = now.run;
  if (pooled) {
    return drawTile(canvas, tileImage(tileOf(pooled.small, index), pooled.small.cells, (w) => weightColour(w, now.dark)));
  }
  drawThumbnail(canvas, { weights: thumbnailWeights(s, index), count: s.run!.tokens.length,
                          colour: (w) => weightColour(w, now.dark) });
}

// By how much ln P of the next token changes when a head is off, in as much space as a number has.
function effectText(change: number | undefined): string {
  if (change === undefined) return '';
  if (Math.abs(change) < 0.005) return '0';
  const size = Math.abs(change);
  return (change < 0 ? '−' : '+') + (size >= 10 ? size.toFixed(0) : size >= 1 ? size.toFixed(1) : size.toFixed(2).replace(/^0/, ''));
}

function effectCell(s: State, index: number): Node_ {
  const { changes } = effectsOf(s);
  const most = Math.max(...changes.map((each) => Math.abs(each ?? 0)), 0.01);
  const change = changes[index];
  const colour = signColour((change ?? 0) / most, isDark(s));
  return h('span', { class: 'fx', 'data-change': change === undefined ? null : String(change),
                     style: { background: css(colour), color: textOn(colour) } }, effectText(change));
}

function cell(s: State, a: Actions, head: Head, index: number): Node_ {
  const touched = isSwitched(s) && [...bentIndices(s), ...offIndices(s)].includes(index);
  const shown = s.grid === 'effect'
    ? effectCell(s, index)
    : h('canvas', { 'aria-hidden': 'true', after: (c: HTMLCanvasElement) => drawIfNew(c, s, index) });
  const effect = s.grid === 'effect' ? effectText(effectsOf(s).changes[index]) : '';
  const chosen = head.layer === s.layer && (s.over !== null || head.head === s.head);
  const dim = s.filter !== null && !head.labels.some((l) => l.label === s.filter);
  const said = head.labels.map((l) => `${l.label} ${score(l.score)}`);
  const evenness = head.metrics.entropy ?? 0;
  return h('button', {
    class: ['hc', chosen && (s.over ? 'among' : 'chosen'), dim && 'dim', touched && 'touched'].filter(Boolean).join(' '),
    role: 'gridcell', 'aria-colindex': head.head + 1, 'aria-selected': String(chosen && !s.over),
    'data-head': index, tabindex: head.layer === s.layer && head.head === s.head ? 0 : -1,
    'aria-label': [`Layer ${head.layer} head ${head.head}`, ...said, effect && `effect ${effect}`, touched && 'switched']
      .filter(Boolean).join(', '),
    title: [`layer ${head.layer} head ${head.head}`, ...said,
            `evenness ${score(evenness)}`].join(' · '),
    onclick: () => a.chooseHead(index),
  },
  shown,
  // Drawn by the style sheet: as text, letters would have to be part of the button's spoken name.
  h('em', { class: head.labels.length && s.grid !== 'effect' ? '' : 'none', 'aria-hidden': 'true',
            'data-letters': head.labels.map((l) => letter[l.label]).join('') }),
  h('u', null, h('s', { style: { width: `${evenness * 100}%` } })));
}

function rows(s: State, a: Actions): Node_[] {
  const { num_layers, num_heads } = s.sizes!;
  return Array.from({ length: num_layers }, (_, layer) =>
    h('div', { class: layer === s.layer ? 'hr current' : 'hr', role: 'row', 'aria-rowindex': layer + 1 },
      h('span', { class: 'lh', role: 'rowheader' },
        h('button', { class: 'ly', 'aria-pressed': String(s.over !== null && s.layer === layer),
                      'aria-label': `Layer ${layer}: mean and maximum of its heads`,
                      title: isLayerFull(s, layer) ? `layer ${layer}: mean and maximum of its heads` : noLayer,
                      'aria-disabled': isLayerFull(s, layer) ? null : 'true', 'data-layer': layer, onclick: () => a.overLayer(layer) }, layer)),
      Array.from({ length: num_heads }, (_, n) => {
        const index = layer * num_heads + n;
        return cell(s, a, s.run!.heads[index]!, index);
      })));
}

function kinds(s: State, a: Actions): Node_ {
  const found = labels.map((label) => ({
    label, scores: s.run!.heads.flatMap((head) => head.labels.filter((l) => l.label === label))
      .map((l) => l.score) })).filter((kind) => kind.scores.length > 0);
  return h('div', { class: 'kinds' }, h('h2', { class: 'sec' }, 'What they do here'),
    found.length === 0 && h('p', { class: 'note' }, 'No head shows a simple pattern on this text.'),
    found.map(({ label, scores }) =>
      h('button', { class: 'kind', 'aria-pressed': String(s.filter === label), 'data-kind': label,
                    onclick: () => a.setFilter(label) },
        h('span', { class: 'bd' }, letter[label]),
        h('b', null, label[0]!.toUpperCase() + label.slice(1)),
        h('span', { class: 'n' }, `${scores.length} head${scores.length > 1 ? 's' : ''} · best ${score(Math.max(...scores))}`),
        h('span', { class: 'bs' }, does[label]))));
}

function keyLine(s: State): Node_ {
  const next = s.run!.predictions[0];
  if (s.grid !== 'effect' || !next) {
    return h('div', { class: 'keyline' }, h('span', { class: 'barkey', 'aria-hidden': 'true' }),
             h('span', null, 'long bar: spreads evenly · short bar: picks few'));
  }
  const all = s.run!.heads.length;
  const done = effectsOf(s).changes.filter((each) => each !== undefined).length;
  return h('div', { class: 'keyline', id: 'effects' }, h('span', null, `Change of ln P(${quoted(s, next)}) when this head is off. `,
    done < all ? h('span', { role: 'status' }, `${done} of ${all} heads…`)
               : [h('b', { class: 'neg' }, 'Blue'), ': it helped.']));
}

export function heads(s: State, a: Actions): Node_[] {
  if (!s.run || !s.sizes) return [];
  const { num_layers, num_heads } = s.sizes;
  const layers = Array.from({ length: num_layers }, (_, layer) =>
    h('button', { 'aria-pressed': String(layer === s.layer), onclick: () => a.chooseLayer(layer) },
      layer === s.layer ? `Layer ${layer}` : layer));
  return [
    h('div', { class: 'sec' }, h('span', { class: 'tt' }, `${num_layers} layers × ${num_heads} heads`),
      h('span', { class: 'seg lay', role: 'group', 'aria-label': 'Layer' }, layers), h('span', { class: 'grow' }),
      canSwitch(s) && h('span', { class: 'seg', role: 'group', 'aria-label': 'Heads show' }, (['patterns', 'effect'] as const).map((grid) =>
        h('button', { id: `grid-${grid}`, 'aria-pressed': String(s.grid === grid), onclick: () => a.setGrid(grid) },
          grid === 'effect' ? 'Effect' : 'Patterns')))),
    h('div', { class: 'hg', style: { '--heads': String(Math.min(num_heads, 8)) } },
      h('div', { class: 'hr hh', 'aria-hidden': 'true' }, h('span', null),
        Array.from({ length: Math.min(num_heads, 8) }, (_, n) => h('span', null, n))),
      h('div', { class: 'hrows', role: 'grid', 'aria-label': 'Heads: rows are layers',
                 'aria-rowcount': num_layers, 'aria-colcount': num_heads }, rows(s, a))),
    keyLine(s),
    kinds(s, a),
    h('div', { class: 'mores' },
      h('button', { class: 'more', id: 'table', onclick: () => a.openDialog('table') }, 'Table of all numbers…'),
      h('button', { class: 'more', id: 'diagnose', onclick: () => a.diagnose() }, 'Diagnostic run…')),
  ];
}
