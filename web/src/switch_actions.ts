// What a person can switch. Every switch is for the heads of the scope, beside those that have it.
import type { State, Store } from './state.ts';
import { bentIndices, indicesOf, namesOf, noSwitches, offIndices, scopeIndices, type Mask, type Scope,
         type Switches } from './switches.ts';
import type { OffMeans } from './types.ts';

export const temperatures = { least: 0.1, most: 10 };

export function switchActions(store: Store) {
  const state = (): State => store.state;

  function bend(change: Partial<Switches>): void {
    const s = state();
    const switches = { ...s.switches, ...change };
    const plain = switches.scaled && switches.mask === 'causal' && switches.temperature === 1;
    const heads = plain ? [] : namesOf([...bentIndices(s), ...scopeIndices(s)], s.sizes!);
    store.update({ switches: { ...switches, heads } });
  }

  return {
    setScaled: (scaled: boolean) => bend({ scaled }),
    setMask: (mask: Mask) => bend({ mask }),
    setWindow(keys: number) {
      if (Number.isInteger(keys) && keys >= 1) bend({ mask: 'window', window: Math.min(keys, 99999) });
    },
    setTemperature(temperature: number) {
      const rounded = Number(Math.max(temperatures.least, Math.min(temperatures.most, temperature)).toPrecision(2));
      if (Number.isFinite(rounded)) bend({ temperature: rounded });
    },
    toggleOff() {
      const s = state();
      const scope = scopeIndices(s);
      const off = new Set(offIndices(s));
      const all = scope.every((index) => off.has(index));
      for (const index of scope) if (all) off.delete(index); else off.add(index);
      store.update({ switches: { ...s.switches, off: namesOf([...off], s.sizes!) } });
    },
    setOffMeans: (offMeans: OffMeans) => store.update({ switches: { ...state().switches, offMeans } }),
    // What is switched goes along.
    setScope(scope: Scope) {
      const s = state();
      const now = { ...s, switches: { ...s.switches, scope } };
      const names = namesOf(scopeIndices(now), s.sizes!);
      const moved = (heads: string[]) => (indicesOf(heads, s.sizes!).length > 0 ? names : []);
      store.update({ switches: { ...now.switches, heads: moved(s.switches.heads), off: moved(s.switches.off) } });
    },
    resetSwitches: () => store.update({ switches: noSwitches }),
    toggleWhatIf: () => store.update({ whatIf: !state().whatIf, neuron: false }),
    setGrid: (grid: State['grid']) => store.update({ grid }),
  };
}
