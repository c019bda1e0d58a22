// What a person can do. Views call these; each is one change of the state.
import { choice, sees, visible } from './select.ts';
import { isLayerFull, type Block, type Cell, type Popover, type State, type Store, type Tab } from './state.ts';
import { switchActions } from './switch_actions.ts';
import type { Label } from './types.ts';
import { labels, noLayer } from './words.ts';

const sameBlock = (a: Block | undefined, b: Block) =>
  a !== undefined && a.queries[0] === b.queries[0] && a.keys[0] === b.keys[0] && a.keys[1] === b.keys[1];

export type Actions = ReturnType<typeof makeActions>;

export function makeActions(store: Store) {
  const state = (): State => store.state;
  const headCount = () => state().sizes!.num_layers * state().sizes!.num_heads;

  function goTo(index: number): void {
    const { num_heads } = state().sizes!;
    const at = (index + headCount()) % headCount();
    store.update({ layer: Math.floor(at / num_heads), head: at % num_heads, over: null, why: null,
                   steps: null, pair: null });
  }
  const indexNow = () => state().layer * state().sizes!.num_heads + state().head;

  return {
    type: (text: string) => store.update({ text, hover: null, lock: null }),
    tryText(text: string) {
      store.update({ text, hover: null, lock: null, filter: null, why: null, over: null });
    },
    chooseHead: goTo,
    moveHead: (by: number) => goTo(indexNow() + by),
    moveLayer: (by: number) => goTo(indexNow() + by * state().sizes!.num_heads),
    chooseLayer(layer: number) { // on a phone: the same head of another layer
      goTo(layer * state().sizes!.num_heads + state().head);
    },
    overLayer(layer: number) {
      const s = state();
      if (!isLayerFull(s, layer)) return store.update({ toast: noLayer });
      const same = s.over !== null && s.layer === layer;
      store.update({ layer, over: same ? null : 'mean', why: null, neuron: false,
                     tab: s.tab === 'steps' ? 'matrix' : s.tab });
    },
    setOver: (over: 'mean' | 'max') => store.update({ over }),
    setTab: (tab: Tab) => store.update({ tab, popover: null }),
    setStep: (step: number) => store.update({ tab: 'steps', over: null, step: Math.max(0, Math.min(6, step)) }),
    moveStep(by: number) {
      const s = state();
      const step = s.tab === 'steps' ? s.step + by : s.step;
      store.update({ tab: 'steps', over: null, step: Math.max(0, Math.min(6, step)) });
    },
    hover(cell: Cell | null) {
      const before = state().hover;
      if (state().lock || (before?.query === cell?.query && before?.key === cell?.key)) return;
      store.update({ hover: cell });
    },
    // Of a pooled map: the strongest pair in a block, once it is found.
    hoverBlock(block: Block | null) {
      const s = state();
      if (s.lock || (block && sameBlock(s.hover?.block, block)) || (!block && !s.hover)) return;
      store.update({ hover: block && { query: block.queries[0], key: null, block } });
    },
    lockBlock(block: Block) {
      const s = state();
      if (sameBlock(s.lock?.block, block)) return store.update({ lock: null, hover: null });
      const found = sameBlock(s.hover?.block, block) ? s.hover! : { query: block.queries[0], key: null, block };
      store.update({ lock: found, hover: null, neuron: s.over ? s.neuron : true });
    },
    lock(cell: Cell) {
      const before = state().lock;
      const same = before?.query === cell.query && before?.key === cell.key;
      store.update({ lock: same ? null : cell, hover: null });
    },
    lockChosen() {
      const { query, key } = choice(state());
      store.update({ lock: { query, key }, hover: null });
    },
    // A cell of the matrix: locked, and where its number comes from is opened.
    openCell(cell: Cell) {
      const before = state().lock;
      const same = before?.query === cell.query && before?.key === cell.key;
      const seen = cell.key !== null && sees(state(), cell.query, cell.key);
      store.update({ lock: same ? null : { query: cell.query, key: seen ? cell.key : null },
                     hover: null, neuron: !same && seen && !state().over && !state().whatIf ? true : state().neuron });
    },
    moveToken(by: number, byKey: number) {
      const s = state();
      const count = s.run!.tokens.length;
      const { query, key } = choice(s);
      const to = Math.max(0, Math.min(count - 1, query + by));
      const exact = byKey !== 0 || (s.lock?.key ?? null) !== null;
      const { first, end } = visible(s, to);
      store.update({ lock: { query: to, key: exact ? Math.max(first, Math.min(end - 1, key + byKey)) : null },
                     hover: null });
    },
    free() {
      const s = state();
      if (s.popover) store.update({ popover: null });
      else store.update({ lock: null, hover: null, sheet: false });
    },
    setFilter(label: Label) {
      const s = state();
      if (s.filter === label) return store.update({ filter: null });
      const scored = s.run!.heads.map((head, index) => ({
        index, score: head.labels.find((l) => l.label === label)?.score ?? -1 }));
      scored.sort((a, b) => b.score - a.score);
      store.update({ filter: labels.includes(label) ? label : null });
      if (scored[0] && scored[0].score >= 0) goTo(scored[0].index);
    },
    setWhy: (why: Label) => store.update({ why: state().why === why ? null : why, tab: 'matrix' }),
    setScale: (scale: State['scale']) => store.update({ scale }),
    setByValue: (byValue: boolean) => store.update({ byValue }),
    setSpread: (spread: boolean) => store.update({ spread }),
    toggleNeuron: () => store.update({ neuron: !state().neuron, whatIf: false }),
    togglePopover: (popover: Popover) =>
      store.update({ popover: state().popover === popover ? null : popover }),
    // B begins as A: what is changed in it is what is compared.
    compareWith(kind: 'head' | 'text') {
      const { compared, text } = state();
      store.update({ compared: { ...compared, with: kind, text: compared.text || text } });
    },
    compareHead(index: number) {
      const { num_heads } = state().sizes!;
      const place = { layer: Math.floor(index / num_heads), head: index % num_heads };
      store.update({ compared: { ...state().compared, place } });
    },
    compareText: (text: string) => store.update({ compared: { ...state().compared, text } }),
    diagnose() { // once: it is the same for every text
      const { diagnosis } = state();
      const known = diagnosis && !diagnosis.error ? diagnosis : { done: 0, heads: null, error: null };
      store.update({ dialog: 'diagnosis', diagnosis: known, popover: null });
    },
    toggleSheet: () => store.update({ sheet: !state().sheet }),
    setTheme: (theme: State['theme']) => store.update({ theme }),
    openDialog: (dialog: State['dialog']) => store.update({ dialog, popover: null }),
    toast: (toast: string | null) => store.update({ toast }),
    ...switchActions(store),
  };
}
