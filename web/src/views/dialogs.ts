import type { Actions } from '../actions.ts';
import { h, type Node_ } from '../dom.ts';
import { isPhone, type State } from '../state.ts';
import type { Metrics } from '../types.ts';
import { diagnosis } from './diagnosis.ts';
import { sinks } from './sinks.ts';

const byMouse: [string, string][] = [['hover', 'isolates a token everywhere'], ['click  Enter', 'locks it'], ['Esc', 'frees it']];
const byThumb: [string, string][] = [['tap', 'locks a token or a cell; once more frees it'], ['‹  ›', 'token before, after']];
const byKeys: [string, string][] = [
  ['← ↑ ↓ →', 'move in the grid that has the focus'], ['[  ]', 'head before, after'],
  ['{  }', 'layer before, after'], [',  .', 'step before, after'], ['/', 'type a text'], ['?', 'this help'],
];

function close(a: Actions): Node_ {
  return h('button', { class: 'tg', id: 'close', onclick: () => a.openDialog(null) }, 'Close');
}

function help(s: State, a: Actions): Node_[] {
  const keys = [...(isPhone(s) ? byThumb : byMouse), ...byKeys];
  return [
    h('h2', { id: 'dialog-title' }, 'How to read this'),
    h('p', { class: 'sub' }, 'Every head decides, for each token, how to share one unit of attention among the tokens ' +
      'it may see. A row of the matrix is one token looking; strongly coloured cells are what it looks at. Hatched cells ' +
      'lie in its future: hidden, not zero.'),
    h('div', { class: 'keys' }, keys.flatMap(([key, does]) => [h('span', null, h('span', { class: 'kbd' }, key)), h('span', null, does)])),
    h('p', { class: 'right' }, close(a)),
  ];
}

const columns: [keyof Metrics, string][] = [
  ['previous', 'previous'], ['first', 'first'], ['current', 'current'], ['duplicate', 'duplicate'],
  ['induction', 'induction'], ['entropy', 'evenness'], ['effective_tokens', 'tokens'], ['confidence', 'confidence'],
  ['distance', 'distance'], ['probe_duplicate', 'probe duplicate'], ['probe_induction', 'probe induction'],
];

function table(s: State, a: Actions): Node_[] {
  const shown = (value: number | null | undefined) =>
    value === null || value === undefined ? '–' : value.toFixed(value < 10 ? 3 : 2);
  const { probe } = s.data;
  return [
    h('div', { class: 'sec' }, h('h2', { id: 'dialog-title' }, 'Every head, every number'), h('span', { class: 'grow' }), close(a)),
    h('p', { class: 'sub' }, probe ? `On this text; the last two on ${probe.length} random tokens, twice, ${probe.draws} draws, seed ${probe.seed}.`
                                   : 'On this text.'),
    h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Numbers' },
      h('table', { id: 'numbers' },
        h('tr', null, h('th', { scope: 'col' }, 'head'), columns.map(([, name]) => h('th', { scope: 'col' }, name))),
        s.run!.heads.map((head) => h('tr', null, h('th', { scope: 'row' }, `L${head.layer} H${head.head}`),
          columns.map(([key]) => h('td', { title: String(head.metrics[key] ?? '') }, shown(head.metrics[key]))))))),
  ];
}

export function dialog(s: State, a: Actions): Node_[] {
  if (s.dialog === 'help') return help(s, a);
  if (s.dialog === 'diagnosis' && s.run) return diagnosis(s, a);
  if (s.dialog === 'sinks' && s.run) return sinks(s, a);
  return s.dialog === 'table' && s.run ? table(s, a) : [];
}
