// The chosen token: what it looks at, where the number comes from, and what comes next.
import type { Actions } from '../actions.ts';
import { drawRows } from '../canvas.ts';
import { barColour, css, signColour } from '../colour.ts';
import { h, type Node_ } from '../dom.ts';
import { number, percent1, weightText } from '../format.ts';
import { choice, headIndex, isByValue, isKept, isOff, plainRow, ranked, rowOf, spread, switchedRun, visible } from '../select.ts';
import { isDark, isFull, isPhone, isRecorded, type State } from '../state.ts';
import { chipText, nameOf, nextName, textOf } from '../tokens.ts';
import { icon } from './icons.ts';
import { nextRows, offSays, whatIfBlock } from './whatif.ts';

// A token with its index below the line; `kind` colours it: q looks, k is looked at.
export function tokenName(s: State, place: number, kind: 'q' | 'k' | ''): Node_ {
  return h('span', { class: 'tk' }, h('span', { class: kind }, nameOf(s.run!.tokens[place]!, place)),
           h('span', { class: 'ix' }, place));
}

// In words, as a screen reader says it: 'sat' looks at 'cat', 0.42, rank 1 of 7
export function spoken(s: State): string {
  if (!s.run || !s.sizes) return '';
  const { query, key } = choice(s);
  const { tokens } = s.run;
  return `'${chipText(tokens[query]!, query)}' looks at '${chipText(tokens[key]!, key)}', ` +
    (isKept(rowOf(s, query), key)
      ? `${number(rowOf(s, query)[key]!)}, rank ${ranked(s, query).indexOf(key) + 1} of ${visibleCount(s, query)}` : 'not kept');
}

function visibleCount(s: State, query: number): number {
  const { first, end } = visible(s, query);
  return end - first;
}

function caption(s: State, query: number): Node_ {
  const last = query === s.run!.tokens.length - 1;
  const phone = isPhone(s);
  if (s.lock) {
    return h('div', { class: 'cap lock' }, icon('lock'), `locked · ${phone ? 'tap again to free' : 'Esc frees'}`);
  }
  const said = s.hover ? 'click to lock'
    : last ? (phone ? 'the last token' : 'the last token, which the next one comes from') : '';
  return h('div', { class: 'cap' }, said);
}

function saying(s: State, a: Actions): Node_ {
  const { query, key } = choice(s);
  const { tokens } = s.run!;
  const { predictions } = switchedRun(s) ?? s.run!;
  const first = ranked(s, query)[0] === key;
  const next = predictions[0];
  const agrees = query === tokens.length - 1 && next &&
    textOf(next.piece).trim() === textOf(tokens[key]!.piece).trim();
  return h('div', { class: 'ihd' },
    h('div', null, caption(s, query),
      h('p', { class: 'big', id: 'looks' }, tokenName(s, query, 'q'), ` looks ${first ? 'most ' : ''}at `,
        query === key ? 'itself' : tokenName(s, key, 'k')),
      isOff(s) ? h('p', { class: 'sub', id: 'is-off' }, offSays[s.switches.offMeans]) : agrees ? h('p', { class: 'sub hit' }, `and the model predicts “${chipText(tokens[key]!, key)}” next`) : null),
    h('div', { class: 'step2' },
      h('button', { 'aria-label': 'Token before', onclick: () => a.moveToken(-1, 0) }, '‹'),
      h('button', { 'aria-label': 'Token after', onclick: () => a.moveToken(1, 0) }, '›')));
}

// An open fold takes the room of some keys, of their sum and of the least likely next tokens.
const isOpen = (s: State) => s.neuron && !isPhone(s) && hasNeuron(s);

// Several lines of tokens above leave little room.
const isLow = (s: State) => !isPhone(s) && s.view.height < 380;

function keys(s: State, a: Actions): Node_[] {
  const { query, key } = choice(s);
  const row = rowOf(s, query);
  const order = ranked(s, query);
  const fewer = isOpen(s) && isByValue(s) ? 2 : 3; // one more line below
  const top = order.slice(0, (s.whatIf && !isPhone(s)) || isOpen(s) || isLow(s) ? fewer : 5);
  if (!top.includes(key)) top[Math.max(0, top.length - 1)] = key;
  const kept = top.filter((j) => isKept(row, j));
  const more = visibleCount(s, query) - kept.length;
  const full = order.length === visibleCount(s, query);
  const shared = full ? order.filter((j) => !top.includes(j)).reduce((sum, j) => sum + row[j]!, 0)
    : Math.max(0, 1 - kept.reduce((sum, j) => sum + row[j]!, 0));
  const bar = (j: number) => h('button', {
    class: j === key ? 'rowb on' : 'rowb', 'data-key': j,
    onclick: () => a.lock({ query, key: j }) },
    h('span', null, tokenName(s, j, '')),
    h('span', { class: 'tr', 'aria-hidden': 'true' },
      isKept(row, j) && h('i', { style: { width: `${row[j]! * 100}%`, background: css(barColour(row[j]!, isDark(s))) } })),
    h('span', { class: 'v', title: isKept(row, j) ? String(row[j]!) : null }, weightText(row[j]!)));
  const sums = s.over !== 'max' && !isOpen(s) && !(s.whatIf && !isPhone(s));
  return [
    h('div', { class: 'rows', id: 'keys' }, top.map(bar)),
    h('p', { class: 'sum' }, sums && more > 0 ? `${isKept(row, key) ? more : `It and ${more - 1}`} more share ${number(shared)}. ` : '',
      sums && full ? `Spread over ${spread(row).toFixed(1)} of ${visibleCount(s, query)}.`
      : full ? '' : `Of this head the map and the ${s.data.recorded!.strongest} strongest keys of every token were kept.`),
  ];
}

function strip(s: State, name: string, values: Float32Array, kind: string): Node_[] {
  return [h('span', { class: kind }, name),
    h('canvas', { role: 'img', 'aria-label': `${name}, ${values.length} dimensions`,
      after: (canvas: HTMLCanvasElement) => drawRows(canvas, { values, width: values.length },
        { width: 226, height: 14 }, (share) => signColour(share / 1.3, isDark(s))) })];
}

// How the chosen head is switched, where its q and k are still those of the trained model.
function switchedHere(s: State): { changed: boolean; scaled: boolean; temperature: number } {
  const heads = switchedRun(s)?.heads ?? [];
  const own = heads.find((head) => head.layer === s.layer && head.head === s.head);
  return { changed: heads.some((head) => head.layer < s.layer), scaled: own?.scaled ?? true, temperature: own?.temperature ?? 1 };
}

const hasNeuron = (s: State) => !s.over && isFull(s, headIndex(s)) && !switchedHere(s).changed && !isOff(s);

function neuron(s: State, a: Actions): Node_ | null {
  if (!hasNeuron(s)) return null;
  const { query, key } = choice(s);
  const weight = rowOf(s, query)[key]!;
  const summary = h('button', { class: 'fold', 'aria-expanded': String(s.neuron), id: 'neuron',
                                onclick: () => a.toggleNeuron() }, `Where ${number(weight)} comes from`);
  if (!s.neuron) return h('div', { class: 'fd' }, summary);
  if (isRecorded(s)) {
    const { pair } = s;
    const here = pair && pair.layer === s.layer && pair.head === s.head && pair.query === query && pair.key === key;
    if (!here) return h('div', { class: 'fd' }, summary, h('p', { class: 'note' }, 'Working it out…'));
    return h('div', { class: 'fd open' }, summary, ...workedOut(s, pair.q, pair.k, dot(pair.q, pair.k)));
  }
  if (!s.steps) return h('div', { class: 'fd' }, summary, h('p', { class: 'note' }, 'Working it out…'));
  const of = (name: string, i: number) => {
    const found = s.steps!.steps.find((each) => each.key === name)!;
    return found.values.subarray(i * found.head_shape[1]!, (i + 1) * found.head_shape[1]!);
  };
  return h('div', { class: 'fd open' }, summary,
    ...workedOut(s, of('q_heads', query), of('k_heads', key), of('scores', query)[key]!));
}

const dot = (q: Float32Array, k: Float32Array) => q.reduce((sum, v, n) => sum + v * k[n]!, 0);

// From q and k to the weight; raw: their product.
function workedOut(s: State, q: Float32Array, k: Float32Array, raw: number): Node_[] {
  const { query, key } = choice(s);
  const row = plainRow(s, query);
  const products = q.map((v, n) => v * k[n]!);
  const how = switchedHere(s);
  const scaled = raw / (how.scaled ? Math.sqrt(s.sizes!.head_dim) : 1) / how.temperature;
  const divided = [how.scaled && `÷ √${s.sizes!.head_dim}`, how.temperature !== 1 && `÷ ${how.temperature}`].filter(Boolean).join(' ');
  const order = [...products.keys()].sort((x, y) => Math.abs(products[y]!) - Math.abs(products[x]!));
  const rank = ranked(s, query, row).indexOf(key) + 1;
  return [
    h('div', { class: 'nr' }, strip(s, 'q', q, 'q'), strip(s, 'k', k, 'k'), strip(s, 'q × k', products, '')),
    h('div', { class: 'dims', tabindex: 0, role: 'region', 'aria-label': 'Every dimension' },
      h('table', { id: 'dims' }, h('tr', null, ['dimension', 'q', 'k', 'q × k'].map((t) => h('th', { scope: 'col' }, t))),
        order.map((n) => h('tr', null, h('td', null, n), [q, k, products].map((x) => h('td', { title: String(x[n]!) }, number(x[n]!))))))),
    h('dl', { class: 'kv', id: 'sums' },
      h('dt', null, 'sum of q × k'), h('dd', null, number(raw)),
      h('dt', null, divided || 'not scaled'), h('dd', null, number(scaled)),
      h('dt', null, `after softmax, rank ${rank} of ${visibleCount(s, query)}`), h('dd', null, h('b', null, number(row[key]!))),
      isByValue(s) && [h('dt', null, 'by value'), h('dd', { id: 'valued' }, number(rowOf(s, query)[key]!))]),
  ];
}

function next(s: State): Node_ {
  const { rows, differs } = nextRows(s);
  const shown = isOpen(s) ? 3 : s.whatIf && !isPhone(s) ? 4 : 5;
  return h('div', { class: 'blk' }, h('h2', { class: 'sec' }, 'Next token', differs && [h('span', { class: 'grow' }), h('span', { class: 'mark' }, 'mark: as trained')]),
    h('div', { class: 'rows', id: 'next' }, rows.slice(0, shown).map((p) =>
      h('div', { class: 'rowb' }, h('span', null, nextName(p, s.run!.tokens)),
        h('span', { class: 'tr', 'aria-hidden': 'true' },
          h('i', { class: differs ? 'differs' : 'plain', style: { width: `${p.probability * 100}%` } }),
          p.trained !== null && h('s', { style: { width: `${p.trained * 100}%` } })),
        h('span', { class: 'v', title: String(p.probability) }, percent1(p.probability))))));
}

export function inspector(s: State, a: Actions): Node_[] {
  if (!s.run || !s.sizes) return [];
  return [
    h('button', { class: 'grab', 'aria-label': 'More or less', 'aria-expanded': String(s.sheet), onclick: () => a.toggleSheet() }),
    saying(s, a), ...keys(s, a), neuron(s, a) ?? h('div', null), whatIfBlock(s, a), next(s),
  ];
}
