import { h, type Node_ } from '../dom.ts';
import { isRecorded, type State } from '../state.ts';

function fullHeads(s: State): Node_ | null {
  const full = s.data.recorded?.full;
  return full ? h('span', { id: 'full' }, `${full.length} of ${s.data.recorded!.heads.length} heads in full`) : null;
}

export function footer(s: State): Node_[] {
  const { name, parameters, dtype } = s.data.model;
  const counted = s.run && s.sizes
    ? ` · ${s.run.tokens.length} tokens · ${s.sizes.num_layers} layers × ${s.sizes.num_heads} heads` : '';
  const shown: (Node_ | null)[] = [
    h('span', { id: 'model' }, name + counted),
    h('span', { class: 'hidephone', id: 'parameters' }, `parameters ${parameters}`),
    h('span', { class: 'hidephone', id: 'dtype' }, isRecorded(s) ? `recorded in ${dtype}` : `${dtype}, computed in float32`),
    fullHeads(s),
    h('span', { class: 'grow' }),
    h('span', { class: 'last' }, 'A label names a pattern of the weights. Its effect shows when you switch the head off.'),
  ];
  return shown.filter((each) => each !== null);
}
