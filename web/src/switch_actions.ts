// What a person can switch. How heads attend is switched for those of the scope alone; any number can be off.
import type { State, Store } from './state.ts';
import { bentIndices, indicesOf, namesOf, noSwitches, offIndices, scopeIndices, type Mask, type Scope,
         type Switches } from './switches.ts';
import type { OffMeans } from './types.ts';

export const temperatures = { least: 0.1, most: 10 };

type Bend = Pick<Switches, 'scaled' | 'mask' | 'window' | 'temperature'>;

const bendOf = ({ scaled, mask, window, temperature }: Switches): Bend => ({ scaled, mask, window, temperature });
const asTrained = bendOf(noSwitches);
const same = (a: Bend, b: Bend) =>
  a.scaled === b.scaled && a.mask === b.mask && a.window === b.window && a.temperature === b.temperature;

export function switchActions(store: Store) {
  const state = (): State => store.state;

  // Changes what is shown for the scope. There is one set of switches, so a new one is for the scope
  // alone: no other head gets what it was not asked for. Taking one off leaves other heads as they are.
  function bend(change: Partial<Bend>): void {
    const s = state();
    const [bent, scope] = [bentIndices(s), scopeIndices(s)];
    const shown = scope.every((index) => bent.includes(index)) ? bendOf(s.switches) : { ...asTrained, window: s.switches.window };
    const wanted = { ...shown, ...change };
    if (same(wanted, shown)) return;
    if (same({ ...wanted, window: asTrained.window }, asTrained)) {
      const others = bent.filter((index) => !scope.includes(index));
      const rest = others.length > 0 ? bendOf(s.switches) : wanted;
      return store.update({ switches: { ...s.switches, ...rest, heads: namesOf(others, s.sizes!) } });
    }
    store.update({ switches: { ...s.switches, ...wanted, heads: namesOf(scope, s.sizes!) } });
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
