import type { Actions } from '../actions.ts';
import { h, type Node_, type Props } from '../dom.ts';
import type { Popover, State } from '../state.ts';

// A button and what it opens, which stands right after it: Tab goes from one into the other.
export function drop(s: State, a: Actions, id: Popover, button: { props: Props; shows: Node_ | string }, opened: () => Node_): Node_ {
  const open = s.popover === id;
  return h('span', { class: 'drop' },
    h('button', { ...button.props, id, 'aria-expanded': String(open), onclick: () => a.togglePopover(id) }, button.shows),
    open && opened());
}
