import { h, type Node_ } from '../dom.ts';
import type { State } from '../state.ts';

export function footer(s: State): Node_[] {
  const { name, parameters, dtype } = s.data.model;
  const counted = s.run && s.sizes
    ? ` · ${s.run.tokens.length} tokens · ${s.sizes.num_layers} layers × ${s.sizes.num_heads} heads` : '';
  return [
    h('span', { id: 'model' }, name + counted),
    h('span', { class: 'hidephone', id: 'parameters' }, `parameters ${parameters}`),
    h('span', { class: 'hidephone', id: 'dtype' }, `${dtype}, computed in float32`),
    h('span', { class: 'grow' }),
    h('span', { class: 'last' }, 'A label names a pattern of the weights, not its effect on the output.'),
  ];
}
