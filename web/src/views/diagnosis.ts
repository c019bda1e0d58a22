// The diagnostic run: every head on random tokens that repeat, a layers × heads table per number.
import type { Actions } from '../actions.ts';
import { css, textOn, weightColour } from '../colour.ts';
import { h, type Node_ } from '../dom.ts';
import { download } from '../export.ts';
import { isDark, isRecorded, type State } from '../state.ts';
import type { Head, Metrics } from '../types.ts';

interface Column {
  key: keyof Metrics;
  name: string;
  says: string;
  share: boolean; // from 0 to 1: coloured as a weight
}

const columns: Column[] = [
  { key: 'induction', name: 'Induction', says: 'on what followed it last time', share: true },
  { key: 'duplicate', name: 'Duplicate', says: 'on the same token of the first copy', share: true },
  { key: 'previous', name: 'Previous', says: 'on the token before', share: true },
  { key: 'first', name: 'First', says: 'on the first token: sinks', share: true },
  { key: 'current', name: 'Current', says: 'on itself', share: true },
  { key: 'entropy', name: 'Evenness', says: '1 = all tokens equally', share: true },
  { key: 'confidence', name: 'Confidence', says: 'largest weight of a row', share: true },
  { key: 'effective_tokens', name: 'Spread', says: 'tokens that it looks at', share: false },
  { key: 'distance', name: 'Distance', says: 'tokens back', share: false },
];

// A recorded text has no engine with it, but the scores that labels were given for.
function recordedHeads(s: State): Head[] {
  return s.run!.heads.map((head) => ({ ...head, metrics: {
    duplicate: head.metrics.probe_duplicate ?? null, induction: head.metrics.probe_induction ?? null } as Metrics }));
}

const headsOf = (s: State) => (isRecorded(s) ? recordedHeads(s) : s.diagnosis?.heads ?? null);
const columnsOf = (s: State) => (isRecorded(s) ? columns.slice(0, 2) : columns);

export function diagnosisCsv(s: State): string {
  const lines = [['layer', 'head', ...columnsOf(s).map((column) => column.key)].join(',')];
  for (const { layer, head, metrics } of headsOf(s)!) {
    lines.push([layer, head, ...columnsOf(s).map(({ key }) => metrics[key] ?? '')].join(','));
  }
  return `${lines.join('\n')}\n`;
}

export function diagnosisJson(s: State): string {
  const { name, parameters } = s.data.model;
  const { length, draws, seed } = s.data.probe!;
  const heads = headsOf(s)!.map(({ layer, head, metrics }) => ({ layer, head,
    metrics: Object.fromEntries(columnsOf(s).map(({ key }) => [key, metrics[key] ?? null])) }));
  return `${JSON.stringify({ model: { name, parameters }, probe: { length, draws, seed }, heads }, null, 1)}\n`;
}

function cell(s: State, { key, share }: Column, head: Head): Node_ {
  const value = head.metrics[key];
  if (value === null || value === undefined) return h('td', null, '–');
  const colour = weightColour(value, isDark(s));
  const text = share ? value.toFixed(2).replace(/^0/, '') : value.toFixed(value < 10 ? 1 : 0);
  return h('td', { title: String(value), ...(share ? { style: { background: css(colour), color: textOn(colour) } } : {}) }, text);
}

function table(s: State, column: Column, heads: Head[]): Node_ {
  const { num_layers, num_heads } = s.sizes!;
  const numbered = (count: number) => Array.from({ length: count }, (_, n) => n);
  return h('table', { class: 'dg', 'data-metric': column.key },
    h('caption', null, h('b', null, column.name), ` ${column.says}`),
    h('tr', null, h('th', { scope: 'col' }, h('span', { class: 'sr' }, 'layer')),
      numbered(num_heads).map((n) => h('th', { scope: 'col' }, n))),
    numbered(num_layers).map((layer) => h('tr', null, h('th', { scope: 'row' }, layer),
      numbered(num_heads).map((n) => cell(s, column, heads[layer * num_heads + n]!)))));
}

function buttons(s: State): Node_[] {
  const save = (ending: string, type: string, make: (s: State) => string) => () =>
    download(`heads-on-random-repeats.${ending}`, new Blob([make(s)], { type }));
  return [
    h('button', { class: 'tg', id: 'diagnosis-csv', onclick: save('csv', 'text/csv', diagnosisCsv) }, 'CSV'),
    h('button', { class: 'tg', id: 'diagnosis-json', onclick: save('json', 'application/json', diagnosisJson) }, 'JSON'),
  ];
}

function body(s: State, heads: Head[] | null): Node_ {
  const { probe } = s.data;
  if (!probe) return h('p', { class: 'note' }, 'This model reads too few tokens at once: the probe needs 51.');
  const { error, done } = s.diagnosis ?? { error: null, done: 0 };
  if (error) return h('p', { class: 'bar', role: 'status' }, error);
  if (!heads) {
    return h('p', { class: 'sub', role: 'status', id: 'progress' }, `Draw ${Math.min(done + 1, probe.draws)} of ${probe.draws}… `,
             h('progress', { max: probe.draws, value: done, 'aria-label': 'Draws that are done' }));
  }
  return h('div', { class: 'scroll dgs', tabindex: 0, role: 'region', 'aria-label': 'Tables: rows are layers, columns heads' },
    columnsOf(s).map((column) => table(s, column, heads)));
}

export function diagnosis(s: State, a: Actions): Node_[] {
  const heads = headsOf(s);
  const { probe } = s.data;
  return [
    h('div', { class: 'sec' }, h('h2', { id: 'dialog-title' }, 'Every head on random repeats'), h('span', { class: 'grow' }),
      probe && heads ? buttons(s) : [], h('button', { class: 'tg', id: 'close', onclick: () => a.openDialog(null) }, 'Close')),
    h('p', { class: 'sub', id: 'probe' }, probe
      ? `${probe.length} random tokens, twice: nothing to understand, only to find again. Means over ${probe.draws} draws, seed ${probe.seed}. ` +
        `Rows are layers, columns heads.${isRecorded(s) ? ' As stored with this text; the other numbers need the model.' : ''}` : ''),
    body(s, heads),
  ];
}
