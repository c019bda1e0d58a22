// One head against another, or one text against another: the difference large, A and B small.
import type { Actions } from '../actions.ts';
import { signColour, weightColour } from '../colour.ts';
import { divergence } from '../divergence.ts';
import { h, type Node_ } from '../dom.ts';
import { counted, number } from '../format.ts';
import { choice, headIndex, headWeights, shownWeights, valueWeighted } from '../select.ts';
import { isDark, isPhone, isPooled, isRecorded, isTooLong, type State } from '../state.ts';
import { nameOf } from '../tokens.ts';
import type { Metrics, Run } from '../types.ts';
import { cellSize, matrix } from './matrix.ts';
import { smallMap } from './small_map.ts';

const least = 96; // px of a small map
const gap = 26;
const wordsWidth = 200;

interface Side {
  letter: 'A' | 'B';
  name: string;
  run: Run;
  weights: Float32Array; // [tokens, tokens]
}

export function indexOfB(s: State): number {
  const { num_layers, num_heads } = s.sizes!;
  const { place } = s.compared;
  return place ? place.layer * num_heads + place.head : (headIndex(s) + 1) % (num_layers * num_heads);
}

const headName = (s: State, index: number) =>
  `layer ${Math.floor(index / s.sizes!.num_heads)} head ${index % s.sizes!.num_heads}`;
const nameOfA = (s: State) => s.over ? `layer ${s.layer}, ${s.over} of its heads` : headName(s, headIndex(s));

function sideA(s: State): Side {
  return { letter: 'A', name: s.compared.with === 'text' ? 'this text' : nameOfA(s), run: s.run!, weights: shownWeights(s) };
}

// null: the second text was not run yet
function sideB(s: State): Side | null {
  if (s.compared.with === 'text') {
    const { run } = s.compared;
    return run && { letter: 'B', name: 'the other text', run, weights: shownWeights({ ...s, run }) };
  }
  const index = indexOfB(s);
  return { letter: 'B', name: headName(s, index), run: s.run!,
           weights: s.byValue ? valueWeighted(s.run!, index) : headWeights(s.run!, index) };
}

function chooser(s: State, a: Actions): Node_ {
  const { with: kind, text } = s.compared;
  const option = (which: 'head' | 'text', name: string) =>
    h('button', { 'aria-pressed': String(kind === which), onclick: () => a.compareWith(which) }, name);
  return h('div', { class: 'cwith' }, h('span', null, 'with'),
    h('span', { class: 'seg', role: 'group', 'aria-label': 'Compare with' }, option('head', 'a head'), !isRecorded(s) && option('text', 'a text')),
    kind === 'head'
      ? h('select', { id: 'head-b', 'aria-label': 'Head B', value: String(indexOfB(s)),
                      onchange: (e: Event) => a.compareHead(Number((e.target as HTMLSelectElement).value)) },
          s.run!.heads.map((head, n) => h('option', { value: String(n), selected: n === indexOfB(s) },
            [headName(s, n), ...head.labels.map((l) => l.label)].join(' · '))))
      : h('label', { class: 'field' }, h('span', { class: 'sr' }, 'Text B'),
          h('textarea', { id: 'text-b', rows: 1, value: text, spellcheck: 'false', autocomplete: 'off', maxlength: 20000,
                          oninput: (e: InputEvent) => a.compareText((e.target as HTMLTextAreaElement).value) })));
}

// A cell in words: “A layer 3 head 1: Peter → Rabbit 0.4967”
function caption(side: Side, cell: { query: number; key: number }): Node_ {
  const { tokens } = side.run;
  const there = cell.query < tokens.length && cell.key <= cell.query;
  return h('p', { 'data-side': side.letter }, h('b', null, side.letter), ` ${side.name}`, h('span', { class: 'cellsays' },
    there ? [`${nameOf(tokens[cell.query]!, cell.query)} → ${nameOf(tokens[cell.key]!, cell.key)} `,
             h('b', { title: String(side.weights[cell.query * tokens.length + cell.key]!) },
               number(side.weights[cell.query * tokens.length + cell.key]!))]
          : ['no such cell']));
}

function far(a: Side, b: Side): Node_ {
  const value = divergence(a.weights, b.weights, a.run.tokens.length);
  return h('p', { class: 'far', id: 'far' }, 'How far apart: ', h('b', { title: String(value) }, value.toFixed(3)), ` of ${Math.LN2.toFixed(3)} `,
           h('span', null, '(mean Jensen–Shannon, nats)'));
}

const measured: [keyof Metrics, string][] = [
  ['previous', 'token before'], ['first', 'first token'], ['current', 'itself'],
  ['induction', 'what followed'], ['entropy', 'evenness'], ['effective_tokens', 'spread over'],
];

// Texts of different lengths: what is a mean over rows can still be set side by side.
function means(s: State, b: Side): Node_ {
  const of = (run: Run) => run.heads[headIndex(s)]!.metrics;
  const shown = (v: number | null | undefined) => (v === null || v === undefined ? '–' : number(v));
  return h('table', { class: 'means', id: 'means' },
    h('tr', null, ['', 'A', 'B'].map((t) => h('th', { scope: 'col' }, t))),
    measured.map(([key, name]) => h('tr', null, h('th', { scope: 'row' }, name),
      h('td', null, shown(of(s.run!)[key])), h('td', null, shown(of(b.run)[key])))));
}

function difference(s: State, a: Actions, sides: [Side, Side], cell: number): Node_ {
  const [one, other] = sides;
  const values = one.weights.map((w, n) => w - other.weights[n]!);
  const { query, key } = choice(s);
  const count = one.run.tokens.length;
  const at = values[query * count + key]!;
  const dark = isDark(s);
  return h('div', null,
    h('p', { class: 'diff' }, 'Difference, A − B: ', `${nameOf(one.run.tokens[query]!, query)} → ${nameOf(one.run.tokens[key]!, key)} `,
      h('b', { id: 'difference', class: at < 0 ? 'neg' : 'pos', title: String(at) }, at > 0 ? `+${number(at)}` : number(at))),
    matrix(s, a, { values, cell, labelWidth: 70, causal: true, colour: (v) => signColour(v, dark) }), far(one, other));
}

function unlike(s: State, a: Actions, one: Side, cell: number): Node_ {
  const dark = isDark(s);
  return h('div', null, h('p', { class: 'diff' }, 'A, as it is: no difference can be drawn'),
    matrix(s, a, { values: one.weights, cell, labelWidth: 70, causal: true, colour: (v) => weightColour(v, dark) }));
}

// Is the large map a difference?
export const showsDifference = (s: State) =>
  s.compared.with === 'head' || s.compared.run?.tokens.length === s.run!.tokens.length;

export function compare(s: State, a: Actions): Node_[] {
  if (isPooled(s)) {
    return [h('p', { class: 'note', id: 'no-compare' }, isTooLong(s) ? 'This text is too long to be compared cell by cell.'
      : 'This recording does not keep every head in full, so heads cannot be compared cell by cell.')];
  }
  const one = sideA(s);
  const other = sideB(s);
  const { error } = s.compared;
  const said = error ? h('p', { class: 'bar', role: 'status', id: 'error-b' }, `Text B: ${error}`) : null;
  if (!other) return [chooser(s, a), said ?? h('p', { class: 'note' }, 'Working it out…')];
  const phone = isPhone(s);
  const alike = showsDifference(s);
  const side = phone ? Math.min(150, s.view.width / 2 - 12)
    : alike ? Math.max(least, Math.min(s.view.width * 0.3, (s.view.height - 184) / 2))
    : Math.max(least, Math.min(wordsWidth, s.view.height - 370));
  const beside = alike ? side : wordsWidth;
  const cell = cellSize(s, { width: (phone ? s.view.width : s.view.width - beside - gap) - 72,
                             height: phone ? 100000 : s.view.height - 8 - 26 - 54 - 38 - 24 - 26 }, 40);
  const chosen = choice(s);
  const map = (of: Side) => h('div', null, caption(of, chosen), smallMap(a, {
    name: `${of.letter}: ${of.name}`, values: of.weights, count: of.run.tokens.length, side, chosen,
    colour: (w) => weightColour(w, isDark(s)) }));
  return [chooser(s, a), said ?? h('div', { class: 'no-bar' }), h('div', { class: 'cmp' },
    alike ? difference(s, a, [one, other], cell) : unlike(s, a, one, cell),
    h('div', { class: alike ? 'st' : 'st unlike' }, alike ? map(one) : null, map(other),
      alike ? null
        : h('div', null, h('p', { id: 'unlike' }, `A has ${counted(one.run.tokens.length, 'token')}, B ${other.run.tokens.length}: their cells do not face each ` +
            'other, so there is no difference map and no divergence. Means over rows can be compared:'),
            s.over ? null : means(s, other))))];
}
