// What if: which heads do not do as they were trained to, and what is asked by that.
import type { State } from './state.ts';
import type { HeadSwitch, OffMeans, Sizes } from './types.ts';

export type Mask = 'causal' | 'none' | 'window';
export type Scope = 'head' | 'layer' | 'all';

// One set of switches for some heads, and heads that are off. Heads are named as in a link: "1.6",
// "1" for all of a layer, "all".
export interface Switches {
  heads: string[];
  scaled: boolean;
  mask: Mask;
  window: number; // keys, of mask "window"
  temperature: number;
  off: string[];
  offMeans: OffMeans;
  scope: Scope; // what the next switch is for
}

export const noSwitches: Switches = {
  heads: [], scaled: true, mask: 'causal', window: 4, temperature: 1, off: [], offMeans: 'zero', scope: 'head',
};

// Indices in order; names of what the model does not have are left out.
export function indicesOf(names: string[], { num_layers, num_heads }: Sizes): number[] {
  const found = new Set<number>();
  const addLayer = (layer: number) => {
    for (let head = 0; head < num_heads; ++head) found.add(layer * num_heads + head);
  };
  for (const name of names) {
    const [layer, head] = name.split('.').map(Number);
    if (name === 'all') for (let each = 0; each < num_layers; ++each) addLayer(each);
    else if (layer! < num_layers && head === undefined) addLayer(layer!);
    else if (layer! < num_layers && head! < num_heads) found.add(layer! * num_heads + head!);
  }
  return [...found].sort((a, b) => a - b);
}

export function namesOf(indices: number[], { num_layers, num_heads }: Sizes): string[] {
  const chosen = new Set(indices);
  if (chosen.size === num_layers * num_heads) return ['all'];
  const names: string[] = [];
  for (let layer = 0; layer < num_layers; ++layer) {
    const of = Array.from({ length: num_heads }, (_, head) => head).filter((head) => chosen.has(layer * num_heads + head));
    if (of.length === num_heads) names.push(String(layer));
    else names.push(...of.map((head) => `${layer}.${head}`));
  }
  return names;
}

// A link may name heads that another model does not have.
export function knownSwitches(w: Switches, sizes: Sizes): Switches {
  const known = (names: string[]) => namesOf(indicesOf(names, sizes), sizes);
  const [heads, off] = [known(w.heads), known(w.off)];
  return String([heads, off]) === String([w.heads, w.off]) ? w : { ...w, heads, off };
}

// The heads that a switch would be for.
export function scopeIndices(s: State): number[] {
  const { layer, head, over } = s;
  const { scope } = s.switches;
  const name = scope === 'all' ? 'all' : scope === 'layer' || over ? String(layer) : `${layer}.${head}`;
  return indicesOf([name], s.sizes!);
}

const attendsOtherwise = (w: Switches) => !w.scaled || w.mask !== 'causal' || w.temperature !== 1;

// A page that keeps one text has no model to run it again.
export const canSwitch = (s: State) => s.data.recorded === undefined;

export const bentIndices = (s: State) =>
  attendsOtherwise(s.switches) ? indicesOf(s.switches.heads, s.sizes!) : [];
export const offIndices = (s: State) => indicesOf(s.switches.off, s.sizes!);
export const isSwitched = (s: State) => s.sizes !== null && canSwitch(s) && bentIndices(s).length + offIndices(s).length > 0;

// What the engine is told.
export function headSwitches(s: State): HeadSwitch[] {
  const { num_heads } = s.sizes!;
  const w = s.switches;
  const [bent, off] = [new Set(bentIndices(s)), new Set(offIndices(s))];
  const keys = { causal: 0, none: -1, window: w.window }[w.mask];
  return [...new Set([...bent, ...off])].sort((a, b) => a - b).map((index) => ({
    layer: Math.floor(index / num_heads), head: index % num_heads,
    scaled: !bent.has(index) || w.scaled, temperature: bent.has(index) ? w.temperature : 1,
    keys: bent.has(index) ? keys : 0, off: off.has(index) ? w.offMeans : null }));
}

function subject(s: State, indices: number[]): string {
  const { num_heads } = s.sizes!;
  const names = namesOf(indices, s.sizes!);
  if (names[0] === 'all') return 'every head';
  if (indices.length === 1) {
    const [layer, head] = [Math.floor(indices[0]! / num_heads), indices[0]! % num_heads];
    return !s.over && layer === s.layer && head === s.head ? 'this head' : `layer ${layer} head ${head}`;
  }
  return names.length === 1 ? `every head of layer ${names[0]}` : `${indices.length} heads`;
}

// "this head" "did not divide by √32 and could see the future"; heads that are off apart where they
// are others.
export function questions(s: State): { subject: string; what: string }[] {
  const w = s.switches;
  const [bent, off] = [bentIndices(s), offIndices(s)];
  const tokens = w.window === 1 ? 'let each token see only itself' : `saw only the last ${w.window} tokens`;
  const what = [!w.scaled && `did not divide by √${s.sizes!.head_dim}`, w.mask === 'none' && 'could see the future',
                w.mask === 'window' && tokens, w.temperature !== 1 && `had temperature ${w.temperature}`]
    .filter(Boolean).join(' and ');
  const its = off.length === 1 ? 'its mean' : 'their means';
  const without = { zero: 'were switched off', mean: `passed on only ${its}`, even: 'looked at everything equally' }[w.offMeans];
  const one = String(bent) === String(off);
  const found: { subject: string; what: string }[] = [];
  if (bent.length > 0) found.push({ subject: subject(s, bent), what: one ? `${what} and ${without}` : what });
  if (off.length > 0 && !one) found.push({ subject: subject(s, off), what: without });
  return found;
}

// In a link: "unscaled_last4_t2.5".
export function switchWords(w: Switches): string {
  return [!w.scaled && 'unscaled', w.mask === 'none' && 'nomask', w.mask === 'window' && `last${w.window}`,
          w.temperature !== 1 && `t${w.temperature}`].filter(Boolean).join('_');
}

const isHeads = (name: string) => /^(all|\d{1,4}|\d{1,4}\.\d{1,4})$/.test(name);

export function switchesFrom(link: URLSearchParams): Switches {
  const words = (link.get('if') ?? '').split('_');
  const last = words.map((word) => /^last(\d{1,5})$/.exec(word)?.[1]).find(Boolean);
  const warmth = Number(words.find((word) => /^t[\d.]{1,8}$/.test(word))?.slice(1) ?? 1);
  const heads = (name: string) => (link.get(name) ?? '').split('_').filter(isHeads);
  const means = link.get('means');
  const scope = link.get('scope');
  return {
    heads: heads('in'), scaled: !words.includes('unscaled'),
    mask: words.includes('nomask') ? 'none' : Number(last) > 0 ? 'window' : 'causal', window: Number(last) || 4,
    temperature: warmth >= 0.1 && warmth <= 10 ? warmth : 1,
    off: heads('off'), offMeans: means === 'mean' || means === 'even' ? means : 'zero',
    scope: scope === 'layer' || scope === 'all' ? scope : 'head',
  };
}

export function switchesTo(link: URLSearchParams, w: Switches): void {
  if (switchWords(w) && w.heads.length > 0) {
    link.set('if', switchWords(w));
    link.set('in', w.heads.join('_'));
  }
  if (w.off.length > 0) link.set('off', w.off.join('_'));
  if (w.offMeans !== 'zero') link.set('means', w.offMeans);
  if (w.scope !== 'head') link.set('scope', w.scope);
}
