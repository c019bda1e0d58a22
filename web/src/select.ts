// What follows from the state: the matrix that is shown, the chosen token and key, their ranks.
import { isPooled, type State, type SwitchedRun } from './state.ts';
import { isSwitched } from './switches.ts';
import type { Head, Label, Run } from './types.ts';

const matrices = new WeakMap<Run, Map<string, Float32Array>>();

function remembered(run: Run, name: string, make: () => Float32Array): Float32Array {
  let known = matrices.get(run);
  if (!known) matrices.set(run, (known = new Map()));
  let found = known.get(name);
  if (!found) known.set(name, (found = make()));
  return found;
}


// A view, not a copy: [tokens, tokens]
export function headWeights(run: Run, index: number): Float32Array {
  const size = run.tokens.length ** 2;
  return run.weights.subarray(index * size, (index + 1) * size);
}

// A[i][j] · norm_j with rows that add up to 1: resting places that move nothing fade.
export function valueWeighted(run: Run, index: number): Float32Array {
  return remembered(run, `value ${index}`, () => {
    const count = run.tokens.length;
    const out = Float32Array.from(headWeights(run, index));
    for (let i = 0; i < count; ++i) {
      let sum = 0;
      for (let j = 0; j <= i; ++j) sum += out[i * count + j]! *= run.norms[index * count + j]!;
      for (let j = 0; j <= i && sum > 0; ++j) out[i * count + j]! /= sum;
    }
    return out;
  });
}

function overHeads(heads: Float32Array[], kind: 'mean' | 'max'): Float32Array {
  const out = new Float32Array(heads[0]!.length);
  for (const of of heads) {
    for (let n = 0; n < out.length; ++n) {
      out[n] = kind === 'max' ? Math.max(out[n]!, of[n]!) : out[n]! + of[n]! / heads.length;
    }
  }
  return out;
}

function overLayer(run: Run, layer: number, numHeads: number, kind: 'mean' | 'max',
                   byValue: boolean): Float32Array {
  return remembered(run, `${kind} ${layer} ${byValue}`, () =>
    overHeads(Array.from({ length: numHeads }, (_, h) => byValue ? valueWeighted(run, layer * numHeads + h)
                                                                : headWeights(run, layer * numHeads + h)), kind));
}

// How far up the colour scale a weight stands: as it is, of its row's largest, or by its logarithm.
export function shareOf(s: State, weights: Float32Array): (weight: number, row: number) => number {
  const count = s.run!.tokens.length;
  if (s.scale === 'log') return (w) => Math.max(0, 1 + Math.log10(Math.max(w, 1e-4)) / 4);
  if (s.scale === 'fixed') return (w) => w;
  const largest = Array.from({ length: count }, (_, i) =>
    weights.subarray(i * count, (i + 1) * count).reduce((m, v) => Math.max(m, v), 0));
  return (w, i) => w / (largest[i]! || 1);
}

export const headIndex = (s: State) => s.layer * s.sizes!.num_heads + s.head;
export const chosenHead = (s: State): Head => s.run!.heads[headIndex(s)]!;

// The run under switches, where it is the one to show. Steps are those of the trained model.
export function switchedRun(s: State): SwitchedRun | null {
  const found = s.switched;
  return found && found.run === s.run && found.layer === s.layer && !['steps', 'compare'].includes(s.tab) && isSwitched(s) ? found : null;
}

// [tokens, tokens]; null: nothing is switched
export function switchedWeights(s: State): Float32Array | null {
  const found = switchedRun(s);
  if (!found) return null;
  const size = s.run!.tokens.length ** 2;
  const of = (head: number) => found.weights.subarray(head * size, (head + 1) * size);
  return s.over ? overHeads(Array.from({ length: s.sizes!.num_heads }, (_, head) => of(head)), s.over) : of(s.head);
}

// Is what the chosen head sees other than as trained? Heads that are off see what they saw.
export function isChanged(s: State): boolean {
  const found = switchedRun(s);
  if (!found || found.heads.length === 0) return false;
  const first = Math.min(...found.heads.map((head) => head.layer));
  return s.layer > first || found.heads.some((head) => head.layer === s.layer && (s.over !== null || head.head === s.head) &&
    (!head.scaled || head.temperature !== 1 || head.keys !== 0));
}

export function isOff(s: State): boolean {
  return !s.over && (switchedRun(s)?.heads.some((head) => head.layer === s.layer && head.head === s.head && head.off !== null) ?? false);
}

// The keys that a token may look at.
export function visible(s: State, query: number): { first: number; end: number } {
  const count = s.run!.tokens.length;
  const of = switchedRun(s)?.heads.filter((head) => head.layer === s.layer && (s.over !== null || head.head === s.head)) ?? [];
  if (of.some((head) => head.keys < 0)) return { first: 0, end: count };
  const keys = s.over ? 0 : (of[0]?.keys ?? 0);
  return { first: keys > 0 ? Math.max(0, query - keys + 1) : 0, end: query + 1 };
}

export function isCausal(s: State): boolean {
  const last = s.run!.tokens.length - 1;
  return visible(s, 0).end === 1 && visible(s, last).first === 0;
}

export function sees(s: State, query: number, key: number): boolean {
  const { first, end } = visible(s, query);
  return key >= first && key < end;
}

// Are the shown weights weighed by value? The norms are those of the trained model, so not where a
// head sees something else, nor where what it passes on is off.
export function isByValue(s: State): boolean {
  return s.byValue && !isPooled(s) && !isChanged(s) &&
    !switchedRun(s)?.heads.some((head) => head.off !== null && head.layer === s.layer && (s.over !== null || head.head === s.head));
}

// What the centre shows: [tokens, tokens]
export function shownWeights(s: State): Float32Array {
  return isByValue(s) ? trainedWeights(s) : plainWeights(s);
}

// The same without values: what softmax gave.
export function plainWeights(s: State): Float32Array {
  return switchedWeights(s) ?? trainedWeights({ ...s, byValue: false });
}

export function trainedWeights(s: State): Float32Array {
  const run = s.run!;
  if (s.over) return overLayer(run, s.layer, s.sizes!.num_heads, s.over, s.byValue);
  return s.byValue ? valueWeighted(run, headIndex(s)) : headWeights(run, headIndex(s));
}

export function thumbnailWeights(s: State, index: number): Float32Array {
  return s.byValue ? valueWeighted(s.run!, index) : headWeights(s.run!, index);
}

// The token that looks and the key that is looked at: under the pointer, locked, or the last token.
export function choice(s: State): { query: number; key: number } {
  const count = s.run!.tokens.length;
  const cell = s.hover ?? s.lock;
  const query = Math.min(cell?.query ?? count - 1, count - 1);
  const row = rowOf(s, query);
  const key = cell?.key;
  const { first, end } = visible(s, query);
  if (key !== null && key !== undefined && key >= first && key < end) return { query, key };
  let best = first;
  for (let j = first + 1; j < end; ++j) if (!(row[j]! <= row[best]!) && isKept(row, j)) best = j;
  return { query, key: best };
}

// Of a pooled run: the last token's weights are always there.
function pooledRow(s: State, query: number): Float32Array {
  const run = s.run!;
  const { row } = s;
  if (hasRow(s, query)) return row!.values;
  const numHeads = s.sizes!.num_heads;
  if (!s.over) return lastRow(run, headIndex(s));
  return remembered(run, `last ${s.over} ${s.layer}`, () => {
    const out = new Float32Array(run.tokens.length);
    for (let h = 0; h < numHeads; ++h) {
      lastRow(run, s.layer * numHeads + h).forEach((w, j) => {
        out[j] = s.over === 'max' ? Math.max(out[j]!, w) : out[j]! + w / numHeads;
      });
    }
    return out;
  });
}

export function hasRow(s: State, query: number): boolean {
  const { row } = s;
  return row !== null && row.query === query && row.layer === s.layer && row.over === s.over &&
    (s.over !== null || row.head === s.head);
}

export function lastRow(run: Run, index: number): Float32Array {
  const count = run.tokens.length;
  const from = run.pooled ? run.pooled.last.subarray(index * count) : headWeights(run, index).subarray((count - 1) * count);
  return from.subarray(0, count);
}

// Is what the choice shows not there yet?
export function waitsForRow(s: State): boolean {
  if (!isPooled(s) || s.error) return false;
  const cell = s.hover ?? s.lock;
  if (cell?.block && cell.key === null) return true;
  const last = s.run!.tokens.length - 1;
  const query = Math.min(cell?.query ?? last, last);
  return query !== last && !hasRow(s, query);
}

export function rowOf(s: State, query: number): Float32Array {
  if (isPooled(s)) return pooledRow(s, query);
  const count = s.run!.tokens.length;
  return shownWeights(s).subarray(query * count, (query + 1) * count);
}

// The same without values.
export function plainRow(s: State, query: number): Float32Array {
  const count = s.run!.tokens.length;
  return isByValue(s) ? plainWeights(s).subarray(query * count, (query + 1) * count) : rowOf(s, query);
}

// A recording leaves weak keys of some heads out.
export const isKept = (row: Float32Array, key: number) => !Number.isNaN(row[key]!);

// Keys that a token sees and that were kept, the one with most weight first.
export function ranked(s: State, query: number, row = rowOf(s, query)): number[] {
  const { first, end } = visible(s, query);
  return Array.from({ length: end - first }, (_, n) => first + n).filter((j) => isKept(row, j)).sort((a, b) => row[b]! - row[a]! || a - b);
}

// exp of the entropy of a row: over how many keys it is spread
export function spread(row: Float32Array): number {
  let entropy = 0;
  for (const weight of row) if (weight > 0) entropy -= weight * Math.log(weight);
  return Math.exp(entropy);
}

// How much of what the chosen head adds comes from the first token.
export function firstTokenShare(s: State): number {
  const known = chosenHead(s).first_share;
  if (known !== undefined) return known;
  const count = s.run!.tokens.length;
  if (count < 2) return 0;
  const moved = valueWeighted(s.run!, headIndex(s));
  let sum = 0;
  for (let i = 1; i < count; ++i) sum += moved[i * count]!;
  return sum / (count - 1);
}

// Does a label's score count the weight of query i on key j?
export function counts(run: Run, label: Label, i: number, j: number): boolean {
  const id = (n: number) => run.tokens[n]!.id;
  if (i < 1 || j > i) return false;
  switch (label) {
    case 'previous': return j === i - 1;
    case 'induction': return j >= 1 && j < i && id(j - 1) === id(i);
    case 'duplicate': return j < i && id(j) === id(i);
    case 'sink': return j === 0;
    case 'current': return j === i;
    case 'diffuse': return false;
  }
}
