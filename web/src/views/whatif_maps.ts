// The chosen head under switches: what if large, as trained and their difference small; or, of a
// head that is off, what it sees and how far each prediction moved without it.
import type { Actions } from '../actions.ts';
import { signColour, weightColour } from '../colour.ts';
import { h, type Node_ } from '../dom.ts';
import { number } from '../format.ts';
import { choice, isCausal, shownWeights, switchedRun, trainedWeights, visible } from '../select.ts';
import { isDark, isPhone, type State } from '../state.ts';
import { nameOf } from '../tokens.ts';
import { cellSize, matrix } from './matrix.ts';
import { smallMap } from './small_map.ts';

type WeightShare = (weight: number, row: number) => number;

const labelWidth = 70;
const gap = 26;

export const signed = (value: number) =>
  (Math.abs(value) < 0.00005 ? '0.0000' : value > 0 ? `+${number(value)}` : number(value));

// Below the small maps: Peter → Rabbit 0.4967
function cellSays(s: State, id: string, value: number, said: string): Node_ {
  const { query, key } = choice(s);
  const { tokens } = s.run!;
  const kind = id !== 'differs' || Math.abs(value) < 0.00005 ? '' : value < 0 ? 'neg' : 'pos';
  return h('span', { class: 'cellsays' }, `${nameOf(tokens[query]!, query)} → ${nameOf(tokens[key]!, key)} `,
           h('b', { id, class: kind, title: String(value) }, said));
}

export function whatIfMaps(s: State, a: Actions, share: WeightShare): Node_ {
  const count = s.run!.tokens.length;
  const dark = isDark(s);
  const phone = isPhone(s);
  const [now, before] = [shownWeights(s), trainedWeights({ ...s, byValue: false })];
  const values = now.map((weight, n) => weight - before[n]!);
  const chosen = choice(s);
  const at = chosen.query * count + chosen.key;
  const side = phone ? Math.min(150, s.view.width / 2 - 12)
    : Math.max(56, Math.min(s.view.width * 0.3, (s.view.height - 26 - 16 - 2 * 40) / 2));
  const cell = cellSize(s, { width: (phone ? s.view.width : s.view.width - side - gap) - labelWidth - 2,
                             height: phone ? 100000 : s.view.height - 8 - 26 - 54 - 24 }, 40);
  const colour = (w: number, i: number) => weightColour(share(w, i), dark);
  // What is hidden now was seen, so the difference shows it too.
  const causal = isCausal(s);
  const masked = causal ? {} : { visible: (i: number) => visible(s, i) };
  const either = causal ? {} : { visible: (i: number) => ({ first: 0, end: Math.max(visible(s, i).end, i + 1) }) };
  return h('div', { class: 'trio' },
    h('div', null, h('p', { class: 'asks' }, 'What if'),
      matrix(s, a, { values: now, cell, labelWidth, causal: true, ...masked, numbers: true, colour })),
    h('div', { class: 'st' },
      h('div', null, h('p', null, 'As trained', cellSays(s, 'trained', before[at]!, number(before[at]!))),
        smallMap(a, { name: 'As trained', values: before, count, side, colour, chosen })),
      h('div', null, h('p', null, 'Difference', cellSays(s, 'differs', values[at]!, signed(values[at]!))),
        smallMap(a, { name: 'Difference', values, count, side, chosen, ...either, colour: (v) => signColour(v, dark) }))));
}

export function offMap(s: State, a: Actions, share: WeightShare): Node_ {
  const { changes } = switchedRun(s)!;
  const count = s.run!.tokens.length;
  const phone = isPhone(s);
  const width = phone ? 84 : 150;
  const cell = cellSize(s, { width: s.view.width - labelWidth - width - 2,
                             height: phone ? 100000 : s.view.height - 8 - 26 - 54 - 4 }, 44);
  return matrix(s, a, {
    values: shownWeights(s), cell, labelWidth, causal: true, faded: true,
    ...(isCausal(s) ? {} : { visible: (i: number) => visible(s, i) }),
    colour: (w, i) => weightColour(share(w, i), isDark(s)),
    side: { width, title: phone ? 'Changed' : 'Prediction changed', unit: phone ? 'nats' : 'after each token, nats',
            values: Array.from({ length: count }, (_, i) => changes[2 * i]!) },
  });
}
