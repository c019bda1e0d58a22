import type { Actions } from '../actions.ts';
import { h, type Node_ } from '../dom.ts';
import { isDark, isRecorded, type State } from '../state.ts';
import { drop } from './drop.ts';
import { icon } from './icons.ts';

export const tries: { name: string; text: string }[] = [
  { name: 'A repeated name', text: 'Peter Rabbit met Jemima. Peter Rabbit met Jemima. Peter' },
  { name: 'The cat', text: 'The cat sat on the mat. The cat sat on the' },
];

export function top(s: State, a: Actions): Node_[] {
  const square = (x: number, y: number, opacity?: number, fill?: string) =>
    h('rect', { x, y, width: 5, height: 5, rx: 1.2, opacity, fill: fill ?? 'currentColor' });
  return [
    h('div', { class: 'brand' },
      h('svg', { width: 20, height: 20, viewBox: '0 0 20 20', 'aria-hidden': 'true' },
        square(1, 1), square(1, 7.5, 0.35), square(7.5, 7.5), square(1, 14, 0.2),
        square(14, 14, 0.35), h('rect', { class: 'picked', x: 7.5, y: 14, width: 5, height: 5, rx: 1.2 })),
      'cephalo'),
    h('label', { class: 'field' },
      h('span', { class: 'sr' }, isRecorded(s) ? 'The text of this page' : 'Text to look into'),
      // Not an input: a text may have several lines.
      h('textarea', { id: 'text', rows: 1, value: s.text, spellcheck: 'false', autocomplete: 'off', maxlength: 20000,
                      readonly: isRecorded(s), 'aria-describedby': isRecorded(s) ? 'fixed' : undefined,
                      oninput: (e: InputEvent) => a.type((e.target as HTMLTextAreaElement).value) }),
      h('span', { class: 'kbd', 'aria-hidden': 'true' }, '/')),
    isRecorded(s) ? h('div', { class: 'fixed', id: 'fixed' }, 'A recording of this one text. To type your own: ',
      h('code', null, 'cephalo page TEXT --live'))
    : h('div', { class: 'try' }, h('span', null, 'Try'),
      tries.map((t) => h('button', { class: 'link', 'aria-pressed': String(s.text === t.text),
                                     onclick: () => a.tryText(t.text) }, t.name))),
    h('span', { class: 'grow' }),
    h('button', { class: 'ib', id: 'share', title: 'Copy a link to exactly this view',
                  'aria-label': 'Copy link', onclick: () => copyLink(a) }, icon('link')),
    h('button', { class: 'ib', id: 'print', title: 'Print this view', 'aria-label': 'Print',
                  onclick: () => window.print() }, icon('print')),
    h('button', { class: 'ib', id: 'theme', title: 'Light or dark', 'aria-label': 'Light or dark',
                  onclick: () => a.setTheme(isDark(s) ? 'light' : 'dark') }, icon('theme')),
    h('button', { class: 'ib', id: 'help', title: 'Keys and how to read this (?)',
                  'aria-label': 'Help', onclick: () => a.openDialog('help') }, icon('help')),
    drop(s, a, 'menu', { props: { class: 'ib', title: 'More', 'aria-label': 'More' }, shows: icon('more') }, () => phoneMenu(s, a)),
  ];
}

// What a phone has no room for elsewhere.
function phoneMenu(s: State, a: Actions): Node_ {
  const item = (id: string, words: string, onclick: () => void, disabled = false) =>
    h('button', { class: 'mi', id: `menu-${id}`, disabled, onclick }, words);
  return h('div', { class: 'pop menu', role: 'group', 'aria-label': 'More' },
    item('table', 'Table of all numbers', () => a.openDialog('table'), !s.run),
    item('diagnose', 'Diagnostic run', () => a.diagnose(), !s.run),
    item('share', 'Copy link', () => { a.togglePopover('menu'); void copyLink(a); }),
    item('print', 'Print', () => { a.togglePopover('menu'); window.print(); }),
    item('help', 'Help', () => a.openDialog('help')));
}

async function copyLink(a: Actions): Promise<void> {
  try {
    await navigator.clipboard.writeText(location.href);
    a.toast('Link to this view copied');
  } catch {
    a.toast('The address of this page is the link: copy it from the address bar');
  }
}
