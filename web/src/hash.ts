// A view as an address: everything that a link must bring back, in location.hash.
import { isLayerFull, isRecorded, type State, type Tab } from './state.ts';
import { knownSwitches, switchesFrom, switchesTo } from './switches.ts';
import type { Label } from './types.ts';
import { labels, noLayer } from './words.ts';

const tabs: Tab[] = ['matrix', 'lines', 'steps', 'compare'];

export function toHash(s: State): string {
  const out = new URLSearchParams();
  if (s.text !== s.data.text) out.set('text', s.text);
  out.set('head', `${s.layer}.${s.over ?? s.head}`);
  if (s.tab !== 'matrix') out.set('tab', s.tab);
  if (s.tab === 'steps') out.set('step', String(s.step));
  if (s.tab === 'compare') {
    const { with: kind, place, text } = s.compared;
    if (kind === 'text') out.set('b', text);
    else if (place) out.set('with', `${place.layer}.${place.head}`);
  }
  if (s.lock) out.set('lock', s.lock.key === null ? `${s.lock.query}` : `${s.lock.query}.${s.lock.key}`);
  if (s.scale !== 'fixed') out.set('colour', s.scale);
  if (s.byValue) out.set('by', 'value');
  if (s.spread) out.set('rows', 'spread');
  if (s.filter) out.set('kind', s.filter);
  if (s.why) out.set('why', s.why);
  if (s.neuron) out.set('neuron', '1');
  switchesTo(out, s.switches);
  if (s.whatIf) out.set('more', '1');
  if (s.grid !== 'patterns') out.set('grid', s.grid);
  if (s.theme) out.set('theme', s.theme);
  return `#${out}`;
}

const whole = (text: string | undefined): number | null =>
  text !== undefined && /^\d{1,6}$/.test(text) ? Number(text) : null;
const oneOf = <T extends string>(text: string | null, all: readonly T[]): T | null =>
  all.find((each) => each === text) ?? null;

// What a link says; whatever it does not say is as in a new page. Nonsense is left out. `head` is
// missing where the page is to choose.
export function fromHash(hash: string, text: string): Partial<State> & { headGiven: boolean } {
  const from = new URLSearchParams(hash.replace(/^#/, ''));
  const [layer, head] = (from.get('head') ?? '').split('.');
  const over = oneOf(head ?? null, ['mean', 'max'] as const);
  const [query, key] = (from.get('lock') ?? '').split('.');
  const lockedQuery = whole(query);
  const [layerB, headB] = (from.get('with') ?? '').split('.').map(whole);
  const headGiven = whole(layer) !== null && (over !== null || whole(head) !== null);
  return {
    headGiven,
    text: from.get('text') ?? text,
    ...(headGiven ? { layer: whole(layer)!, head: whole(head) ?? 0 } : {}),
    over: headGiven ? over : null,
    tab: oneOf(from.get('tab'), tabs) ?? 'matrix',
    compared: {
      with: from.has('b') ? 'text' : 'head', text: from.get('b') ?? '', run: null, error: null,
      place: typeof layerB === 'number' && typeof headB === 'number' ? { layer: layerB, head: headB } : null,
    },
    step: Math.min(whole(from.get('step') ?? undefined) ?? 4, 6),
    lock: lockedQuery === null ? null : { query: lockedQuery, key: whole(key) },
    scale: oneOf(from.get('colour'), ['row', 'log'] as const) ?? 'fixed',
    byValue: from.get('by') === 'value',
    spread: from.get('rows') === 'spread',
    filter: oneOf<Label>(from.get('kind'), labels),
    why: oneOf<Label>(from.get('why'), labels),
    neuron: from.has('neuron'),
    switches: switchesFrom(from),
    whatIf: from.has('more'),
    grid: from.get('grid') === 'effect' ? 'effect' : 'patterns',
    theme: oneOf(from.get('theme'), ['light', 'dark'] as const),
  };
}

// A recorded page has one text, and a model its own heads.
function knownComparison(s: State): State['compared'] {
  const { compared, sizes } = s;
  const { place } = compared;
  const known = !place || (place.layer < sizes!.num_layers && place.head < sizes!.num_heads);
  const kind = isRecorded(s) ? 'head' : compared.with;
  return known && kind === compared.with ? compared : { ...compared, with: kind, place: known ? place : null };
}

// A link may name what another text or model does not have.
export function within(s: State): Partial<State> {
  if (!s.run || !s.sizes) return {};
  const count = s.run.tokens.length;
  const seen = (query: number, key: number) => key < count && (key <= query || s.switches.mask === 'none');
  const lock = s.lock && s.lock.query < count
    ? { query: s.lock.query, key: s.lock.key !== null && seen(s.lock.query, s.lock.key) ? s.lock.key : null }
    : null;
  const layer = Math.min(s.layer, s.sizes.num_layers - 1);
  return {
    tab: s.over && s.tab === 'steps' ? 'matrix' : s.tab, // steps are of one head
    whatIf: s.whatIf && !s.neuron, // one fold at a time
    switches: knownSwitches(s.switches, s.sizes),
    compared: knownComparison(s),
    layer,
    head: Math.min(s.head, s.sizes.num_heads - 1),
    ...(s.over && !isLayerFull(s, layer) ? { over: null, toast: noLayer } : {}),
    lock,
    hover: null,
  };
}
