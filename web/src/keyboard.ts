// Everything without a mouse. In each group of controls one is a Tab stop, and arrows move within.
import type { Actions } from './actions.ts';
import { waitsForRow } from './select.ts';
import type { Store } from './state.ts';

const arrows: Record<string, [number, number]> = {
  ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1],
};

// Focus follows what was chosen, once it is drawn: in the frame after its row has come, where it
// had to be waited for.
function focusOn(store: Store, selector: string, waits = waitsForRow(store.state)): void {
  requestAnimationFrame(() => {
    if (waits) focusOn(store, selector);
    else document.querySelector<HTMLElement>(selector)?.focus();
  });
}

function moveByArrow(store: Store, a: Actions, key: string): boolean {
  const move = arrows[key];
  const at = document.activeElement;
  if (!move || !at) return false;
  const [down, right] = move;
  if (at.closest('.hrows')) {
    if (down) a.moveLayer(down);
    else a.moveHead(right);
    focusOn(store, '.hc[tabindex="0"]');
  } else if (at.closest('[role=tablist]')) {
    const tabs = [...at.closest('[role=tablist]')!.querySelectorAll<HTMLButtonElement>('[role=tab]:not([disabled])')];
    const to = tabs[(tabs.indexOf(at as HTMLButtonElement) + (down || right) + tabs.length) % tabs.length]!;
    to.click();
    to.focus();
  } else if (at.closest('.chips')) {
    a.moveToken(down || right, 0);
    focusOn(store, '.chip[tabindex="0"]');
  } else if (at.matches('button, a') && !at.closest('#view')) {
    return false;
  } else {
    a.moveToken(down, right);
  }
  return true;
}

export function listenToKeys(store: Store, a: Actions): void {
  // What had the focus in another view is gone then.
  const moveStep = (by: number) => {
    const leaves = document.activeElement?.closest('#view');
    a.moveStep(by);
    if (leaves) focusOn(store, '.pips [tabindex="0"]');
  };
  const keys: Record<string, () => void> = {
    Escape: () => {
      const { popover } = store.state;
      a.free();
      if (popover) document.getElementById(popover)?.focus();
    },
    '[': () => a.moveHead(-1),
    ']': () => a.moveHead(1),
    '{': () => a.moveLayer(-1),
    '}': () => a.moveLayer(1),
    ',': () => moveStep(-1),
    '.': () => moveStep(1),
    '/': () => document.querySelector<HTMLTextAreaElement>('#text')!.select(),
    '?': () => a.openDialog('help'),
  };
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || store.state.dialog) return;
    const target = event.target as HTMLElement;
    if (['TEXTAREA', 'INPUT', 'SELECT'].includes(target.tagName)) {
      if (event.key === 'Escape') target.blur();
      return;
    }
    if (!store.state.run || !store.state.sizes) return;
    if (event.key === 'Enter' && target.id === 'grid') a.lockChosen();
    else if (keys[event.key]) keys[event.key]!();
    else if (target.closest('.dims, .scroll') || !moveByArrow(store, a, event.key)) return;
    event.preventDefault();
  });
}
