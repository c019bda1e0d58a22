import { h, type Node_ } from '../dom.ts';
import { counted } from '../format.ts';
import { isRecorded, type State } from '../state.ts';

export function footer(s: State): Node_[] {
  const { name, parameters, dtype } = s.data.model;
  const sizes = s.run && s.sizes
    ? ` · ${counted(s.run.tokens.length, 'token')} · ${counted(s.sizes.num_layers, 'layer')} × ${counted(s.sizes.num_heads, 'head')}` : '';
  const full = s.data.recorded?.full;
  return [
    h('span', { id: 'model' }, name + sizes, full && h('span', { id: 'full' }, `, ${full.length} in full`)),
    h('span', { class: 'hidephone', id: 'parameters' }, `parameters ${parameters}`),
    h('span', { class: 'hidephone', id: 'dtype' }, isRecorded(s) ? `recorded in ${dtype}` : `${dtype}, computed in float32`),
    h('span', { class: 'grow' }),
    h('span', { class: 'last' }, isRecorded(s)
      ? 'A label names a pattern of the weights, not its effect on the output.'
      : 'A label names a pattern of the weights. Its effect shows when you switch the head off.'),
  ];
}
