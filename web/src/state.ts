import { noSwitches, type Switches } from './switches.ts';
import { mostWeights, type Head, type HeadSwitch, type Label, type OffMeans, type PageData, type Pair, type Place, type Row, type Run,
         type Sizes, type Steps, type Switched } from './types.ts';

export type Tab = 'matrix' | 'lines' | 'steps' | 'compare';
export type Scale = 'fixed' | 'row' | 'log';
export type Theme = 'light' | 'dark';
export type Popover = 'display' | 'export' | 'menu'; // the id of its button

export interface Cell {
  query: number;
  key: number | null; // null: the key it looks at most
  block?: Block; // of a pooled map: with a null key the strongest pair in it is still looked for
}

// Tokens [first, end).
export interface Block {
  queries: [number, number];
  keys: [number, number];
}

// What was made of a run under switches.
export interface SwitchedRun extends Switched {
  run: Run;
  heads: HeadSwitch[];
}

// ln P of the run’s next token without a head, minus that with it; by head, as far as measured.
export interface Effects {
  run: Run;
  off: OffMeans;
  changes: (number | undefined)[];
}

// What the chosen head is compared with.
export interface Comparison {
  with: 'head' | 'text';
  place: Place | null; // B; null: the head after A
  text: string; // B
  run: Run | null; // of that text
  error: string | null;
}

// The diagnostic run: heads on random tokens that repeat.
export interface Diagnosis {
  done: number; // draws
  heads: Head[] | null; // means over all draws; null: not there yet
  error: string | null;
}

// All there is to know; views are functions of it.
export interface State {
  data: PageData;
  sizes: Sizes | null; // null: the engine is not there yet
  text: string; // in the field
  run: Run | null; // what was made of the last text that could be run
  steps: Steps | null; // of the chosen head
  row: Row | null; // of a pooled run: the last one that was asked for
  pair: Pair | null; // of a recorded text: where the chosen weight comes from
  error: string | null;
  compared: Comparison;
  diagnosis: Diagnosis | null; // null: not asked for
  layer: number;
  head: number;
  over: 'mean' | 'max' | null; // all heads of the layer instead of one
  tab: Tab;
  step: number;
  lock: Cell | null;
  hover: Cell | null;
  scale: Scale;
  byValue: boolean;
  spread: boolean; // beside each row: how evenly it looks
  filter: Label | null;
  why: Label | null; // outlines the cells that count for it
  neuron: boolean; // "Where … comes from" is open
  switches: Switches;
  switched: SwitchedRun | null; // the last that was made: may be of switches that are no longer so
  whatIf: boolean; // "Temperature, window, scope" is open
  grid: 'patterns' | 'effect';
  effects: Effects | null;
  theme: Theme | null; // null: as the system
  systemDark: boolean;
  sheet: boolean; // on a phone: the inspector is up
  popover: Popover | null;
  dialog: 'help' | 'table' | 'diagnosis' | 'sinks' | null;
  toast: string | null;
  printing: boolean;
  view: { width: number; height: number }; // room for the picture of the head
  windowWidth: number;
}

export function initialState(data: PageData): State {
  return {
    data, sizes: null, text: data.text, run: null, steps: null, row: null, pair: null, error: null,
    compared: { with: 'head', place: null, text: '', run: null, error: null }, diagnosis: null,
    layer: 0, head: 0, over: null, tab: 'matrix', step: 4, lock: null, hover: null,
    scale: 'fixed', byValue: false, spread: false, filter: null, why: null, neuron: false,
    switches: noSwitches, switched: null, whatIf: false, grid: 'patterns', effects: null,
    theme: null, systemDark: false, sheet: false, popover: null, dialog: null, toast: null, printing: false,
    view: { width: 0, height: 0 }, windowWidth: 0,
  };
}

export const isDark = (s: State) => !s.printing && (s.theme ? s.theme === 'dark' : s.systemDark);
export const isRecorded = (s: State) => s.data.recorded !== undefined;
export const isPooled = (s: State) => s.run?.pooled !== undefined;
// Is every weight of a head there, or only the strongest of each row?
export const isFull = (s: State, index: number) => s.data.recorded?.full?.includes(index) ?? true;
// Mean and maximum over the heads of a layer need every weight of each.
export const isLayerFull = (s: State, layer: number) =>
  Array.from({ length: s.sizes!.num_heads }, (_, head) => layer * s.sizes!.num_heads + head).every((index) => isFull(s, index));
// Is a run pooled because of its length? If not, because not every head was kept in full.
export const isTooLong = (s: State) => isPooled(s) && s.run!.heads.length * s.run!.tokens.length ** 2 > mostWeights;
export const isPhone = (s: State) => s.windowWidth <= 900;

type Listener = (state: State, before: State) => void;

// The one place where the state changes.
export class Store {
  private listeners: Listener[] = [];
  constructor(private current: State) {}

  get state(): State {
    return this.current;
  }

  subscribe(listener: Listener): void {
    this.listeners.push(listener);
  }

  update(change: Partial<State>): void {
    const before = this.current;
    this.current = { ...before, ...change };
    for (const listener of this.listeners) listener(this.current, before);
  }

  // The room that drawing found, by who draws: nobody is told, since being told is to draw again.
  measured(view: State['view']): void {
    this.current = { ...this.current, view };
  }
}
