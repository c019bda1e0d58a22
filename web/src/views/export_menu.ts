// Files of what is shown, beside Display.
import type { Actions } from '../actions.ts';
import { h, type Node_ } from '../dom.ts';
import { csv, download, fileName, npy, png, svg } from '../export.ts';
import { isPooled, isTooLong, type State } from '../state.ts';

async function savePng(s: State, a: Actions, scale: number): Promise<void> {
  try {
    const name = scale === 1 ? 'png' : `${scale}x.png`;
    download(fileName(s, name), await png(s, scale));
  } catch (error) {
    a.toast((error as Error).message);
  }
}

export function exportMenu(s: State, a: Actions): Node_ {
  if (isPooled(s)) {
    return h('div', { class: 'pop', role: 'group', 'aria-label': 'Export' },
      h('p', { class: 'note' }, isTooLong(s) ? 'This text is too long for the page to export; cephalo look writes its weights.'
        : 'This recording does not keep every head in full, so the page cannot export them; cephalo look writes every weight.'));
  }
  const save = (ending: string, type: string, make: (s: State) => BlobPart) =>
    download(fileName(s, ending), new Blob([make(s)], { type }));
  const item = (id: string, words: string, kind: string, onclick: () => void) =>
    h('button', { class: 'mi', id: `save-${id}`, onclick }, words, h('span', null, kind));
  return h('div', { class: 'pop menu', role: 'group', 'aria-label': 'Export' },
    h('div', null, 'Picture, PNG', h('span', { class: 'seg' }, [1, 2, 4].map((scale) =>
      h('button', { id: `save-png-${scale}`, 'aria-label': `Picture, PNG, ${scale} times the size`,
                    onclick: () => void savePng(s, a, scale) }, `${scale}×`)))),
    item('svg', 'Picture with real text', 'SVG', () => save('svg', 'image/svg+xml', svg)),
    item('csv', 'Numbers', 'CSV', () => save('csv', 'text/csv', csv)),
    item('npy', 'Array for NumPy', '.npy', () => save('npy', 'application/octet-stream', (now) => npy(now) as BlobPart)),
    h('p', { class: 'note' }, 'Of the head that is shown, coloured as under Display.'));
}
