// What if: the switches, the question that they ask, and its answer in numbers.
import type { Actions } from '../actions.ts';
import { h, type Node_ } from '../dom.ts';
import { percent1 } from '../format.ts';
import { headIndex, switchedRun } from '../select.ts';
import type { State } from '../state.ts';
import { effectsOf } from '../switch_asking.ts';
import { bentIndices, canSwitch, isSwitched, offIndices, questions, scopeIndices } from '../switches.ts';
import { nextName } from '../tokens.ts';
import type { OffMeans, Prediction, Token } from '../types.ts';
import { signed } from './whatif_maps.ts';

// Without the quotes that punctuation has already.
export const quoted = (s: State, token: Token) => {
  const name = nextName(token, s.run!.tokens);
  return name.startsWith('“') ? name : `“${name}”`;
};

// Without it: ln P(“Rabbit”) −2.314
export function effectLine(s: State): Node_ {
  const next = s.run!.predictions[0];
  const change = s.over ? undefined : effectsOf(s).changes[headIndex(s)];
  if (!next || s.over || !canSwitch(s)) return h('p', { class: 'sub', id: 'effect' });
  const means = { zero: 'Without it', mean: 'With its mean instead', even: 'With an even look instead' }[s.switches.offMeans];
  if (change === undefined) return h('p', { class: 'sub', id: 'effect' }, `${means}: …`);
  return h('p', { class: 'sub', id: 'effect' }, `${means}: ln P(${quoted(s, next)}) `, h('b', { title: String(change) }, changed(change)),
           ` (${percent1(next.probability)} → ${percent1(next.probability * Math.exp(change))})`);
}

const changed = (change: number) => (Math.abs(change) < 0.0005 ? '±0' : signed(change));

function answer(s: State): Node_ | null {
  const found = s.switched?.run === s.run ? s.switched : null;
  const [before, now] = [s.run!.predictions[0], found?.trained[0]];
  if (!before || !now || !found) return null;
  const other = found.predictions[0]!;
  return h('span', { class: 'answer' }, ` ${quoted(s, before)} ${percent1(before.probability)} → `,
           h('b', { title: String(now.probability) }, percent1(now.probability)),
           other.id !== before.id && `, now ${quoted(s, other)} ${percent1(other.probability)}`);
}

// The question and its answer, and the one way back.
export function whatIfBar(s: State, a: Actions): Node_ | null {
  if (!isSwitched(s)) return null;
  const asked = questions(s).flatMap(({ subject, what }, n) => [n > 0 ? ' and ' : '', `${subject} `, h('b', null, what)]);
  return h('div', { class: 'bar', id: 'what-if', role: 'status' },
    h('span', null, 'What if ', asked, '?', answer(s), !['matrix', 'lines'].includes(s.tab) && ' This tab is as trained.'),
    h('button', { id: 'reset', onclick: () => a.resetSwitches() }, 'Reset'));
}

function segments<T extends string>(name: string, options: [T, string][], now: T, choose: (option: T) => void): Node_ {
  return h('span', { class: 'seg', role: 'group', 'aria-label': name }, options.map(([option, said]) =>
    h('button', { 'aria-pressed': String(option === now), 'data-option': option, onclick: () => choose(option) }, said)));
}

function options(s: State, a: Actions, bent: boolean): Node_ {
  const w = s.switches;
  const temperature = bent ? w.temperature : 1;
  const mask = bent ? w.mask : 'causal';
  const whole = (e: Event) => {
    const field = e.target as HTMLInputElement;
    const kept = Math.max(1, Math.min(s.run!.tokens.length, Math.round(Number(field.value)) || 1));
    field.value = String(kept); // also where it is the number that was there before
    a.setWindow(kept);
  };
  return h('div', { class: 'opts', id: 'options' },
    h('div', null, h('label', { for: 'temperature' }, 'Temperature'), h('span', { class: 'slide' },
      h('input', { type: 'range', id: 'temperature', min: '-1', max: '1', step: '0.05', value: String(Math.log10(temperature)),
                   'aria-valuetext': String(temperature),
                   oninput: (e: Event) => a.setTemperature(10 ** Number((e.target as HTMLInputElement).value)) }),
      h('output', { for: 'temperature' }, temperature))),
    h('div', null, 'Mask', h('span', { class: 'slide' },
      segments('Mask', [['causal', 'causal'], ['none', 'none'], ['window', 'last']], mask, (each) => a.setMask(each)),
      h('input', { type: 'number', id: 'window', min: '1', max: String(s.run!.tokens.length), value: String(w.window),
                   'aria-label': 'Tokens that it sees', onchange: whole }))),
    h('div', null, 'In', segments('In', [['head', 'this head'], ['layer', 'layer'], ['all', 'all']],
                                    s.over && w.scope === 'head' ? 'layer' : w.scope, (each) => a.setScope(each))),
    h('div', null, 'Off means', segments<OffMeans>('Off means', [['zero', 'zero'], ['mean', 'mean'], ['even', 'even']],
                                                   w.offMeans, (each) => a.setOffMeans(each))));
}

export function whatIfBlock(s: State, a: Actions): Node_ {
  if (!canSwitch(s)) {
    return h('div', { class: 'blk' }, h('h2', { class: 'sec' }, 'What if'),
             h('p', { class: 'note' }, 'This needs the model, which a recording leaves out.'));
  }
  const w = s.switches;
  const scope = scopeIndices(s);
  const [bentHeads, offHeads] = [bentIndices(s), offIndices(s)];
  const bent = scope.every((index) => bentHeads.includes(index));
  const off = scope.every((index) => offHeads.includes(index));
  const button = (id: string, on: boolean, name: string, toggle: () => void) =>
    h('button', { class: 'tg', id, 'aria-pressed': String(on), onclick: toggle }, name);
  const [unscaled, unmasked] = [bent && !w.scaled, bent && w.mask === 'none'];
  return h('div', { class: 'blk' }, h('h2', { class: 'sec' }, 'What if'),
    h('div', { class: 'tgs' },
      button('no-scaling', unscaled, 'No scaling', () => a.setScaled(unscaled)),
      button('no-mask', unmasked, 'No mask', () => a.setMask(unmasked ? 'causal' : 'none')),
      button('head-off', off, 'Head off', () => a.toggleOff())),
    h('div', { class: 'fd' },
      h('button', { class: 'fold', id: 'more', 'aria-expanded': String(s.whatIf), onclick: () => a.toggleWhatIf() },
        'Temperature, window, scope'),
      s.whatIf ? options(s, a, bent) : null));
}

export const offSays: Record<OffMeans, string> = {
  zero: 'but this head is off: none of it is passed on',
  mean: 'but this head is off: its mean is passed on',
  even: 'but this head is off: it looks evenly',
};

// The likeliest next tokens: under switches the trained model’s, with a mark where they stood, and
// the one that is likeliest now.
export function nextRows(s: State): { rows: (Prediction & { trained: number | null })[]; differs: boolean } {
  const { predictions } = s.run!;
  const found = switchedRun(s);
  if (!found) return { rows: predictions.map((p) => ({ ...p, trained: null })), differs: false };
  const rows: (Prediction & { trained: number | null })[] =
    found.trained.map((p, n) => ({ ...p, trained: predictions[n]?.probability ?? null }));
  const likeliest = found.predictions[0]!;
  if (!rows.some((p) => p.id === likeliest.id)) rows[rows.length - 1] = { ...likeliest, trained: null };
  return { rows, differs: true };
}
