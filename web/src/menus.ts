// Menus close when one turns to something else, and give the focus back to their button.
import type { Store } from './state.ts';

export function listenToMenus(store: Store): void {
  const leave = (event: Event) => {
    const { popover } = store.state;
    const place = popover && document.getElementById(popover)?.parentElement;
    if (popover && !place?.contains(event.target as Element)) store.update({ popover: null });
  };
  document.addEventListener('click', leave);
  document.addEventListener('focusin', leave);
  store.subscribe((now, before) => {
    if (!before.popover || now.popover === before.popover) return;
    if (document.activeElement?.closest('.pop')) document.getElementById(before.popover)?.focus();
  });
}
