// Why so many heads look at the first token.
import type { Actions } from '../actions.ts';
import { h, type Node_ } from '../dom.ts';
import { percent } from '../format.ts';
import { chosenHead, firstTokenShare } from '../select.ts';
import type { State } from '../state.ts';

export const question = 'Why does everything look at the first token?';

export const restsOnFirst = (s: State) => !s.over && chosenHead(s).labels.some((l) => l.label === 'sink');

export function sinks(s: State, a: Actions): Node_[] {
  const { first } = chosenHead(s).metrics;
  const resting = s.run!.heads.filter((head) => head.labels.some((l) => l.label === 'sink')).length;
  return [
    h('h2', { id: 'dialog-title' }, question),
    h('p', { class: 'sub' }, 'Softmax makes every row add up to 1. A head that finds nothing to look for must still put that 1 ' +
      'somewhere, and the first token is the one that every token sees. So heads learn to rest there: it is called an attention sink.'),
    h('p', { class: 'sub', id: 'sink-numbers' }, `${resting} of ${s.run!.heads.length} heads rest on it here. Resting costs little where the ` +
      `first token’s value is small: this head gives it ${percent(first ?? 0)} of its attention, and gets ${percent(firstTokenShare(s))} ` +
      'of what it adds from it. Weighed by value, such resting places fade.'),
    h('p', { class: 'right' },
      h('button', { class: 'tg', id: 'weigh', onclick: () => { a.setByValue(!s.byValue); a.openDialog(null); } },
        s.byValue ? 'Show plain weights' : 'Weigh by value'), ' ',
      h('button', { class: 'tg', id: 'close', onclick: () => a.openDialog(null) }, 'Close')),
  ];
}
