// From x to the output of one head, step by step, with its real numbers and one cell worked out.
import type { Actions } from '../actions.ts';
import { drawRows } from '../canvas.ts';
import { signColour, weightColour } from '../colour.ts';
import { h, type Child, type Node_ } from '../dom.ts';
import { number } from '../format.ts';
import { choice } from '../select.ts';
import { isDark, isPhone, type State } from '../state.ts';
import { nameOf } from '../tokens.ts';
import type { Step } from '../types.ts';
import { cellSize, matrix } from './matrix.ts';
import { tokenName } from './inspector.ts';

interface Part {
  number: string;
  name: string;
  key: string; // of cephalo trace
  formula: (s: State) => string[];
  says: (s: State) => string;
}

const rotates = (s: State) => s.steps!.steps.some((step) => step.key === 'q_rotated');

export const parts: Part[] = [
  { number: '0', name: 'Input', key: 'x', formula: () => ['x = norm(stream)'],
    says: (s) => `Each token is a vector of ${s.sizes!.d_model} numbers; all heads of the layer get the same x.` },
  { number: '1–3', name: 'Project', key: 'q_heads', formula: () => ['q = x·W_q', 'k = x·W_k', 'v = x·W_v'],
    says: (s) => 'This head makes three short vectors of every token: what it asks (q), what it answers to ' +
      `(k), what it hands over (v).${rotates(s) ? ' Positions are turned into q and k.' : ''}` },
  { number: '4a', name: 'Scores', key: 'scores', formula: () => ['scores = q · kᵀ'],
    says: () => 'Every query meets every key: the larger the dot product, the better they match. Future keys too, for now.' },
  { number: '4b', name: 'Mask', key: 'scores_masked', formula: () => ['future = hidden'],
    says: () => 'A token must not look at what comes after it. Those scores are taken out; they are not zero, they are not there.' },
  { number: '4c', name: 'Softmax', key: 'weights', formula: (s) => [`softmax(scores / √${s.sizes!.head_dim})`],
    says: (s) => `Divide by √${s.sizes!.head_dim} so that scores stay small, then make every row positive with ` +
      'sum 1. This is the matrix you have been looking at.' },
  { number: '4d', name: 'Values', key: 'context_heads', formula: () => ['context = weights · v'],
    says: () => 'Every token takes the values of the tokens it looks at, in these proportions.' },
  { number: '5–6', name: 'Output', key: 'output', formula: (s) => [`out = concat(${s.sizes!.num_heads} heads) · W_out`],
    says: (s) => `The ${s.sizes!.num_heads} heads are laid side by side and mixed; the sum is added to the stream.` },
];

const step = (s: State, key: string): Step => s.steps!.steps.find((each) => each.key === key)!;
const at = (of: Step, i: number, j: number) => of.values[i * of.head_shape[1]! + j]!;
const rowOf = (of: Step, i: number) => of.values.subarray(i * of.head_shape[1]!, (i + 1) * of.head_shape[1]!);
const length = (row: Float32Array) => Math.sqrt(row.reduce((sum, v) => sum + v * v, 0));

function table(rows: [Child, string][], result?: [string, string]): Node_ {
  return h('div', { class: 'eq' }, rows.flatMap(([a, b]) => [h('span', null, a), h('span', null, b)]),
           result && [h('span', { class: 'res' }, result[0]), h('span', { class: 'res' }, result[1])]);
}

function worked(s: State): Node_ {
  const { query, key } = choice(s);
  const [q, k] = [rowOf(step(s, 'q_heads'), query), rowOf(step(s, 'k_heads'), key)];
  const products = Array.from(q, (v, n) => v * k[n]!);
  const order = [...products.keys()].sort((a, b) => Math.abs(products[b]!) - Math.abs(products[a]!));
  const sum = at(step(s, 'scores'), query, key);
  const who = [tokenName(s, query, 'q'), ' → ', tokenName(s, key, 'k')];
  const root = Math.sqrt(s.sizes!.head_dim);
  const first = order[0]!;
  const rest = (values: number[], total: number) => number(total - values.reduce((a, b) => a + b, 0));
  switch (parts[s.step]!.key) {
    case 'q_heads':
      return h('div', null, who, table([[`q[${first}], matters most`, number(q[first]!)], [`k[${first}]`, number(k[first]!)],
                                        ['length of q', number(length(q))], ['length of k', number(length(k))]]));
    case 'scores': {
      const top = order.slice(0, 3);
      return h('div', null, who,
        table([...top.map((n): [Child, string] => [`q[${n}] · k[${n}]`, number(products[n]!)]),
               [`${Math.max(0, products.length - 3)} more`, rest(top.map((n) => products[n]!), sum)]], ['score', number(sum)]));
    }
    case 'scores_masked': {
      const count = s.run!.tokens.length;
      return h('div', null, who, table([['visible keys', `${query + 1} of ${count}`], ['hidden', `${count - 1 - query}`]],
                                       ['score', number(sum)]));
    }
    case 'weights': {
      const scores = rowOf(step(s, 'scores'), query).subarray(0, query + 1);
      const total = scores.reduce((t, v) => t + Math.exp(v / root), 0);
      return h('div', null, who,
        table([['score', number(sum)], [`÷ √${s.sizes!.head_dim}`, number(sum / root)], ['e to that', number(Math.exp(sum / root))],
               ['÷ sum of the row', number(total)]], ['weight', number(at(step(s, 'weights'), query, key))]));
    }
    case 'context_heads': {
      const weights = rowOf(step(s, 'weights'), query);
      const values = step(s, 'v_heads');
      const top = [...weights.keys()].sort((a, b) => weights[b]! - weights[a]!).slice(0, 3).filter((j) => j <= query);
      const terms = top.map((j) => weights[j]! * at(values, j, 0));
      const total = at(step(s, 'context_heads'), query, 0);
      return h('div', null, tokenName(s, query, 'q'), ', dimension 0',
        table([...top.map((j, n): [Child, string] => [h('span', null, `${number(weights[j]!)} · v of `, tokenName(s, j, '')), number(terms[n]!)]),
               ['the rest', rest(terms, total)]], ['context[0]', number(total)]));
    }
    default: {
      const row = rowOf(step(s, parts[s.step]!.key), query);
      return h('div', null, tokenName(s, query, 'q'),
        table([0, 1, 2].map((n): [Child, string] => [`${parts[s.step]!.key}[${n}]`, number(row[n]!)]),
              ['its length', number(length(row))]));
    }
  }
}

// Tokens × dimensions, several side by side.
function strips(s: State, keys: [string, string][], room: { width: number; height: number }): Node_ {
  const count = s.run!.tokens.length;
  const labelWidth = 74;
  const gap = 14;
  const rowHeight = Math.max(3, Math.min(22, (room.height - 30) / count));
  const width = (room.width - labelWidth - gap * (keys.length - 1)) / keys.length;
  const { query, key } = choice(s);
  const dark = isDark(s);
  return h('div', { class: 'strips', style: { height: `${24 + count * rowHeight}px`, width: `${room.width}px` } },
    keys.map(([name, from], n) => {
      const of = step(s, from);
      const left = labelWidth + n * (width + gap);
      return h('canvas', { role: 'img', 'aria-label': `${name}: ${count} tokens × ${of.head_shape[1]} dimensions`,
        style: { left: `${left}px`, top: '24px', width: `${width}px`, height: `${count * rowHeight}px` },
        after: (canvas: HTMLCanvasElement) => drawRows(canvas, { values: of.values, width: of.head_shape[1]! },
          { width, height: count * rowHeight }, (share) => signColour(share, dark)) });
    }),
    h('svg', { 'aria-hidden': 'true', width: room.width, height: 24 + count * rowHeight },
      keys.flatMap(([name, from], n) => {
        const left = labelWidth + n * (width + gap);
        const isKey = name === 'k' || name === 'v';
        return [
          h('text', { class: 'strong', x: left, y: 16 }, name),
          h('text', { class: 'idx', x: left + width, y: 16, 'text-anchor': 'end' }, step(s, from).head_shape[1]),
          h('rect', { class: isKey ? 'fcell' : 'frow', x: left - 1, y: 24 + (isKey ? key : query) * rowHeight - 0.5,
                      width: width + 2, height: rowHeight + 1, rx: 3 }),
        ];
      }),
      s.run!.tokens.flatMap((token, i) => {
        if (rowHeight < 9 && i !== query && i !== key) return [];
        const y = 24 + (i + 0.5) * rowHeight + 4;
        return [h('text', { class: `lb${i === query ? ' on' : i === key ? ' key' : ''}`, x: labelWidth - 28, y, 'text-anchor': 'end' },
                  nameOf(token, i)),
                h('text', { class: 'idx', x: labelWidth - 8, y, 'text-anchor': 'end' }, i)];
      })));
}

function picture(s: State, a: Actions, room: { width: number; height: number }): Node_ {
  const key = parts[s.step]!.key;
  if (key === 'q_heads') return strips(s, [['q', 'q_heads'], ['k', 'k_heads'], ['v', 'v_heads']], room);
  if (key === 'context_heads') return strips(s, [['v', 'v_heads'], ['context', 'context_heads']], room);
  if (key === 'x' || key === 'output') return strips(s, [[key, key]], room);
  const of = step(s, key);
  let most = 0;
  for (const v of of.values) if (Number.isFinite(v)) most = Math.max(most, Math.abs(v));
  const dark = isDark(s);
  const cell = cellSize(s, { width: room.width - 72, height: room.height - 60 }, 34);
  return matrix(s, a, {
    values: of.values, cell, labelWidth: 70, causal: key !== 'scores',
    colour: key === 'weights' ? (v) => weightColour(v, dark) : (v) => signColour(v / most, dark) });
}

export function steps(s: State, a: Actions): Node_[] {
  const pips = h('div', { class: 'pips', role: 'tablist', 'aria-label': 'Steps' }, parts.map((part, n) =>
    h('button', { role: 'tab', 'aria-selected': String(n === s.step), 'data-step': n, tabindex: n === s.step ? 0 : -1,
                  onclick: () => a.setStep(n) }, h('small', null, part.number), part.name)));
  if (!s.steps) return [pips, h('p', { class: 'note' }, 'Working it out…')];
  const part = parts[s.step]!;
  const of = step(s, part.key);
  const room = isPhone(s) ? { width: s.view.width, height: 100000 }
                          : { width: s.view.width - 244, height: s.view.height - 100 };
  return [pips, h('div', { class: 'stp' },
    h('div', null, picture(s, a, room)),
    h('div', { class: 'says' }, h('h2', null, part.name),
      h('div', { class: 'fm' }, part.formula(s).map((line) => h('div', null, line))),
      h('p', { class: 'sub' }, part.says(s)),
      h('dl', null, h('dt', null, 'shape'), h('dd', { id: 'shape' }, `[${of.shape.join(', ')}]`),
        h('dt', null, 'in cephalo trace'), h('dd', null, `${of.number}  ${of.key}`)),
      h('div', { class: 'wk', id: 'worked' }, worked(s))))];
}
